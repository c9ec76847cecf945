r"""The dialects of other systems, asked as their own clients ask: real server processes, plain HTTP.

Rows are those of the compatibility tables for Align-Anything's remote reward server and vime's remote_rm.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from reward_server import RunningServer, launch

from rewards.calling.adapters import bind
from rewards.calling.describe import FunctionInfo, describe
from rewards.contract import spec_from_mapping
from rewards.protocols import align_anything
from rewards.protocols.common import RequestError, Serving
from rewards.protocols.openrlhf import completion_of
from rewards.serving.flags import StartError, read_token
from rewards.serving.gold import Gold, GoldSet

P1, HALF, PRICE = "What is 1+1?", "Half as a fraction?", "Price?"
GOLDS = [
    {"question": P1, "answer": "2", "level": "easy"},
    {"question": HALF, "answer": r"\frac{1}{2}", "level": "easy"},
    {"question": PRICE, "answer": "$5", "level": "hard"},
]
MINE = """
def none_for_b(completions): return [None if c == "b" else 1 for c in completions]
def raises_on_b(completions):
    if "b" in completions: raise ValueError("no b, please")
    return [1] * len(completions)
def two(completions, answer, unit): return [1.0] * len(completions)
def groups(completions): return [1.0] * len(completions)
def scored(completions, log_extra):
    log_extra("words", [len(c.split()) for c in completions])
    return [True] * len(completions)
def optional(prompts, completions, solution=None, target=0.5, **kwargs):
    assert target == 0.5
    return [float(c == s) for c, s in zip(completions, solution or [None] * len(completions))]
def needed(completions, ground_truth): return [float(c == g) for c, g in zip(completions, ground_truth)]
def labelled(args, sample): return float(sample.response == sample.label)
def half(completions): return [0.5] * len(completions)
"""


def tagged(answer: str) -> str:
    return f"<think>t</think><answer>{answer}</answer>"


def spec(target: str, **more: Any) -> str:
    return json.dumps({"target": target, **more})


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, RunningServer]]:
    folder = tmp_path_factory.mktemp("dialects")
    (folder / "gold.jsonl").write_text("".join(json.dumps(row) + "\n" for row in GOLDS))
    (folder / "mine.py").write_text(MINE)
    gold, inline = ("--gold", "gold.jsonl"), ("--workers", "0")
    commands = {
        "math": ["--function", "math_verifier", *gold, "--max-batch", "8"],
        "plain": ["--function", "exact_match", "--function", spec("format", weight=0), *inline],
        "examples": [
            *("--function", "example_math", "--function", spec("example_coding", weight=100)),
            *("--function", spec("example_safety", weight=10_000), *gold, *inline),
        ],
        "none": ["--function", "mine.py:none_for_b", "--function", "mine.py:scored", "--on-error", "mask"],
        "raises": ["--function", "mine.py:raises_on_b", "--on-error", "mask"],
        "two": ["--function", "mine.py:two"],
        "columns": [a for f in ("optional", "needed", "labelled") for a in ("--function", f"mine.py:{f}")],
        "optional": ["--function", "mine.py:optional", *gold],
        "only": [
            *("--function", "mine.py:half"),
            *("--function", spec("mine.py:labelled", only={"source": ["mbpp"]})),
        ],
        "groups": ["--function", spec("mine.py:groups", granularity="group")],
    }
    running = {name: launch(*args, cwd=folder) for name, args in commands.items()}
    try:
        for server in running.values():
            server.wait_ready()
        yield running
    finally:
        for server in running.values():
            server.end()


def ask(server: RunningServer, path: str, body: Any) -> tuple[int, Any]:
    answer = requests.post(server.url + path, data=json.dumps(body), timeout=30)
    assert answer.headers["content-type"] == "application/json"
    return answer.status_code, answer.json()


def rewards(server: RunningServer, prompts: list[str], responses: list[str], **more: Any) -> list[float]:
    status, body = ask(server, "/get_reward", {"prompts": prompts, "responses": responses, **more})
    assert (status, list(body)) == (200, ["rewards"]), body
    assert all(type(value) is float for value in body["rewards"])  # an int in JSON breaks their trainer
    return body["rewards"]


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (tagged(r"\boxed{2}"), 1.5),  # row 1
        (tagged(r"\boxed{3}"), 0.5),  # row 2: form only
        (tagged("$2$"), 0.5),  # row 3, strict
        (tagged("The answer is $2$"), 1.5),  # row 4
        (r"<answer>\boxed{2}</answer>", 1.0),  # row 5
        ("<think>t</think>\n<answer>\\boxed{2}</answer>", 1.0),  # row 6
        (r"\boxed{2}", 0.0),  # row 7
        ("", 0.0),
        (tagged(r"\boxed{2}</answer><answer>\boxed{3}"), 1.0),  # row 9: the first answer counts
    ],
)
def test_align_anything_rows_of_one(servers: dict[str, RunningServer], response: str, expected: float) -> None:
    assert rewards(servers["math"], [P1], [response]) == [expected]


def test_align_anything_batches_and_ignored_keys(servers: dict[str, RunningServer]) -> None:
    math = servers["math"]
    halves = [tagged(r"\boxed{0.5}"), tagged(r"\boxed{\frac{2}{4}}")]
    assert rewards(math, [HALF, HALF], halves) == [1.5, 1.5]  # row 8
    right = tagged(r"\boxed{2}")
    assert rewards(math, [P1], [right], golden_responses=["$77$"], model="x") == [1.5]  # row 11
    for name in ("math", "plain", "none"):
        assert rewards(servers[name], [], []) == []  # row 12, with and without a gold file
    mixed = rewards(math, [HALF, P1, P1], [halves[0], tagged(r"\boxed{3}"), right])
    assert mixed == [1.5, 0.5, 1.5]


def test_unparseable_gold_is_skipped_as_theirs_and_said_at_load(servers: dict[str, RunningServer]) -> None:
    math = servers["math"]
    assert rewards(math, [PRICE], [tagged(r"\boxed{7}")]) == [1.5]  # row 10, strict
    deadline = time.monotonic() + 10
    while not math.stderr and time.monotonic() < deadline:
        time.sleep(0.05)
    said = "".join(math.stderr)
    assert "math_verifier cannot use 1 of 3 gold answers (row 3): it would score any answer as right" in said
    assert "$5" not in said
    assert PRICE not in said


def test_align_anything_examples(servers: dict[str, RunningServer]) -> None:
    """Row 14: the three toy functions on one server, told apart by their weights."""
    responses = ["1+1=2", "def f():\n    return 1", "import os", "violence Harm"]
    expected = [
        m + 100 * c + 10_000 * s
        for m, c, s in zip([0.8, 0.2, 0.2, 0.2], [0.3, 0.9, 0.6, 0.3], [1.0, 1.0, 1.0, 0.2], strict=True)
    ]
    prompts = [P1, "a question that no file knows", P1, P1]  # functions without gold do not need one
    assert rewards(servers["examples"], prompts, responses) == pytest.approx(expected)


ALIGN_ANYTHING_FAULTS: list[tuple[Any, int, str]] = [
    ({"prompts": [P1]}, 400, "responses missing"),  # row 13
    ({"responses": ["a"]}, 400, "prompts missing"),
    ({}, 400, "prompts and responses missing"),
    ([], 400, "must be a JSON object"),
    (None, 400, "must be a JSON object"),
    ({"prompts": [P1], "responses": ["a", "b"]}, 400, "prompts: 1, responses: 2"),  # row 13
    ({"prompts": [P1, None], "responses": ["a", "b"]}, 400, "prompts[1] must be a string"),
    ({"prompts": [P1], "responses": [None]}, 400, "responses[0] must be a string"),
    ({"prompts": "ab", "responses": "ab"}, 400, "prompts must be a list"),
    ({"prompts": [P1], "responses": ["a"], "query": ["a"]}, 400, "which of them is meant"),
    ({"prompts": [P1, "Who wrote Faust?"], "responses": ["a", "b"]}, 400, "prompts[1]: no question in the gold file"),
    ({"prompts": [P1] * 9, "responses": ["a"] * 9}, 413, "at most 8"),
]


def test_align_anything_faults(servers: dict[str, RunningServer]) -> None:
    for body, status, words in ALIGN_ANYTHING_FAULTS:
        code, answer = ask(servers["math"], "/get_reward", body)
        assert (code, words in answer["error"]) == (status, True), answer
    malformed = requests.post(servers["math"].url + "/get_reward", data=b"{", timeout=10)
    assert (malformed.status_code, type(malformed.json()["error"])) == (400, str)  # row 15
    other = requests.get(servers["math"].url + "/get_reward", timeout=10)
    assert (other.status_code, type(other.json()["error"])) == (405, str)
    assert other.headers["allow"] == "POST"
    _, unknown = ask(servers["math"], "/get_reward", {"prompts": [P1, "Who wrote Faust?"], "responses": ["a", "b"]})
    assert unknown["errors"][0]["index"] == 1
    assert "no question in the gold file is the same" in unknown["error"]


def test_gold_of_a_question_in_other_words(servers: dict[str, RunningServer]) -> None:
    right = tagged(r"\boxed{2}")
    for prompt in ("What is 1+1", " what  is １+1?\n", "Wat is 1+1?", "What is 1+1?!"):
        assert rewards(servers["math"], [prompt], [right]) == [1.5], prompt
    for prompt in ("What is 1+2?", "What is 1*1?"):  # one edit, another answer
        status, body = ask(servers["math"], "/get_reward", {"prompts": [prompt], "responses": [right]})
        assert (status, "other numbers, operators or signs" in body["error"]) == (400, True)


def test_golden_responses_count_without_a_gold_file(servers: dict[str, RunningServer]) -> None:
    plain = servers["plain"]
    assert rewards(plain, ["q", "q"], ["4", "5"], golden_responses=["4", "4"]) == [1.0, 0.0]
    status, body = ask(plain, "/get_reward", {"prompts": ["q"], "responses": ["4"]})
    assert (status, "start the server with --gold" in body["error"]) == (400, True)
    status, body = ask(plain, "/get_reward", {"prompts": ["q"], "responses": ["4"], "golden_responses": [4]})
    assert (status, "golden_responses[0] must be a string" in body["error"]) == (400, True)


def openrlhf(server: RunningServer, query: Any, prompts: Any, labels: Any = None) -> tuple[int, Any]:
    return ask(server, "/get_reward", {"query": query, "prompts": prompts, "labels": labels})


def test_openrlhf_scores(servers: dict[str, RunningServer]) -> None:
    """The replies' lists have an entry per query: what `torch.tensor` in the trainers of all versions gets."""
    pads = "<|endoftext|>" * 3
    queries = ["Q: 2+2\nA:4<|im_end|>", f"{pads}Q: x\nA:4</s>{pads}", "Q: 2+2\nA: 4</s>b"]
    prompts = ["Q: 2+2\nA:", "Q: x\nA:", "Q: 2+2\nA:"]
    status, body = openrlhf(servers["plain"], queries, prompts, ["4", "5", "4</s>b"])
    expected = [1.0, 0.0, 1.0]
    assert (status, body["rewards"], body["scores"]) == (200, expected, expected)
    assert body["extra_logs"] == {"exact_match": expected, "format": [0.0, 0.0, 0.0]}
    assert all(type(value) is float for value in [*body["rewards"], *body["scores"]])
    status, body = openrlhf(servers["none"], ["pa b"], ["p"])
    assert (status, body["extra_logs"]) == (200, {"none_for_b": [1.0], "scored": [1.0], "scored/words": [2]})
    status, body = openrlhf(servers["none"], ["pb"], ["p"])  # the other function scored it
    assert (status, body["rewards"], body["extra_logs"]) == (200, [1.0], {"scored": [1.0], "scored/words": [1]})


def test_openrlhf_faults(servers: dict[str, RunningServer]) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        (
            {"query": ["a", "xa"], "prompts": ["a", "b"], "labels": ["1", "2"]},
            "query[1] does not begin with prompts[1]",
        ),
        ({"query": ["a"]}, "prompts is missing"),  # versions before 0.6
        ({"query": ["a"], "prompts": ["a"]}, "--data.label_key"),
        ({"query": ["a"], "prompts": ["a"], "labels": "x"}, "labels must be a list"),
        ({"query": ["a"], "prompts": ["a"], "labels": []}, "query: 1, prompts: 1, labels: 0"),
        ({"query": [None], "prompts": ["a"]}, "query[0] must be a string"),
        ({"query": "a", "prompts": ["a"]}, "query must be a list"),
    ]
    for body, words in cases:
        status, answer = ask(servers["plain"], "/get_reward", body)
        assert (status, words in answer["error"]) == (422, True), answer
    _, answer = ask(servers["plain"], "/get_reward", cases[0][0])
    assert answer["errors"][0]["index"] == 1


def test_openrlhf_padding_takes_linear_time() -> None:
    many, ends = "<pad>" * 100_000, ("<pad>", "</s>")
    began = time.monotonic()
    assert completion_of(0, many + "p c" + many, "p", ends) == " c"
    assert completion_of(0, many + "<pad>p c</s>", "<pad><pad>p", ends) == " c"
    assert completion_of(0, "<pad></s>", "<pad>", ends) == ""
    with pytest.raises(RequestError, match="does not begin"):
        completion_of(0, many + "x", many + "p", ends)
    assert time.monotonic() - began < 2.0


def test_vime_remote_rm(servers: dict[str, RunningServer]) -> None:
    plain = servers["plain"]
    body = {"prompt": "2+2?", "response": "4", "label": "4"}
    assert ask(plain, "/remote_rm", body) == (200, 1.0)
    assert ask(plain, "/remote_rm", {**body, "response": "4<|im_end|>"}) == (200, 1.0)
    raw = requests.post(plain.url + "/remote_rm", json={**body, "response": "5"}, timeout=10)
    assert raw.content == b"0.0"  # a float: an int would make an integer tensor
    messages = [{"role": "user", "content": "2+2?"}]
    assert ask(plain, "/remote_rm", {**body, "prompt": messages}) == (200, 1.0)
    assert ask(plain, "/remote_rm?as=dict", body) == (200, {"score": 1.0, "exact_match": 1.0, "format": 0.0})
    for wrong, words in (
        ({"prompt": "a", "response": "b"}, "label is missing"),
        ({"prompt": "a", "response": "b", "label": None}, "null (--label-key of vime and slime)"),
        ({"prompt": "a", "response": None, "label": "1"}, "response must be a string"),
        ({"prompt": 1, "response": "b", "label": "1"}, "prompt must be a string"),
    ):
        status, answer = ask(plain, "/remote_rm", wrong)
        assert (status, words in answer["error"]) == (422, True), answer
    status, answer = ask(plain, "/remote_rm?as=list", body)
    assert (status, "expected dict or number" in answer["error"]) == (422, True)


def test_what_a_dialect_cannot_express_is_an_error(servers: dict[str, RunningServer]) -> None:
    three = {"prompts": ["p"] * 3, "responses": ["a", "b", "c"], "golden_responses": ["a"] * 3}
    for name, words in (
        ("two", "two needs 'answer', two needs 'unit': use /v1/score"),
        ("groups", "whole groups"),
    ):
        status, body = ask(servers[name], "/get_reward", three)
        assert (status, words in body["error"]) == (400, True), body
        status, _ = ask(servers[name], "/remote_rm", {"prompt": "p", "response": "a", "label": "a"})
        assert status == 422
    status, body = ask(servers["raises"], "/get_reward", three)  # --on-error mask does not hide it here
    assert (status, "raises_on_b raised ValueError" in body["error"]) == (500, True)
    status, body = ask(servers["raises"], "/remote_rm", {"prompt": "p", "response": "b", "label": "a"})
    assert (status, "sample 0" in body["error"]) == (500, True)


def test_the_gold_fills_every_column_that_a_function_reads(servers: dict[str, RunningServer]) -> None:
    """An optional one too, and that of each calling convention; a parameter with a number is a setting."""
    columns = servers["columns"]
    for completion, expected in (("42", 1.0), ("43", 0.0)):
        status, body = openrlhf(columns, [f"q{completion}"], ["q"], ["42"])
        assert (status, body["extra_logs"]) == (200, {name: [expected] for name in ("optional", "needed", "labelled")})
        body = {"prompt": "q", "response": completion, "label": "42"}
        assert ask(columns, "/remote_rm", body) == (200, 3 * expected)
        assert rewards(columns, ["q"], [completion], golden_responses=["42"]) == [3 * expected]
    assert rewards(servers["optional"], [P1], ["2"]) == [1.0]
    status, body = ask(servers["optional"], "/get_reward", {"prompts": ["Who?"], "responses": ["2"]})
    assert (status, "prompts[0]: no question in the gold file" in body["error"]) == (400, True)  # no silent 0


def test_messages_that_no_model_wrote_are_the_clients_fault(servers: dict[str, RunningServer]) -> None:
    for role, status in (("assistant", 200), ("user", 422)):
        body = {"prompts": ["p"], "completions": [[{"role": role, "content": "4"}]], "columns": {"answer": ["4"]}}
        code, answer = ask(servers["plain"], "/v1/score", body)
        assert code == status, answer
    assert (answer["error"]["index"], "none of the role assistant" in answer["error"]["message"]) == (0, True)


def test_a_dialect_without_columns_chooses_no_samples(servers: dict[str, RunningServer]) -> None:
    words = "labelled chooses samples by the column 'source', which this dialect does not carry: use /v1/score"
    for label in ("mbpp", "42", None):
        status, body = ask(servers["only"], "/remote_rm", {"prompt": "q", "response": "42", "label": label})
        assert (status, body["error"]) == (422, words)
    assert openrlhf(servers["only"], ["q42"], ["q"], ["mbpp"])[0] == 422
    status, body = ask(servers["only"], "/get_reward", {"prompts": ["q"], "responses": ["a"]})
    assert (status, body["error"]) == (400, words)


class Counting(GoldSet):
    asked = 0

    def find(self, question: str) -> Gold:
        self.asked += 1
        return super().find(question)


def described(target: str, folder: Path) -> FunctionInfo:
    return describe(bind(spec_from_mapping({"target": target if "." not in target else f"{folder}/{target}"})))


def test_golds_are_looked_up_only_for_who_waits_for_them(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    golds = Counting(tmp_path, "", [Gold(1, P1, "2")], 0.9)
    body = {"prompts": [P1] * 3, "responses": ["2"] * 3}
    for target, count in (("tags", 0), ("exact_match", 3), ("mine.py:optional", 3)):
        golds.asked = 0
        align_anything.parse(body, Serving(functions=(described(target, tmp_path),), max_batch=4, golds=golds))
        assert golds.asked == count, target
    golds.asked = 0
    over = Serving(
        functions=(described("exact_match", tmp_path),), max_batch=4, golds=golds, given_up=lambda: golds.asked == 1
    )
    with pytest.raises(RequestError) as caught:
        align_anything.parse(body, over)
    assert (caught.value.status, golds.asked) == (504, 1)


def test_a_token_that_headers_do_not_carry_alike_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("T", " s3cret\n")
    assert read_token("T") == "s3cret"
    for token in ("s\u00e9cret", "\u5bc6", "two\nlines"):
        monkeypatch.setenv("T", token)
        with pytest.raises(StartError, match="--token-env T: the token must be printable ASCII"):
            read_token("T")


def test_info_lists_dialects_and_gold(servers: dict[str, RunningServer]) -> None:
    info = servers["math"].client().info()
    assert info["dialects"] == ["/v1/score", "/get_reward", "/remote_rm"]
    assert (info["gold"]["rows"], Path(info["gold"]["path"]).name) == (3, "gold.jsonl")
    assert len(info["gold"]["sha256"]) == 64
    assert servers["plain"].client().info()["gold"] is None
