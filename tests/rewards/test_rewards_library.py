"""Every built-in keeps the library's promises; then each function of text by itself."""

import ast
import json
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from rewards.batch import Batch
from rewards.calling.adapters import Bound, bind
from rewards.calling.describe import run_self_test
from rewards.calling.targets import BUILTINS, source_file
from rewards.contract import FunctionSpec, PrepareError
from rewards.functions import json_schema as json_schema_module
from rewards.functions import regex as regex_module
from rewards.functions.dapo import dapo
from rewards.functions.json_schema import json_schema
from rewards.functions.length import length
from rewards.functions.multiple_choice import multiple_choice
from rewards.functions.regex import regex
from rewards.functions.repetition_penalty import repetition_penalty
from rewards.functions.soft_overlong import soft_overlong
from rewards.functions.tags import tags
from rewards.functions.token_f1 import token_f1
from rewards.running.execute import run_unit

FUNCTIONS = Path(source_file("rewards.functions.text")).parent
NEEDS_MORE = {"code", "reasoning_gym", "remote", "reward_model"}
"""They start processes, models or connections, or need an extra: their own tests cover them."""
NAMES = sorted(BUILTINS)
OF_TEXT = [name for name in NAMES if name not in NEEDS_MORE]
TAGGED = "<think>t</think><answer>x</answer>"


def module_of(name: str) -> Any:
    return import_module(f"rewards.functions.{name}")


def bound(name: str) -> Bound:
    """The built-in with the params that its self-test was written for, and the key that its dicts need."""
    key = "score" if name == "dapo" else None
    return bind(FunctionSpec(name=name, target=name, key=key, params=module_of(name).SELF_TEST[0].params))


def score(name: str, completion: Any) -> tuple[list[float | None], list[Any]]:
    columns = {column: [value] for column, value in module_of(name).SELF_TEST[0].columns.items()}
    result = run_unit(bound(name), Batch(prompts=[""], completions=[completion], columns=columns), (0,))
    return result.values, result.failures


@pytest.mark.parametrize("name", NAMES)
def test_a_built_in_says_what_it_does(name: str) -> None:
    text = (FUNCTIONS / f"{name}.py").read_text(encoding="utf-8")
    doc = ast.get_docstring(ast.parse(text)) or ""
    assert len(doc.splitlines()[0]) > 20
    assert "range:" in doc.lower()
    assert "source:" in doc.lower()


@pytest.mark.parametrize("name", OF_TEXT)
def test_a_built_in_passes_its_self_test(name: str) -> None:
    right, wrong = module_of(name).SELF_TEST
    assert right.score > wrong.score
    for example in (right, wrong):
        key = "score" if name == "dapo" else None
        spec = FunctionSpec(name=name, target=name, key=key, params=example.params)
        columns = {column: [value] for column, value in example.columns.items()}
        batch = Batch(prompts=[example.prompt], completions=[example.completion], columns=columns)
        result = run_unit(bind(spec), batch, (0,))
        assert (result.values, result.failures) == ([example.score], [])


@pytest.mark.parametrize("name", OF_TEXT)
def test_a_server_finds_the_self_test(name: str) -> None:
    outcome = run_self_test(bind(FunctionSpec(name=name, target=name, key="score" if name == "dapo" else None)))
    assert outcome.passed, outcome.detail


@pytest.mark.parametrize("name", OF_TEXT)
def test_a_built_in_scores_each_sample_alone_and_in_order(name: str) -> None:
    right, wrong = module_of(name).SELF_TEST
    function = bound(name)
    assert function.granularity == "sample"
    batch = Batch(
        prompts=[""] * 3,
        completions=[example.completion for example in (wrong, right, wrong)],
        columns={name: [wrong.columns[name], right.columns[name], wrong.columns[name]] for name in right.columns},
    )
    result = run_unit(function, batch, (0, 1, 2))
    assert (result.values, result.failures) == ([wrong.score, right.score, wrong.score], [])


@pytest.mark.parametrize("name", OF_TEXT)
def test_a_conversation_scores_as_its_text(name: str) -> None:
    right = module_of(name).SELF_TEST[0]
    messages = [{"role": "assistant", "content": right.completion}]
    assert score(name, messages) == ([right.score], [])
    parts = [{"role": "assistant", "content": [{"type": "text", "text": right.completion}]}]
    assert score(name, parts) == ([right.score], [])


@pytest.mark.parametrize("name", OF_TEXT)
@pytest.mark.parametrize("completion", ["", "   \n", "Ünïcode 🙂 数学 \x00 \ud7ff", "{" * 5000, "</think>", "\\boxed{"])
def test_odd_completions_are_scored(name: str, completion: str) -> None:
    values, failures = score(name, completion)
    assert failures == []
    assert isinstance(values[0], float)


@pytest.mark.parametrize("name", [n for n in OF_TEXT if "answer" in (module_of(n).SELF_TEST[0].columns)])
def test_a_null_gold_is_not_mine(name: str) -> None:
    batch = Batch(prompts=["", ""], completions=["4", "4"], columns={"answer": [None, None]})
    result = run_unit(bound(name), batch, (0, 1))
    assert (result.values, result.failures) == ([None, None], [])


@pytest.mark.parametrize("name", ["accuracy", "dapo", "exact_match", "math_verifier"])
@pytest.mark.parametrize("gold", [["4"], {"value": "4"}, b"4"])
def test_a_gold_that_is_no_text_is_an_error_not_a_zero(name: str, gold: Any) -> None:
    batch = Batch(prompts=[""], completions=["Answer: 4"], columns={"answer": [gold]})
    result = run_unit(bound(name), batch, (0,))
    assert "gold answer" in result.failures[0].message
    assert result.values == [None]


MEGABYTE = 1_000_000
HOSTILE = {
    "answer tags": "<think></think><answer>",
    "endings": "<think>" + "</think>" * 3 + "</answer>",
    "only openings": "<answer>",
    "boxes": "\\boxed{",
    "braces": "{}",
    "answer lines": "answer is (A) ",
    "answers": "answer: ",
    "spaces": " ",
    "newlines": "\n",
    "after a tag": "</think>          ",
    "letters": "A ",
    "stars": "**",
    "dots": "B).",
    "articles": "the a an ",
    "digits": "1,234 ",
    "hedges": "or ",
    "styles": "\\text{",
}


@pytest.mark.parametrize("name", [n for n in OF_TEXT if getattr(module_of(n), "INLINE", False)])
def test_inline_functions_cannot_be_held_up(name: str) -> None:
    """Quadratic time would be minutes for a megabyte; the bound leaves room for a busy machine."""
    for what, piece in HOSTILE.items():
        text = (piece * (MEGABYTE // len(piece) + 1))[:MEGABYTE]
        for completion in (text, f"<think>{text}</answer>", f"\\boxed{{{text}"):
            start = time.process_time()
            _, failures = score(name, completion)
            assert time.process_time() - start < 3, what
            assert failures == []


def test_functions_that_may_hang_are_not_inline() -> None:
    inline = {name for name in OF_TEXT if getattr(module_of(name), "INLINE", False)}
    assert set(OF_TEXT) - inline == {"accuracy", "json_schema", "math_verifier", "regex"}


@pytest.mark.parametrize(
    ("completion", "share"),
    [
        (TAGGED, 1.0),
        ("<think>t</think>", 0.5),
        ("<answer>x</answer><think>t</think>", 0.5),
        (TAGGED + "<answer>", 0.75),
        ("</answer><think>t</think><answer>", 0.75),
        ("<THINK></THINK>", 0.0),
        ("", 0.0),
    ],
)
def test_tags(completion: str, share: float) -> None:
    assert tags([""], [completion]) == [share]


def test_tags_of_one_s_own() -> None:
    assert tags([""], ["<plan>p</plan> <x>"], tags=["plan"]) == [1.0]
    assert tags([""], ["<a></a><b></b><c>"], tags=["a", "b", "c"]) == [5 / 6]


@pytest.mark.parametrize("bad", ["think", [], ["<think>"], ["a", "a"], [1]])
def test_bad_tags_are_named(bad: Any) -> None:
    with pytest.raises(ValueError, match=r"params\.tags"):
        tags([""], ["x"], tags=bad)


@pytest.mark.parametrize(
    ("gold", "completion", "f1"),
    [
        ("Eiffel Tower", "the Eiffel Tower!", 1.0),
        ("Eiffel Tower", "tower", 2 / 3),
        ("a b c", "b c d", 0.8),
        (["x", "y z"], "y", 2 / 3),
        (1912, "1912", 1.0),
        ("yes", "yes", 1.0),
        ("yes", "yes it is", 0.0),
        ("no way", "no", 0.0),
        ("noanswer", "noanswer", 1.0),
        ("x x y", "x x x", 2 / 3),
        ("Zürich", "ZÜRICH", 1.0),
        ("x", "", 0.0),
        ("Paris", "<think>London</think> <answer>Paris</answer>", 1.0),
        ("Paris", "London \\boxed{Paris} Rome", 1.0),
        ("New York", "\\boxed{\\text{New York}}", 1.0),
        ("Schindler's List", "“Schindler’s List”", 1.0),
        (["the", "Who"], "who", 1.0),
    ],
)
def test_token_f1(gold: Any, completion: str, f1: float) -> None:
    assert token_f1([""], [completion], answer=[gold]) == [pytest.approx(f1)]


@pytest.mark.parametrize("gold", ["", "The", [], ["", "a"], {"text": "x"}, [None]])
def test_token_f1_needs_a_gold_with_words(gold: Any) -> None:
    with pytest.raises(ValueError, match="gold answer"):
        token_f1([""], ["x"], answer=[gold])


CHOICES = ["Paris", "London", "Vitamin C", "Rome"]


@pytest.mark.parametrize(
    ("completion", "letter"),
    [
        ("B", "B"),
        ("(b)", "B"),
        ("**B**", "B"),
        ("B) London", "B"),
        ("Because.\n\nB. London", "B"),
        ("Answer: B", "B"),
        ("**Final Answer:** **B**", "B"),
        ("Answer: A\nNo: the answer is (B).", "B"),
        ("The answer is B because A is wrong.", "B"),
        ("The answer is option B", "B"),
        ("Answer: B\n\nI hope this helps", "B"),
        ("So I take B.", "B"),
        ("<think>Answer: A</think>B", "B"),
        ("A\n<answer>B</answer> or C", "B"),
        (r"A \boxed{\text{(B)}} C", "B"),
        (r"$\boxed{B. London}$", "B"),
        ("Answer: London", "B"),
        (r"\boxed{london}", "B"),
        ("Answer: Vitamin C", "C"),
        ("Answer: A or B", None),
        ("Answer: B, C", None),
        ("Answer: B/C", None),
        ("So A is wrong, I take B", None),
        ("It is B or A, so B", None),
        ("A) London", None),
        ("Answer: A dog", None),
        ("A dog", None),
        ("Answer: E", None),
        (r"\boxed{42}", None),
        (r"\boxed{B", "B"),
        ("", None),
    ],
)
def test_multiple_choice_reads_one_letter(completion: str, letter: str | None) -> None:
    got = multiple_choice([""] * 4, [completion] * 4, answer=list("ABCD"), choices=[CHOICES] * 4)
    assert got == [float(one == letter) for one in "ABCD"]


@pytest.mark.parametrize("gold", ["B", "b", "(B)", "B.", 1, "London", " london "])
def test_multiple_choice_golds(gold: Any) -> None:
    assert multiple_choice([""] * 2, ["B", "A"], answer=[gold] * 2, choices=[CHOICES] * 2) == [1.0, 0.0]


@pytest.mark.parametrize(
    ("gold", "choices"),
    [
        ("E", CHOICES),
        (4, CHOICES),
        (-1, CHOICES),
        (True, CHOICES),
        ("", CHOICES),
        ("Madrid", CHOICES),
        ("x", ["x", "x"]),
        ("London", None),
        (["A"], None),
        ("A", []),
        ("A", "ABCD"),
    ],
)
def test_multiple_choice_golds_that_name_no_single_choice(gold: Any, choices: Any) -> None:
    with pytest.raises(ValueError, match=r"gold answer|choices"):
        multiple_choice([""], ["A"], answer=[gold], choices=[choices])


def test_multiple_choice_letters() -> None:
    assert multiple_choice([""], ["Answer: J"], answer=["J"], letters="ABCDEFGHIJ") == [1.0]
    assert multiple_choice([""], ["Answer: I think so"], answer=["I"], letters="ABCDEFGHIJ") == [0.0]
    with pytest.raises(ValueError, match="'ABD'"):
        multiple_choice([""], ["A"], answer=["A"], letters="ABD")


@pytest.mark.parametrize(
    ("gold", "completion", "right"),
    [
        ("34", "Answer: 34", True),
        (34, "so\nAnswer: $34$.", True),
        ("34.0", "Answer: \\boxed{34}", True),
        ("1234", "Answer: 1,234", True),
        ("34", "**Answer**: x = 34 dollars", True),
        ("34", "answer: 35\nAnswer: 34", True),
        ("34", "Answer: 34\nAnswer: 35", False),
        ("34", "34", False),
        ("34", "Answer: 34" + "." * 300, False),
        (r"\frac{1}{2}", r"Answer: $\dfrac12$", True),
        ("x+1", "Answer: $x + 1$", True),
        ("(3, 4)", "Answer: (3,4)", True),
        ("blue", "Answer: blue", True),
        ("blue", "Answer: a blue", True),
        ("blue", "Answer: red", False),
        ("90", r"Answer: $90^\circ$", True),
        ("34", "", False),
    ],
)
def test_dapo(gold: Any, completion: str, right: bool) -> None:
    wanted = {"score": 1.0, "acc": 1.0} if right else {"score": -1.0, "acc": 0.0}
    assert dapo([""], [completion], answer=[gold]) == [wanted]


@pytest.mark.parametrize("gold", ["", " $ ", "dollars", ["34"]])
def test_dapo_needs_a_gold_with_content(gold: Any) -> None:
    with pytest.raises(ValueError, match="gold answer"):
        dapo([""], ["Answer: 34"], answer=[gold])


def test_soft_overlong_is_equation_13() -> None:
    ids = [[0] * count for count in (0, 6, 7, 8, 10, 11, 50)]
    got = soft_overlong([""] * 7, [""] * 7, completion_ids=ids, max_length=10, cache=4)
    assert got == [0.0, 0.0, -0.25, -0.5, -1.0, -1.0, -1.0]


@pytest.mark.parametrize(
    "params", [{}, {"max_length": 4}, {"max_length": 4, "cache": 0}, {"max_length": 4, "cache": 5}]
)
def test_soft_overlong_needs_both_limits(params: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="cache"):
        soft_overlong([""], [""], completion_ids=[[]], **params)


@pytest.mark.parametrize(
    ("completion", "penalty"),
    [("", 0.0), ("a b", 0.0), ("a b c", 0.0), ("a b c a b c", -0.5), ("A a A a A a", -1.5), ("数 学 数 学", 0.0)],
)
def test_repetition_penalty(completion: str, penalty: float) -> None:
    assert repetition_penalty([""], [completion], max_penalty=-2.0) == [penalty]


def test_repetition_penalty_params() -> None:
    assert repetition_penalty([""], ["a a b"], ngram_size=1) == [pytest.approx(-1 / 3)]
    with pytest.raises(ValueError, match="ngram_size"):
        repetition_penalty([""], ["x"], ngram_size=0)
    with pytest.raises(ValueError, match="max_penalty"):
        repetition_penalty([""], ["x"], max_penalty=0.5)


@pytest.mark.parametrize(("count", "reward"), [(0, 0.0), (1, 0.5), (2, 1.0), (4, 1.0), (6, 0.5), (8, 0.0), (99, 0.0)])
def test_length(count: int, reward: float) -> None:
    bounds: dict[str, Any] = {"min_length": 2, "max_length": 4}
    assert length([""], ["ß" * count], unit="characters", **bounds) == [reward]
    assert length([""], ["ab " * count], unit="words", **bounds) == [reward]
    assert length([""], ["text"], completion_ids=[[7] * count], **bounds) == [reward]


@pytest.mark.parametrize(
    "params",
    [
        {"unit": "words"},
        {"unit": "words", "min_length": 5, "max_length": 4},
        {"unit": "words", "min_length": -1, "max_length": 4},
        {"unit": "words", "max_length": 0},
        {"unit": "lines", "max_length": 4},
        {"max_length": 4},  # tokens without completion_ids
    ],
)
def test_length_params(params: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"length|unit"):
        length([""], ["x"], **params)


def test_regex() -> None:
    assert regex([""] * 2, ["a\nb", "b"], pattern="a.b") == [1.0, 0.0]
    assert regex([""] * 2, [" ab\n", "abc"], pattern="a.", mode="fullmatch") == [1.0, 0.0]


@pytest.mark.parametrize("params", [{}, {"pattern": ""}, {"pattern": "("}, {"pattern": "a", "mode": "match"}])
def test_regex_params(params: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"params\."):
        regex([""], ["x"], **params)
    with pytest.raises(PrepareError, match=r"params\."):
        regex_module.prepare(**params)


PERSON = {"type": "object", "required": ["age"], "properties": {"age": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("completion", "valid"),
    [
        ('{"age": 3}', True),
        (' {"age": 3}\n', True),
        ('{"age": "3"}', False),
        ("[]", False),
        ('```json\n{"age": 3}\n```', True),
        ('Sure:\n```json\n{"age": "x"}\n```\nBetter:\n```json\n{"age": 3}\n```\nDone.', True),
        ('```json\n{"age": 3}\n```\nor\n```json\n{"age": "x"}\n```', False),
        ('```json\r\n{"age": 3}\r\n```\r\n', True),
        ('1. So:\n   ```json\n   {"age": 3}\n   ```', True),
        ('``` json\n{"age": 3}\n```', True),
        ('<think>{"age": "x"}</think>\n{"age": 3}', True),
        ('<think>{"age": 3}</think>', False),
        ('It is {"age": 3}', False),
        ('{"age": NaN}', False),
        ('{"age": 3', False),
        ("", False),
        ('{"age": ' + "[" * 100_000, False),
    ],
)
def test_json_schema(completion: str, valid: bool) -> None:
    assert json_schema([""], [completion], schema=PERSON) == [float(valid)]
    assert json_schema([""], [completion], schema=[json.dumps(PERSON)]) == [float(valid)]


def test_json_schema_by_row() -> None:
    assert json_schema([""] * 3, ["1", "1", "1"], schema=[{"type": "integer"}, None, False]) == [1.0, None, 0.0]
    assert json_schema([""] * 3, ["NaN", "-Infinity", "1e3"], schema=True) == [0.0, 0.0, 1.0]


@pytest.mark.parametrize("bad", ["{", "[]", {"type": "strange"}, {"minimum": "1"}])
def test_an_invalid_schema_is_an_error(bad: Any) -> None:
    with pytest.raises(ValueError, match="not a JSON Schema"):
        json_schema([""], ["1"], schema=[bad])
    with pytest.raises(PrepareError, match="not a JSON Schema"):
        json_schema_module.prepare(schema=bad)


def test_json_schema_without_a_schema_and_with_a_foreign_ref() -> None:
    with pytest.raises(ValueError, match=r"params\.schema"):
        json_schema([""], ["1"])
    with pytest.raises(ValueError, match="leads nowhere"):
        json_schema([""], ["1"], schema={"$ref": "http://127.0.0.1:9/schema.json"})
