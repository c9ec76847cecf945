"""What passes between a program and its tests: right programs of every kind earn 1.0, what pretends earns 0.0."""

import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from rewards.functions import code as module
from rewards.functions.code import code

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is made of Linux namespaces")

ALLOW: dict[str, Any] = {"allow_execution": True}


@pytest.fixture(scope="module", autouse=True)
def sandbox() -> Iterator[None]:
    yield
    for each in module._sandboxes.values():
        each.close()
    module._sandboxes.clear()


def score(completion: str, tests: Any, entry_point: str | None = None, **params: Any) -> float | None:
    (value,) = code(["q"], [completion], [tests], [entry_point], **{**ALLOW, **params})
    return value


def raises(call: str, error: str, then: str = "pass") -> str:
    return f"try:\n    {call}\n    assert False\nexcept {error}:\n    {then}"


VECTOR = """
class V:
    def __init__(self, x=0, y=0): self.x, self.y = x, y
    def __add__(self, o): return V(self.x + o.x, self.y + o.y)
    def __mul__(self, k): return V(self.x * k, self.y * k) if isinstance(k, int) else self.x * k.x + self.y * k.y
    def __rmul__(self, k): return self * k
    def __neg__(self): return V(-self.x, -self.y)
    def __abs__(self): return (self.x**2 + self.y**2) ** 0.5
    def __float__(self): return 1.5
    def __eq__(self, o): return isinstance(o, V) and (self.x, self.y) == (o.x, o.y)
    def __lt__(self, o): return self.x < o.x
    def __hash__(self): return hash((self.x, self.y))
    def __contains__(self, i): return i in (self.x, self.y)
    def __bool__(self): return self.x != 0
    def __enter__(self): return self
    def __exit__(self, *_): self.x = 99
    def __repr__(self): return f"V({self.x})"
"""
POINT = """
from typing import NamedTuple
class P(NamedTuple):
    x: int
    count: int = 2
    def norm(self): return self.x + self.count
def f(a): return P(a)
"""
LRU = """
from collections import OrderedDict
class C(OrderedDict):
    def __init__(self, n): super().__init__(); self.n = n
    def put(self, k, v):
        self[k] = v
        if len(self) > self.n: self.popitem(last=False)
class S(list):
    def push(self, x): self.append(x)
"""
ERRORS = """
import json
class E(ValueError):
    def __init__(self, code): super().__init__("no"); self.code = code
def f(x): raise E(7)
def g(x): raise KeyError(x)
def h(x): return json.loads(x)
def end(): raise SystemExit(3)
"""
ENUMS = """
from enum import Enum, IntEnum, IntFlag
class C(IntEnum): R = 1; G = 2
class D(Enum): A = "a"
class F(IntFlag): X = 1; Y = 2
def f(): return C.R
"""
COLLECTIONS = """
from collections import *
def f(d, k): d[k].append(1)
def g(d): d.append(3)
def d(): return defaultdict(list, a=[1])
def q(): return deque([1, 2], maxlen=3)
def c(): return Counter("aab")
def o(): return OrderedDict(a=1, b=2)
def k(d): return d.keys(), d.items()
"""
DATES = """
from datetime import *
def now(): return datetime(2020, 1, 2, tzinfo=timezone.utc)
def next_day(d): return d + timedelta(days=1)
def view(): return memoryview(b"abc")
"""
RETRY = "def retry(f):\n try: return f()\n except ValueError: return f()"
IMPORTS = "from collections import *\nfrom datetime import *\n"

RIGHT: dict[str, tuple[str, list[str]]] = {
    "match": (
        "import re\ndef f(x): return re.match('a', x)",
        ["assert f('abc')", "assert not f('b')", "assert f('abc').group(0) == 'a'"],
    ),
    "operators": (
        VECTOR,
        [
            "assert V(1, 2) + V(3, 4) == V(4, 6)",
            "assert V(1, 2) * 3 == V(3, 6)",
            "assert (3 * V(1, 2)).y == 6",
            "assert V(1, 2) * V(3, 4) == 11",
            "assert -V(1) == V(-1)",
            "assert abs(V(3, 4)) == 5 and float(V()) == 1.5",
            "assert sorted([V(2), V(1)])[0] == V(1) and max(V(1), V(2)).x == 2",
            "assert len({V(1), V(1)}) == 1",
            "assert V(1) and not V()",
            "assert 1 in V(1, 2) and 5 not in V()",
            "with V(1) as v:\n    assert v.x == 1\nassert v.x == 99",
            "assert f'{V(2)!r}' == 'V(2)'",
            "assert type(V(1)) is V and V(1).__class__.__name__ == 'V' and V(1).__dict__ == {'x': 1, 'y': 0}",
            "assert sum([V(1, 1), V(2, 2)], V()) == V(3, 3)",
        ],
    ),
    "named tuple": (
        POINT,
        [
            "assert f(1).x == 1 and f(1).count == 2 and f(1)[0] == 1",
            "assert f(1) == (1, 2) and f(1) == P(1, 2) and [f(1)] == [(1, 2)]",
            "a, b = f(1)\nassert b == 2",
            "assert isinstance(f(1), P) and isinstance(f(1), tuple)",
            "assert f(1).norm() == 3 and f(1)._asdict() == {'x': 1, 'count': 2}",
            "assert repr(f(1)) == 'P(x=1, count=2)'",
        ],
    ),
    "containers of its own": (
        LRU,
        [
            "c = C(1)\nc.put(1, 1)\nc.put(2, 2)\nassert c == {2: 2} and 2 in c and c[2] == 2 and isinstance(c, dict)",
            "s = S()\ns.push(1)\nassert s == [1] and list(s) == [1] and s + [2] == [1, 2]\ns[0] = 5\nassert [5] == s",
        ],
    ),
    "exceptions": (
        ERRORS,
        [
            raises("f(1)", "E as e", "assert e.code == 7 and str(e) == 'no' and e.args == ('no',) and type(e) is E"),
            raises("f(1)", "ValueError"),
            raises("g('x')", "KeyError as e", "assert e.args == ('x',)"),
            "import json\n" + raises("h('{')", "json.JSONDecodeError as e", "assert e.pos == 1"),
            raises("end()", "SystemExit as e", "assert e.code == 3"),
            raises("raise E(3)", "E as e", "assert e.code == 3"),
            "assert issubclass(E, ValueError)",
        ],
    ),
    "enumerations": (
        ENUMS,
        [
            "assert f() == 1 and f().name == 'R' and f() is C.R and f() + 1 == 2 and C.R < C.G",
            "assert D('a') is D.A and D.A.value == 'a' and str(D.A) == 'D.A' and [m.name for m in C] == ['R', 'G']",
            "assert F.X | F.Y == 3",
        ],
    ),
    "collections": (
        COLLECTIONS,
        [
            "assert d() == {'a': [1]} and d()['zz'] == []",
            "from collections import deque\nassert q() == deque([1, 2]) and q().maxlen == 3",
            "assert c().most_common(1) == [('a', 2)] and c()['q'] == 0",
            "assert list(o()) == ['a', 'b'] and o().popitem() == ('b', 2)",
            IMPORTS + "x = defaultdict(list)\nf(x, 'k')\nassert x == {'k': [1]}",
            IMPORTS + "x = deque([1])\ng(x)\ng(d=x)\nassert x == deque([1, 3, 3])",
            "keys, items = k({1: 2})\nassert keys == {1} and list(items) == [(1, 2)]",
        ],
    ),
    "dates and bytes": (
        DATES,
        [
            IMPORTS + "assert now() == datetime(2020, 1, 2, tzinfo=timezone.utc)",
            IMPORTS + "assert next_day(date(2020, 1, 1)) == date(2020, 1, 2)",
            "assert view() == b'abc' and bytes(view()) == b'abc'",
        ],
    ),
    "coroutines": (
        "async def f(x): return x * 2",
        [
            "import asyncio\nassert asyncio.run(f(2)) == 4",
            "import asyncio\nasync def g(): return await asyncio.gather(f(1), f(2))\nassert asyncio.run(g()) == [2, 4]",
        ],
    ),
    "iterators and functions": (
        "def f(it): return sum(it)\nidentity = lambda g: g",
        [
            "assert f(iter([1, 2])) == 3 and f(x for x in [1]) == 1 and f(map(int, '12')) == 3",
            "assert identity(len) is len",
        ],
    ),
    "exceptions of the tests": (
        RETRY,
        [
            "n = []\ndef g():\n n.append(1)\n if len(n) == 1: raise ValueError\n return 5\nassert retry(g) == 5",
            "class B(Exception): pass\ndef g(): raise B('b')\n" + raises("retry(g)", "B as e", "assert str(e) == 'b'"),
        ],
    ),
    "a named tuple of the tests": (
        "def f(p): return p.x",
        ["from collections import namedtuple\nP = namedtuple('P', 'x')\nassert f(P(1)) == 1"],
    ),
    "classes": (
        "class A: pass\nclass B(A):\n i = None\n def __new__(c):\n  c.i = c.i or object.__new__(c)\n  return c.i",
        ["assert issubclass(B, A) and isinstance(B(), A) and not isinstance(3, A)", "assert B() is B()"],
    ),
    "sequences": (
        "class M:\n def __init__(s, r): s.r = r\n def __getitem__(s, i): return s.r[i]\n __len__ = lambda s: len(s.r)",
        ["m = M([1, 2, 3])\nassert m[0:2] == [1, 2] and list(m) == [1, 2, 3] and 2 in m and list(reversed(m))[0] == 3"],
    ),
}


@pytest.mark.parametrize("kind", RIGHT)
def test_right_programs(kind: str) -> None:
    program, tests = RIGHT[kind]
    failed = [test for test in tests if score(program, [test]) != 1.0]
    assert failed == []


NUMPY = """
import numpy as np
def f(): return np.arange(6).reshape(2, 3)
def g(a): return a.mean()
def h(a): a += 1
"""


def test_arrays() -> None:
    pytest.importorskip("numpy")
    tests = [
        "import numpy as np",
        "assert f().tolist() == [[0, 1, 2], [3, 4, 5]] and f().shape == (2, 3)",
        "assert (f() == np.arange(6).reshape(2, 3)).all()",
        "assert g(np.array([1.0, 3.0])) == 2",
        "a = np.zeros((2, 2))\nh(a)\nassert a.tolist() == [[1, 1], [1, 1]]",
    ]
    assert score(NUMPY, "\n".join(tests), site_packages=True) == 1.0
    assert score(NUMPY.replace("(6)", "(6) + 1"), "\n".join(tests), site_packages=True) == 0.0


DUNDERS = "__add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __pow__ __neg__"
TRUE = "__eq__ = __lt__ = __gt__ = __le__ = __ge__ = __bool__ = lambda *a: True\n __hash__ = lambda s: 4\n"
NUMBER = " __float__ = lambda s: 0.0\n __int__ = __index__ = __round__ = __abs__ = lambda *a: 0\n"
ZERO = " " + " = ".join(DUNDERS.split()) + " = lambda *a: 0\n"
ITSELF = ZERO.replace("*a: 0", "s, *a: s")
PRETENDERS = {
    "gives zero": f"class X:\n {TRUE}{NUMBER}{ZERO}",
    "gives itself": f"class X:\n {TRUE}{NUMBER}{ITSELF}",
    "is a number": f"class X(int):\n {TRUE}{NUMBER}{ZERO}",
    "is a number, gives itself": f"class X(int):\n {TRUE}{NUMBER}{ITSELF}",
    "is a list": f"class X(list):\n {TRUE}{NUMBER}{ZERO}",
}
UNITTEST = "import unittest\nclass T(unittest.TestCase):\n def test_a(self): "
ASKED = [
    "assert f(2) == 4",
    "assert abs(f(2) - 4) < 1e-6",
    "assert abs(4 - f(2)) < 1e-6",
    "assert -1e-6 < f(2) - 4 < 1e-6",
    "assert round(f(2) - 4, 5) == 0",
    "assert not (f(2) - 4)",
    "assert 3 < f(2) < 5",
    "assert f(2) in (4,)",
    "assert {4: 1}[f(2)] == 1",
    "import math\nassert math.isclose(f(2), 4)",
    "assert int(f(2) - 4) == 0",
    "assert (f(2) - 4) * (f(2) - 4) < 1e-6",
    "assert f(2) == [4] or [f(2)] == [4]",
    "assert sum([f(2), -4]) == 0",
    UNITTEST + "self.assertEqual(f(2), 4)",
    UNITTEST + "self.assertAlmostEqual(f(2), 4)",
]


@pytest.mark.parametrize("pretender", PRETENDERS)
def test_an_object_is_no_number_of_the_tests(pretender: str) -> None:
    passed = [test for test in ASKED if score(f"{PRETENDERS[pretender]}f = lambda *a: X()", test) != 0.0]
    assert passed == []


FORGE = "import rewards.sandbox.objects as o\no.encode = lambda v, f: {}\ndef f(x): return 1"
ANSWER = "import rewards.sandbox.solution as s\ns._Server.answer = lambda *a: {}\ndef f(x): return 1"
RENAMED = "class E(Exception): pass\nE.__name__, E.__module__ = '{}', '{}'\ndef f(x): raise E()"
CATCH_ALL = "try:\n    f(1)\n    assert False\nexcept E:\n    pass"
NODE = "class Node: pass\n"

# A wrong program must earn 0.0: no 1.0, and no error either, which might end the run.
WRONG: list[tuple[str, str]] = [
    *((f"E = {name}\ndef f(x): return 1", CATCH_ALL) for name in ("Exception", "BaseException", "AssertionError")),
    (RENAMED.format("AssertionError", "builtins") + "\ndef f(x): return 1", CATCH_ALL),
    (RENAMED.format("UnsupportedTestError", "rewards.sandbox.handing"), "assert f(1) == 4"),
    (RENAMED.format("ImportError", "builtins"), "assert f(1) == 4"),
    (RENAMED.format("a\\0b", "c"), "assert f(1) == 4"),
    ("def f(x): raise ImportError('no', name='numpy')", "assert f(1) == 4"),
    ("class V:\n __enter__ = lambda s: s\n __exit__ = lambda *a: True\n x = 5", "with V() as v:\n    assert v.x == 4"),
    ("class f:\n __init__ = lambda *a: None\n __getitem__ = lambda *a: 7", "assert f(2)[1:3] == [1]"),
    ("class f:\n __init__ = lambda *a: None\n join = lambda *a: 7", "assert f(2).join(str(i) for i in [1]) == '1'"),
    ("class f:\n __init__ = lambda *a: None\n __contains__ = lambda *a: True", NODE + "assert Node() in f(2)"),
    ("class f:\n __init__ = lambda *a: None\n __add__ = lambda *a: 1", NODE + "assert f(2) + Node() == 1"),
    ("class X: pass\ndef f(x): return X()", "t = type\nassert f(t(f(1))) == 4"),
    ("class X: pass\ndef f(g): return g(X())", "t = type\nassert f(lambda v: t(v)) == 4"),
    (
        "class X(list):\n n = 0\n def __iter__(s): s.n += 1; return iter([4][: s.n])",
        "x = X()\nassert x == [4] or [4] == x",
    ),
    *(
        (FORGE.format(wire), "assert f(1) == 4")
        for wire in (
            "['array', ['tuple', ['<f8', ['tuple', [10**9]], ['bytes', '00']]]]",
            "['subclass', [1, ['object', 3], []]]",
            "['subclass', [1, True, ['__eq__', '__hash__']]]",
            "['container', [1, ['__eq__', '__class__']]]",
            "['class', {'number': 1, 'name': 'ImportError', 'module': 'builtins', 'bases': []}]",
            "{'a': 1, 'b': 2}",
            "['namedtuple', 3]",
        )
    ),
    *(
        (ANSWER.format(answer), "assert f(1) == 4")
        for answer in ("{'again': 0}", "{'changed': {'7': 3}}", "{'changed': 7}", "{'callback': 0}", "{'raised': 0}")
    ),
]


@pytest.mark.parametrize(("program", "tests"), WRONG)
def test_wrong_programs_earn_zero_and_raise_nothing(program: str, tests: str) -> None:
    assert score(program, [tests]) == 0.0


SAME = "def f(x): return x"
UNSUPPORTED: list[tuple[str, str, str]] = [
    (SAME, NODE + "assert f(Node()) == 1", "class Node"),
    (SAME, NODE + "try:\n    f(Node())\nexcept:\n    pass\nassert True", "class Node"),
    (SAME, "class K(dict): pass\nassert f(K()) == {}", "class K"),
    (SAME, "import io\nassert f(io.StringIO('a'))", "class StringIO"),
    (SAME, NODE + "assert f(lambda: 1)() == 1\nassert f([Node()])", "class Node"),
    ("def f(g): return g(1)", NODE + "assert f(lambda x: Node())", "class Node"),
    ("class B: pass", "class D(B): pass\nassert D()", "derives"),
    ("class B(Exception): pass", "class D(B): pass\nassert D()", "derives"),
    ("class B: pass", NODE + "b = B()\nb.next = Node()\nassert b", "class Node"),
]


@pytest.mark.parametrize(("program", "tests", "named"), UNSUPPORTED)
def test_tests_that_cannot_be_done_from_outside_are_an_error(program: str, tests: str, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        score(program, [tests])


def test_a_zero_that_may_not_be_the_programs_fault_is_said(caplog: pytest.LogCaptureFixture) -> None:
    module._noted.clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert (
                score("class V:\n def __eq__(s, o): return o == 4\ndef f(x): return V()", ["assert f(2) == 4"]) == 0.0
            )
        assert score(SAME, ["assert f(2) == 4"]) == 0.0
    (said,) = caplog.records
    assert "compared an object of a class of the program's with plain data" in said.getMessage()


SOLUTION = "class Solution:\n def add(self, a, b): return (a + b, a)"
CALLS = [{"input": "1\n2\n", "output": "[3, 1]", "testtype": "functional"}]


def test_the_shapes_of_data_sets() -> None:
    assert score(SOLUTION, CALLS, "add") == 1.0
    assert score(SOLUTION, CALLS, "Solution().add") == 1.0
    assert score(SOLUTION.replace("a + b", "a - b"), CALLS, "add") == 0.0
    apps = {"fn_name": "f", "inputs": [[1, 2], [5, 6]], "outputs": [[3], 11]}
    assert score("def f(a, b): return a + b", apps) == 1.0
    assert score("def f(a, b): return [a + b]", apps) == 0.0
    assert score("def f(a, b): return 3", apps, partial=True) == 0.5
    assert score("print(input() + input())", {"inputs": [["a", "b"]], "outputs": [["ab"]]}) == 1.0
    unit = UNITTEST + "self.assertEqual(f(2), self.two)\n def setUp(self): self.two = 2"
    assert score(SAME, unit) == 1.0
    assert score("def f(x): return 3", unit) == 0.0
    assert score(SAME, "class TestF:\n def test_f(self): assert f(2) == 2\n def test_g(self): assert f(1) == 1") == 1.0
    with pytest.raises(ValueError, match="entry_point"):
        score(SOLUTION, CALLS)
    with pytest.raises(ValueError, match="setup"):
        score(SAME, "class TestF:\n def setup_method(self): pass\n def test_f(self): assert f(2) == 2")
