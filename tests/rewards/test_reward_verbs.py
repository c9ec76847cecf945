"""`reward check` as a person calls it: what it says of sound functions and of the mistakes that people make."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from reward_server import server_env

from orchestrator.cli import main as orchestrate
from rewards.commands import main
from rewards.contract import spec_from_mapping

SOURCE = """
import asyncio, os, random, time
async def single(args, sample): return float(sample.response == str(sample.label))
def plain_def(args, sample): return float(sample.response == str(sample.label))
async def lengths(args, samples): return [float(len(s.response)) for s in samples]
async def one_less(args, samples): return [1.0] * (len(samples) - 1)
async def one_more(args, samples): return [1.0] * (len(samples) + 1)
async def a_dict(args, samples): return {"score": 1.0}
async def a_text(args, samples): return "1.0"
async def nothing(args, samples): return None
async def a_set(args, samples): return set(range(len(samples)))
async def a_view(args, samples): return dict(enumerate(samples)).keys()
async def scored(args, sample): return {"score": float(sample.response == str(sample.label)), "acc": True}
async def nan(args, sample): return float("nan") if "boxed" in sample.response else 1.0
async def inf(args, sample): return float("-inf") if "boxed" in sample.response else 1.0
async def some(args, sample): return None if "boxed" in sample.response else float(len(sample.response))
async def wants_gold(args, sample):
    if "gold" not in sample.metadata: raise ValueError("missing gold")
    return float(sample.response == sample.metadata["gold"])
async def strict(args, sample): return float(sample.response == sample.label)
async def of_numbers(args, sample): return float(sample.response == str(sample.label + 0))
async def blocks(args, sample): time.sleep(0.025 * (sample.index < 4)); return float(len(sample.response))
async def waits(args, sample): await asyncio.sleep(0.025 * (sample.index < 4)); return float(len(sample.response))
def trl(prompts, completions, answer, bonus=0.0, **columns):
    return [bonus + float(c == str(a)) for c, a in zip(completions, answer, strict=True)]
def align(prompts, responses, golden_responses=None):
    return [float(r == g) for r, g in zip(responses, golden_responses, strict=True)]
def open_rlhf(queries, prompts, labels):
    return {"rewards": [float(len(q)) for q in queries], "scores": [0.5] * len(queries)}
def sorts(completions, **columns): return sorted(float(len(c)) for c in completions)
def dice(completions, **columns): return [random.random() for _ in completions]
def counts(completions, seen=[], **columns):
    seen.append(1)
    return [float(len(seen))] * len(completions)
def slow(completions, **columns): time.sleep(0.15); return [float(len(c)) for c in completions]
def hangs(completions, **columns): time.sleep(30)
def rank(completions, **columns): return [float(sorted(completions, key=len).index(c)) for c in completions]
def turned(completions, answer): return [float(str(a) in c) for c, a in zip(completions, answer)][::-1]
def rotated(completions, **columns): return [float(len(c)) for c in completions][1:] + [float(len(completions[0]))]
def ranks(completions, **columns): return [float(sorted(map(len, completions)).index(len(c))) for c in completions]
def ranked_turned(completions, **columns): return ranks(completions)[::-1]
async def group_turned(args, samples): return [float(len(s.response)) for s in samples][::-1]
def best(completions, **columns): return [float(len(c) == max(map(len, completions))) for c in completions]
def blocks_of_four(completions, **columns):
    blocks = [completions[i:i + 4] for i in range(0, len(completions), 4)]
    assert all(len(block) == 4 for block in blocks)
    return [float(len(c)) / (1 + max(map(len, block))) for block in blocks for c in block]
async def wants_setting(args, sample): return args.scale * float(sample.response == str(sample.label))
def tests(completions, tests): return [float(len(t)) for t in tests]
def by_source(completions, **columns): return [float(len(s)) for s in columns["sorce"]]
def typo(completions, **columns): return [undefined for _ in completions]
def opposite(completions, answer): return [float(c != a) for c, a in zip(completions, answer)]
def constant(completions, answer): return [1.0] * len(completions)
def of_messages(completions, answer): return [float(c[-1]["content"] == str(a)) for c, a in zip(completions, answer)]
def letters(completions, answer):
    return [float("ABCD".index(a) >= 0 and a in c) if "boxed" in c else 0.0 for c, a in zip(completions, answer)]
def once(completions, seen=[], **columns):
    seen.append(1)
    if len(seen) > 2: raise OSError("no session left")
    return [float(len(c)) for c in completions]
def strange(x, y): return 1.0
"""

Check = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def check(user_file: Callable[[str], str], capsys: pytest.CaptureFixture[str]) -> Check:
    """(exit code, report) of `check FILE:name ... --json`; `data` are rows for --data."""
    path = Path(user_file(SOURCE))

    def run(name: str, *flags: str, data: list[Any] | None = None) -> tuple[int, dict[str, Any]]:
        if data is not None:
            rows = path.with_name("rows.jsonl")
            rows.write_text("".join(json.dumps(row) + "\n" for row in data))
            flags = (*flags, "--data", str(rows))
        code = main(["check", name if name.islower() and "/" in name else f"{path}:{name}", *flags, "--json"])
        return code, json.loads(capsys.readouterr().out)

    return run


def lines(report: dict[str, Any], *levels: str) -> list[tuple[str, str]]:
    return [(proof["name"], proof["message"]) for proof in report["proofs"] if proof["level"] in levels]


def proof(report: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [proof for proof in report["proofs"] if proof["name"] == name]
    return dict(found)


@pytest.mark.parametrize(
    ("name", "shape", "kind"),
    [
        ("single", "vime_sample", "async"),  # case 1
        ("plain_def", "vime_sample", "sync"),  # case 2
        ("lengths", "vime_group", "async"),  # case 3
        ("trl", "trl", "sync"),
        ("align", "align_anything", "sync"),
        ("open_rlhf", "openrlhf", "sync"),
    ],
)
def test_every_shape_is_found_and_passes(check: Check, name: str, shape: str, kind: str) -> None:
    from rewards.calling.shapes import CONVENTIONS

    code, report = check(name)
    assert (code, lines(report, "error")) == (0, [])
    assert report["summary"].startswith(f"{CONVENTIONS[shape].says}; {kind}; ")
    assert proof(report, "deterministic")["level"] == proof(report, "order")["level"] == "ok"
    functions = yaml.safe_load(report["recipe"])["reward"]["functions"]
    assert spec_from_mapping(functions[0]).name == name
    assert all(score["score"] == len(score["completion"]) for score in report["scores"]) or name != "lengths"


@pytest.mark.parametrize(
    ("name", "flags", "words"),
    [
        ("one_less", (), "returned 3 items for 4 samples, expected a list of 4"),  # case 4
        ("one_more", (), "returned 5 items for 4 samples, expected a list of 4"),
        ("a_dict", (), "returned a dict for 4 samples"),  # case 5
        ("a_text", (), "returned a str for 4 samples"),
        ("nothing", (), "returned a NoneType for 4 samples"),
        ("a_set", (), "returned a set for 4 samples"),  # case 6
        ("a_view", (), "returned a dict_keys for 4 samples"),
        ("scored", (), "no `key` is configured (it has ['score', 'acc'])"),  # case 8
        ("single", ("--key", "acc"), "returned a float, but key 'acc' is configured"),  # case 9
        ("scored", ("--key", "nope"), "a dict without the configured key 'nope' (it has ['score', 'acc'])"),
        ("nan", (), "returned NaN for sample"),  # case 10
        ("inf", (), "returned an infinite number for sample"),
    ],
)
def test_a_broken_contract_is_an_error_that_names_it(
    check: Check, name: str, flags: tuple[str, ...], words: str
) -> None:
    code, report = check(name, *flags)
    ((kind, message),) = lines(report, "error")
    assert (code, kind, words in message) == (2, "contract", True), message
    assert proof(report, "contract")["value"]
    assert report["recipe"] == ""
    assert bool(proof(report, "contract")["fix"]) == (name in ("scored", "single"))


def test_a_dict_with_its_key_and_what_it_logs(check: Check) -> None:  # case 7
    code, report = check("scored", "--key", "score", "--eval-key", "acc")
    assert (code, proof(report, "logs")["message"]) == (0, "beside the reward: acc")
    assert proof(report, "eval key")["level"] == "ok"
    assert yaml.safe_load(report["recipe"])["reward"]["functions"][0]["key"] == "score"
    code, report = check("scored", "--key", "score", "--eval-key", "nope")
    assert (code, "'nope'" in proof(report, "eval key")["message"]) == (2, True)


def test_none_is_told_with_its_policy(check: Check) -> None:  # case 10
    code, report = check("some")
    assert code == 0
    none = proof(report, "None")
    assert (none["level"], "not mine" in none["message"], "boxed" in none["sample"]) == ("warning", True, True)


def test_what_it_raises_names_row_exception_and_line(check: Check) -> None:  # case 11
    assert check("wants_gold")[0] == 0
    code, report = check("wants_gold", data=[{"prompt": "1+1", "answer": "2"}])
    raised = proof(report, "exception")
    assert (code, raised["level"]) == (2, "error")
    assert "ValueError" in raised["message"]
    assert "missing gold (" in raised["message"]
    assert "mine.py:18" in raised["message"]
    assert raised["sample"] == "row 1, completion '2'"


def test_gold_of_another_type_than_text(check: Check) -> None:
    as_number = [{"prompt": "6*7", "answer": 42}, {"prompt": "3*7", "answer": 21}]
    code, report = check("strict", data=as_number)
    gold = proof(report, "gold type")
    assert (code, gold["level"]) == (2, "error")
    assert "answer: the int 42, not the text '42'): 0 for the gold answer itself" in gold["message"]
    assert check("strict", data=[{"prompt": "6*7", "answer": "42"}])[0] == 0
    code, report = check("strict")
    assert (code, proof(report, "gold type")["level"]) == (0, "warning")
    for data in (None, as_number):
        code, report = check("single", data=data)
        assert (code, [name for name, _ in lines(report, "warning", "error")]) == (0, [])


def test_golds_that_must_be_numbers(check: Check) -> None:
    code, report = check("of_numbers")
    assert (code, proof(report, "made-up rows")["level"]) == (0, "note")
    assert "gold answers that are numbers only" in proof(report, "made-up rows")["message"]
    code, report = check("of_numbers", data=[{"prompt": "1", "answer": "2"}])
    assert (code, "TypeError" in proof(report, "exception")["message"]) == (2, True)


def test_completions_that_are_messages(check: Check) -> None:
    _, report = check("trl")
    assert "right and wrong get the same" in proof(report, "chat data")["message"]
    code, report = check("of_messages")
    assert (code, report["called"]) == (0, True)
    assert "completions that are messages only" in proof(report, "made-up rows")["message"]
    code, report = check("of_messages", data=[{"prompt": "1+1", "answer": 2}])
    assert (code, "chat data only" in proof(report, "the data")["message"]) == (0, True)
    assert not [p for p in check("align")[1]["proofs"] if p["name"] == "chat data"]


def test_right_against_wrong(check: Check) -> None:
    _, report = check("trl", "--param", "bonus=0.5")
    assert proof(report, "right > wrong")["message"].startswith("right 1.5, wrong 0.5 in the form")
    assert yaml.safe_load(report["recipe"])["reward"]["functions"][0]["params"] == {"bonus": 0.5}
    code, report = check("opposite")
    assert (code, proof(report, "right > wrong")["level"]) == (2, "error")
    code, report = check("constant")
    assert (code, {name for name, _ in lines(report, "warning")}) == (0, {"spread", "right > wrong"})
    assert proof(check("lengths")[1], "right > wrong")["level"] == "note"


def test_noise_and_order(check: Check) -> None:
    assert proof(check("dice")[1], "deterministic")["level"] == "warning"
    _, report = check("sorts")
    assert (proof(report, "deterministic")["level"], proof(report, "order")["level"]) == ("ok", "error")
    code, report = check("counts", "--granularity", "sample")
    assert (code, proof(report, "order")["level"]) == (2, "error")


@pytest.mark.parametrize("name", ["turned", "rotated", "ranked_turned", "group_turned"])
def test_rewards_that_go_to_other_samples_are_an_error(check: Check, name: str) -> None:
    code, report = check(name)
    assert (code, proof(report, "order")["level"]) == (2, "error")
    assert (
        "go to other samples" in proof(report, "order")["message"]
        or "turned round" in proof(report, "order")["message"]
    )


@pytest.mark.parametrize("name", ["ranks", "best", "blocks_of_four"])
def test_functions_may_compare_samples(check: Check, name: str) -> None:
    assert proof(check(name)[1], "order")["level"] == "ok"


def test_a_setting_that_is_missing_is_an_error(check: Check) -> None:
    code, report = check("wants_setting")
    raised = proof(report, "exception")
    assert (code, raised["fix"]) == (2, "--param NAME=VALUE here, `params` in the recipe")
    assert "args has no 'scale'" in raised["message"]
    assert "mine.py:" in raised["message"]
    assert check("wants_setting", "--param", "scale=2")[0] == 0


def test_words_of_others_cannot_write_to_the_terminal(
    user_file: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    path = user_file(r"def f(completions, **columns): raise ValueError('\ud800 \x1b[2J \x00\n  ok fake')")
    assert main(["check", f"{path}:f"]) == 0
    out = capsys.readouterr().out
    assert r"\ud800 \x1b[2J \x00" in out
    assert out.isascii()
    assert not [line for line in out.splitlines() if line.startswith("  ok fake")]
    assert "nothing was proven" in out.splitlines()[-1]
    assert main(["check", "no\x1bsuch", "--shape", "\x1b"]) == 64
    assert "\x1b" not in capsys.readouterr().err


def test_granularity_is_inferred(check: Check) -> None:
    assert yaml.safe_load(check("trl")[1]["recipe"])["reward"]["functions"][0]["granularity"] == "sample"
    _, report = check("rank")
    assert "depend on the whole batch" in proof(report, "granularity")["message"]
    assert "granularity" not in yaml.safe_load(report["recipe"])["reward"]["functions"][0]


def test_latency_against_the_limit(check: Check) -> None:
    assert proof(check("slow", "--timeout-s", "0.28")[1], "latency")["level"] == "warning"
    assert proof(check("trl")[1], "latency")["level"] == "ok"
    begun = time.monotonic()
    code, report = check("hangs", "--timeout-s", "0.3")
    assert time.monotonic() - begun < 8
    assert (code, "0.3 s" in proof(report, "time limit")["message"]) == (2, True)


def test_async_that_blocks_the_loop(check: Check) -> None:
    assert "blocks the loop" in proof(check("blocks")[1], "event loop")["message"]
    waits = proof(check("waits")[1], "event loop")
    assert (waits["level"], "lets others run" in waits["message"]) == ("ok", True)


def test_columns_that_cannot_be_made_up_are_no_error(check: Check) -> None:
    for name, words in (("tests", "column tests"), ("by_source", "KeyError")):
        code, report = check(name)
        made_up = proof(report, "made-up rows")
        assert (code, made_up["level"], report["called"]) == (0, "skipped", False)
        assert words in made_up["message"]
        assert "--data" in made_up["fix"]
    assert check("tests", data=[{"prompt": "p", "tests": ["a", "b"]}, {"prompt": "q", "tests": ["a"]}])[0] == 0
    code, report = check("tests", data=[{"prompt": "p", "test": ["a", "b"]}])
    assert (code, "did you mean test?" in proof(report, "columns")["message"]) == (2, True)
    code, report = check("typo")
    assert (code, "NameError" in proof(report, "exception")["message"]) == (2, True)


def test_columns_by_other_names(check: Check) -> None:
    data = [{"question": "1+1", "gold_text": "2"}]
    code, report = check("trl", "--prompt", "question", "--column", "answer=gold_text", data=data)
    assert (code, proof(report, "right > wrong")["message"][:16]) == (0, "right 1, wrong 0")
    assert main(["check", "accuracy", "--data", "no", "--column", "gold"]) == 64


def test_rows_of_ones_own_outrank_made_up_ones(check: Check) -> None:
    code, report = check("letters", data=[{"prompt": "p", "answer": "B"}])
    assert (code, proof(report, "exception")["level"]) == (0, "warning")
    assert {score["row"] for score in report["scores"]} == {"row 1"}
    assert check("letters")[0] == 2


def test_a_failure_at_a_later_call(check: Check) -> None:
    code, report = check("once")
    assert (code, "no session left" in proof(report, "again")["message"]) == (2, True)


def test_what_cannot_be_loaded(check: Check) -> None:
    code, report = check("strange")
    assert (code, "(x, y)" in proof(report, "import")["message"]) == (2, True)
    code, report = check("singel")
    assert (code, "did you mean single" in proof(report, "import")["message"]) == (2, True)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("{", "line 1 is not JSON"),
        ("[]", "line 1 is a list"),
        ('{"promt": "a"}', "did you mean promt"),
        ("\n", "no rows"),
    ],
)
def test_bad_rows_and_flags_are_usage(row: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(row)
    assert main(["check", "accuracy", "--data", str(path)]) == 64
    assert words in capsys.readouterr().err
    for wrong in (["--param", "x"], ["--shape", "trk"], ["--timeout-s", "0"], ["--group-size", "0"], ["--data", "no"]):
        assert main(["check", "accuracy", *wrong]) == 64
    assert main([]) == main(["check"]) == main(["prob", "x"]) == 64


def test_both_front_doors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rewards.py").write_text("raise SystemExit('shadowed')")
    argv = [sys.executable, "-P", "-m", "rewards", "check", "exact_match"]
    done = subprocess.run(argv, cwd=tmp_path, env=server_env(), text=True, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "right 1, wrong 0" in done.stdout
    assert "self-test" in done.stdout
    assert "for a recipe:" in done.stdout
    assert orchestrate(["reward", "check", "no_such_function"]) == 2
    assert "not a built-in" in capsys.readouterr().out
    assert orchestrate(["reward", "check"]) == 64
    assert orchestrate(["reward", "--help"]) == 0
    assert orchestrate(["--help"]) == 0
    assert "orchestrate reward probe URL" in capsys.readouterr().out


def test_rows_without_a_known_gold_column_are_told_of(check: Check) -> None:
    data = [{"prompt": "1+1?", "reply": "2"}] * 2
    code, report = check("single", data=data)
    told = proof(report, "gold")
    assert (code, told["level"]) == (0, "warning")
    assert "no column is known to hold the gold answers (reply)" in told["message"]
    code, report = check("single", "--column", "answer=reply", data=data)
    assert (code, [p for p in report["proofs"] if p["name"] == "gold"]) == (0, [])
