"""`orchestrate check --deep` as a whole: what is asked, how often, what comes of it, and what it leaves on the disk."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli import main
from orchestrator.compose import Composer
from orchestrator.deep import asking
from orchestrator.deep.answers import Answers, CountedPrompts, TriedArguments
from orchestrator.deep.asking import learn
from orchestrator.deep.case import DeepCase
from orchestrator.deep.check import deep_check
from orchestrator.deep.children import Child
from orchestrator.deep.rules import deep_findings
from orchestrator.deep.trials import trial_of
from orchestrator.exits import FINDINGS, OK, USAGE
from orchestrator.findings import Finding
from orchestrator.jobs import CheckedJob, check_job, checked_jobs
from rewards.checking.trial import Issue

EXPERIMENT = "+experiment=grpo_math"
FUNCTIONS = "tests/deep/functions.py"


@pytest.fixture(scope="module")
def composer() -> Composer:
    return Composer()


def job_of(composer: Composer, *overrides: str) -> CheckedJob:
    return check_job(composer, [EXPERIMENT, *overrides])


def judged(job: CheckedJob, **answers: Any) -> list[Finding]:
    return deep_findings(
        DeepCase(run=job.run, facts=job.facts, offline=tuple(job.findings), answers=Answers(**answers))
    )


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Child]:
    """The children that would be started; each question is answered with nothing to report."""
    seen: list[Child] = []

    def ask(children: Sequence[Child], deadline_s: float) -> list[Any]:
        seen.extend(children)
        return [[_nothing(question) for question in child.request] for child in children]

    monkeypatch.setattr(asking, "ask", ask)
    return seen


def _nothing(question: Any) -> Any:
    if isinstance(question, dict):  # a trial
        return []
    return {"arguments": {"refusal": None, "needs_gpu": False}, "prompts": {"train": {}, "heldout": {}}}[question[0]]


def kinds(child: Child) -> list[str]:
    return [question[0] if isinstance(question, list) else "rewards" for question in child.request]


def test_a_sweep_starts_one_child_per_distinct_question(composer: Composer, asked: list[Child]) -> None:
    rates = [[EXPERIMENT, f"trainer.args.learning_rate={rate}"] for rate in ("1e-4", "2e-4", "3e-4", "3e-4")]
    answers = learn(checked_jobs(composer, rates))
    assert [kinds(child) for child in asked] == [["arguments", "prompts", "arguments", "arguments"], ["rewards"]]
    assert all(answer.arguments == TriedArguments(refusal=None, needs_gpu=False) for answer in answers)


def test_what_differs_is_asked_separately(composer: Composer, asked: list[Child]) -> None:
    jobs = [
        [EXPERIMENT, "limits.generations=4"],
        [EXPERIMENT, "limits.generations=8"],
        [EXPERIMENT, "trainer.env={A: b}"],
        [EXPERIMENT, "reward.env={A: b}", "data.seed=3"],
    ]
    learn(checked_jobs(composer, jobs))
    rehearsals = [child for child in asked if "rewards" not in kinds(child)]
    assert [kinds(child).count("prompts") for child in rehearsals] == [2, 1]
    assert [child.env.get("A") for child in rehearsals] == [None, "b"]
    assert [child.request[0]["group_size"] for child in asked if "rewards" in kinds(child)] == [4, 8, 8]


@pytest.mark.parametrize(
    ("overrides", "left"),
    [
        (("data=jsonl", "data.path=no_such_file.jsonl"), {"arguments"}),
        (("model=path", "model.name=/no/such/model"), {"arguments", "rewards"}),
        (("trainer=command", "trainer.argv=[true]"), {"prompts", "rewards"}),
        (("trainer.kind=ppo",), {"prompts", "rewards"}),
        (("reward.functions.0.target=no_such_file.py:score",), {"arguments", "prompts"}),
        (("reward=external", "reward.url=http://127.0.0.1:1"), {"arguments", "prompts"}),
    ],
)
def test_what_an_offline_rule_has_settled_is_not_asked(
    composer: Composer, asked: list[Child], overrides: tuple[str, ...], left: set[str]
) -> None:
    learn([job_of(composer, *overrides)])
    assert {kind for child in asked for kind in kinds(child)} == left


def test_secrets_and_rendezvous_do_not_reach_the_children(
    composer: Composer, asked: list[Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REWARD_TOKEN", "x")
    monkeypatch.setenv("WORLD_SIZE", "2")
    learn([job_of(composer, "reward.token_env=REWARD_TOKEN", "reward.python=/usr/bin/env", "reward.env={B: c}")])
    rehearsal, scorer = asked
    assert "WORLD_SIZE" not in rehearsal.env
    assert "REWARD_TOKEN" not in scorer.env
    assert (scorer.argv[0], scorer.env["B"]) == ("/usr/bin/env", "c")


def test_rows_are_chosen_for_what_they_show(composer: Composer, tmp_path: Path) -> None:
    rows = [{"prompt": f"{n}+1=", "answer": str(n), "source": "sums"} for n in range(10)]
    rows[6]["source"], rows[8]["answer"] = "words", None
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    functions = "[{name: a, target: accuracy, only: {source: [sums]}}, {name: b, target: format}]"
    job = job_of(
        composer,
        "data=jsonl",
        f"data.path={file}",
        "data.rows=null",
        "evaluation.rows=0",
        f"reward.functions={functions}",
    )
    trial = trial_of(job.run, job.facts)
    assert trial is not None
    assert [row.label for row in trial.rows] == [f"training row {n}" for n in (0, 1, 2, 6, 8)]
    assert trial.specs[0].only == {"source": ["sums"]}
    assert trial.group_size == 8


def test_an_argument_that_an_offline_rule_has_named_is_not_told_twice(composer: Composer) -> None:
    refused = TriedArguments(
        refusal="generation_batch_size (128) must be divisible by num_generations (7).", needs_gpu=False
    )
    assert judged(job_of(composer, "trainer.args.num_generations=7"), arguments=refused) == []
    (finding,) = judged(job_of(composer), arguments=refused)
    assert finding.code == "CFG101"
    assert finding.values == {"trainer.args.num_generations": 8}


def test_want_of_a_gpu_is_an_error_only_where_the_recipe_is_for_this_machine(composer: Composer) -> None:
    refused = TriedArguments(refusal="Your setup doesn't support bf16/gpu.", needs_gpu=True)
    (here,) = judged(job_of(composer, "trainer.args.bf16=true"), arguments=refused)
    (elsewhere,) = judged(job_of(composer, "trainer.args.bf16=true", "hardware.gpus=4"), arguments=refused)
    assert (here.severity, elsewhere.severity) == ("error", "skipped")
    assert here.values == {"trainer.args.bf16": True}


@pytest.mark.parametrize(
    ("override", "kind", "severity"),
    [
        ("seed=0", "exception", "error"),
        ("reward.on_error=mask", "exception", "warning"),
        ("reward.judge.url=http://127.0.0.1:9", "exception", "warning"),
        ("seed=0", "timeout", "error"),
        ("reward.timeout_s=600", "timeout", "warning"),
        ("reward.on_error=mask", "contract", "error"),
        ("reward.on_error=mask", "crash", "error"),
        ("seed=0", "unscored", "warning"),
    ],
)
def test_how_bad_an_issue_is(composer: Composer, override: str, kind: Any, severity: str) -> None:
    issue = Issue(kind=kind, function="accuracy", message="m", sample="s", value="v")
    (finding,) = judged(job_of(composer, override), rewards=(issue,))
    assert finding.severity == severity
    assert finding.values["reward.functions.0.target"] == "accuracy"
    assert (finding.values["sample"], finding.values["returned"]) == ("s", "v")


def test_a_missing_column_that_rule_rwd004_tells_is_not_told_twice(composer: Composer) -> None:
    issue = Issue(kind="input", function="accuracy", message="accuracy needs the column 'answer'")
    assert judged(job_of(composer), rewards=(issue,)) == []
    unreadable = job_of(composer, "reward.functions.0.target=rewards.scoring:asyncio")
    assert [f.code for f in judged(unreadable, rewards=(issue,))] == ["RWD103"]


@pytest.mark.parametrize(
    ("override", "limit"),
    [("limits.prompt_length=16", 0), ("limits.prompt_length=9", 3), ("generation.max_model_len=18", 2)],
)
def test_held_out_prompts_against_both_limits(composer: Composer, override: str, limit: int) -> None:
    counted = CountedPrompts(train={4: 10}, heldout={4: 5, 10: 1, 11: 2})
    found = judged(job_of(composer, override), prompts=counted)
    assert [finding.problem.split()[0] for finding in found] == ([str(limit)] if limit else [])


def test_counted_prompts_reach_the_length_rules_and_stay(
    composer: Composer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert "LEN006" not in {f.code for f in deep_check(composer, [[EXPERIMENT, "limits.prompt_length=8"]])[0].findings}
    (kept,) = tmp_path.rglob("*.json")
    assert sum(json.loads(kept.read_text()).values()) == 3200
    (finding,) = [f for f in job_of(composer, "limits.prompt_length=7").findings if f.code == "LEN006"]
    assert "1400 of 3200" in finding.problem


def test_a_cache_that_cannot_be_written_is_told(
    composer: Composer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "orchestrate").write_text("a file in the place of the folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    job = deep_check(composer, [[EXPERIMENT, "reward.functions=[]"]])[0]
    assert [(f.code, f.severity) for f in job.findings if f.code == "ORD101"] == [("ORD101", "skipped")]


def test_three_functions_each_of_them_is_called(capsys: pytest.CaptureFixture[str]) -> None:  # B75
    functions = ", ".join(
        f'{{name: {name}, target: "{FUNCTIONS}:{name}"}}' for name in ("length", "one_for_all", "nothing")
    )
    code = main(["check", "--deep", "--json", EXPERIMENT, f"reward.functions=[{functions}]", "limits.generations=4"])
    found = json.loads(capsys.readouterr().out)["findings"]
    assert code == FINDINGS
    (finding,) = [f for f in found if f["code"] == "RWD102"]
    assert "one_for_all returned 1 items for 4 samples, expected a list of 4" in finding["problem"]
    weights = ["trainer.args.reward_weights=[1.0]", f"reward.functions=[{functions}]"]
    assert main(["check", EXPERIMENT, *weights]) == FINDINGS
    assert "[1.0]" in capsys.readouterr().out


def test_the_shipped_recipe_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--deep", EXPERIMENT]) == OK
    assert "ok" in capsys.readouterr().out


@pytest.mark.parametrize("argv", [["plan", "--deep", EXPERIMENT], ["--deep", EXPERIMENT], ["rules", "--deep"]])
def test_deep_goes_with_check_only(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == USAGE
    assert "--deep goes with the verb check" in capsys.readouterr().err
