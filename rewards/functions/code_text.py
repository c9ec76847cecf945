"""Where the program is in a completion, and what a row's tests say."""

import json
from dataclasses import dataclass
from typing import Any

from rewards.contract import short_repr

FENCE = "```"
PYTHON_TAGS = ("python", "python3", "py")


def program(completion: str) -> str:
    """The last fenced block tagged as Python, else the last untagged one, else, without any fence, the whole text.

    Only what follows the last `</think>` counts; nothing does when a `<think>` never ended. A fence that never ends
    reaches to the end of the text.
    """
    _, ended, answer = completion.rpartition("</think>")
    if not ended and "<think>" in completion:
        return ""
    blocks = list(_blocks(answer))
    if not blocks:
        return answer
    tagged = [text for tag, text in blocks if tag in PYTHON_TAGS]
    untagged = [text for tag, text in blocks if not tag]
    return (tagged or untagged or [""])[-1]


def _blocks(text: str) -> list[tuple[str, str]]:
    """(tag, content) of each fenced block."""
    blocks: list[tuple[str, list[str]]] = []
    inside = False
    for line in text.replace("\r\n", "\n").split("\n"):  # splitlines() would also cut at a form feed in a string
        fence = line.strip()
        if inside and fence == FENCE:
            inside = False
        elif inside:
            blocks[-1][1].append(line)
        elif fence.startswith(FENCE):
            inside = True
            blocks.append((fence.removeprefix(FENCE).strip().lower().partition(" ")[0], []))
    return [(tag, "\n".join(lines)) for tag, lines in blocks]


@dataclass(frozen=True)
class Exchange:
    """One test of a script: what it reads, and what it has to print."""

    given: str
    expected: str

    def holds(self, printed: bytes) -> bool:
        """Line by line; white space at the ends of lines and empty lines at the end do not count."""
        return _lines(printed.decode(errors="replace")) == _lines(self.expected)


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]


@dataclass(frozen=True)
class Asserts:
    """Tests in Python: one text, or one per test."""

    source: str | list[str]


def read_tests(tests: object, entry_point: str | None = None) -> list[Exchange] | Asserts:
    """What a row's tests mean. `entry_point` is what LiveCodeBench's functional tests call.

    Raises ValueError for anything else, and for no tests.
    """
    if isinstance(tests, str) and tests.lstrip()[:1] in ("[", "{"):
        try:
            tests = json.loads(tests)
        except ValueError:
            pass  # Python that begins with a bracket
    if isinstance(tests, dict):
        return _apps(tests)
    if isinstance(tests, list) and tests and entry_point is not None and all(map(_is_call, tests)):
        return _calls(entry_point.rpartition(".")[2], [_parsed_call(test) for test in tests], unwrap=False)
    if isinstance(tests, str) and tests.strip():
        return Asserts(tests)
    if isinstance(tests, list) and tests:
        if all(isinstance(test, str) for test in tests):
            return Asserts(tests)
        if all(isinstance(test, dict) for test in tests):
            return [_exchange(test) for test in tests]
    raise ValueError(
        f"the tests {short_repr(tests)} are not Python source, a list of assert strings, or a list of "
        '{"input": ..., "output": ...}'
    )


def _apps(tests: dict[str, Any]) -> list[Exchange] | Asserts:
    """{"inputs": [...], "outputs": [...]}, with "fn_name" for calls, as APPS has it."""
    inputs, outputs = tests.get("inputs"), tests.get("outputs")
    if not isinstance(inputs, list) or not isinstance(outputs, list) or len(inputs) != len(outputs) or not inputs:
        raise ValueError(f"the tests {short_repr(tests)} have no `inputs` and `outputs` of one length")
    pairs = zip(inputs, outputs, strict=True)
    if tests.get("fn_name"):
        return _calls(tests["fn_name"], [(i if isinstance(i, list) else [i], o) for i, o in pairs], unwrap=True)
    return [_exchange({"input": _joined(i), "output": _joined(o)}) for i, o in pairs]


def _joined(lines: object) -> object:
    """APPS has some texts as lists of lines."""
    return "\n".join(lines) if isinstance(lines, list) and all(isinstance(line, str) for line in lines) else lines


def _exchange(test: dict[str, Any]) -> Exchange:
    given, expected = test.get("input"), test.get("output")
    if _is_call(test):
        raise ValueError(f"the test {short_repr(test)} calls a function, but the row has no `entry_point` to name it")
    if test.get("testtype", "stdin") != "stdin" or not isinstance(given, str) or not isinstance(expected, str):
        raise ValueError(f"the test {short_repr(test)} has no `input` and `output` strings for stdin and stdout")
    return Exchange(given, expected)


# As the data sets' own harnesses do: a method of `Solution` where there is one; tuples are lists.
CALL = """
import json
def _called(*arguments):
    try:
        function = Solution().{name}
    except NameError:
        function = {name}
    return _listed(function(*arguments))

def _listed(value):
    return [_listed(item) for item in value] if isinstance(value, (list, tuple)) else value
"""


def _is_call(test: object) -> bool:
    """LiveCodeBench marks them so."""
    return isinstance(test, dict) and test.get("testtype") == "functional"


def _parsed_call(test: dict[str, Any]) -> tuple[list[Any], Any]:
    """One argument per line of the input, as JSON; so is the output."""
    try:
        lines = [line for line in test["input"].splitlines() if line.strip()]
        return [json.loads(line) for line in lines], json.loads(test["output"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"the test {short_repr(test)} is no call with JSON per line: {error}") from None


def _calls(name: object, calls: list[tuple[list[Any], Any]], *, unwrap: bool) -> Asserts:
    """Asserts that call a function; with `unwrap` an expected [x] also allows x, as APPS has it."""
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f"the function that the tests call must be a name, not {short_repr(name)}")
    lines = [CALL.format(name=name)]
    for arguments, expected in calls:
        allowed = [expected, *(expected if unwrap and isinstance(expected, list) and len(expected) == 1 else [])]
        lines.append(f"assert _called(*{_literal(arguments)}) in {_literal(allowed)}")
    return Asserts("\n".join(lines))


def _literal(value: list[Any]) -> str:
    return f"json.loads({json.dumps(value)!r})"  # not repr(): there is no literal for an infinite number
