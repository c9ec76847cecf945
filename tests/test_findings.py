"""What a check says, to people and machines alike: ignored findings, the JSON of docs/findings.md, no secrets."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli import main
from orchestrator.compose import Composer
from orchestrator.findings import Finding, has_errors, marked, stops_a_run
from orchestrator.jobs import check_job
from orchestrator.redact import HIDDEN, is_secret, shown_override, without_secrets
from orchestrator.render.findings import as_json

EXPERIMENT = "+experiment=grpo_math"
DOCS = Path(__file__).resolve().parents[1] / "docs" / "findings.md"


def checked(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, JSON and text of the same check."""
    code = main(["check", EXPERIMENT, *words, "--json"])
    document = json.loads(capsys.readouterr().out)
    assert main(["check", EXPERIMENT, *words]) == code == document["exit_code"]
    return code, document, capsys.readouterr().out


def test_an_ignored_finding_is_listed_with_its_reason_and_does_not_count(capsys: pytest.CaptureFixture[str]) -> None:
    code, document, text = checked(capsys, "limits.generations=7", "ignore.NUM001=only to look at it")
    assert (code, document["ok"], document["jobs"][0]["starts"]) == (0, True, True)
    (finding,) = document["findings"]
    assert (finding["severity"], finding["ignored"], finding["ignorable"]) == ("error", "only to look at it", True)
    assert document["counts"] == {"error": 0, "warning": 0, "note": 0, "skipped": 0, "ignored": 1}
    assert "ignored[NUM001]" in text
    assert "reason: only to look at it" in text
    assert "ok: the parts agree (1 ignored)" in text


def test_an_empty_reason_ignores_nothing() -> None:
    finding = Finding(code="NUM001", problem="p", why="w", fix="f")
    assert marked(finding, {"NUM001": "  "}) == finding == marked(finding, {"NUM002": "reason"})


@pytest.mark.parametrize(
    ("code", "override"),
    [
        ("CFG001", "generaton.port=1"),
        ("CFG001", "+trainer.args.betta=1"),
        ("CFG002", "limits.generations=many"),
        ("CFG003", "generation.model=${nothing}"),
        ("CFG004", "model.dtype=float8"),
    ],
)
def test_a_recipe_that_does_not_fit_the_schema_cannot_be_ignored(
    code: str, override: str, capsys: pytest.CaptureFixture[str]
) -> None:
    exit_code, document, text = checked(capsys, override, f"ignore.{code}=I know better")
    assert exit_code == 2
    finding = next(finding for finding in document["findings"] if finding["code"] == code)
    assert (finding["ignored"], finding["ignorable"]) == (None, False)
    assert f"ignore.{code} does not apply" in text


def test_words_of_a_library_can_be_ignored_and_what_cannot_start_cannot(capsys: pytest.CaptureFixture[str]) -> None:
    assert checked(capsys, "trainer.args.loss_type=newer", "ignore.CFG004=of a newer TRL")[0] == 0
    job = check_job(Composer(), [EXPERIMENT, "launcher=torchrun", "ignore.ORD003=I will start it"])
    (finding,) = [finding for finding in job.findings if finding.code == "ORD003"]
    assert finding.ignored is None
    assert "ignore.ORD003 does not apply" in finding.why
    assert stops_a_run([finding])
    assert not has_errors([finding])


def test_a_run_starts_on_what_the_recipe_ignores_and_not_on_the_rest() -> None:
    finding = Finding(code="NUM001", problem="p", why="w", fix="f")
    assert stops_a_run([finding])
    assert not stops_a_run([marked(finding, {"NUM001": "reason"})])


def test_the_documented_example_is_the_real_output(capsys: pytest.CaptureFixture[str]) -> None:
    page = DOCS.read_text(encoding="utf-8")
    command = re.search(r"^    \$ orchestrate (.+ --json)$", page, re.MULTILINE)
    example = re.search(r"^```json\n(.+?)^```$", page, re.MULTILINE | re.DOTALL)
    assert command
    assert example
    assert main(shlex.split(command[1])) == 2
    assert capsys.readouterr().out == example[1]


def test_every_field_is_documented(capsys: pytest.CaptureFixture[str]) -> None:
    _, document, _ = checked(capsys, "limits.generations=7")
    page = DOCS.read_text(encoding="utf-8")
    # "`findings[].code`, `.name`" documents both.
    named = {part for cell in re.findall(r"^\| (`.+?`) \|", page, re.MULTILINE) for part in re.findall(r"[\w]+", cell)}
    fields = {*document, *document["jobs"][0], *document["findings"][0]}
    assert fields <= named


def test_json_has_neither_infinities_nor_objects_of_ours() -> None:
    job = check_job(Composer(), [EXPERIMENT, "trainer.args.beta=inf", "trainer.args.learning_rate=nan"])
    assert json.loads(json.dumps(as_json([job]), allow_nan=False))["findings"][0]["values"]


def test_a_recipe_that_does_not_compose_is_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "+experiment=nope", "--json"]) == 2
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert (document["ok"], document["jobs"], document["findings"]) == (False, [], [])
    assert "grpo_math" in document["error"]
    assert "grpo_math" in printed.err


SECRETS = (
    "trainer.env.HF_TOKEN=hf_sesame",
    "trainer.evn.WANDB_API_KEY=wandb_sesame",
    "trainer.args.hub_token=[sesame]",
    "trainer.args.hub_tokn=hf_sesamesesamesesame",
    "+reward.env={MY_PASSWORD: pw_sesame, OTHER: [1]}",
    "reward.url=http://user:sesame@127.0.0.1:9000",
)


@pytest.mark.parametrize("secret", SECRETS)
def test_no_secret_is_printed(secret: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, document, text = checked(capsys, secret)
    assert code == 2
    assert document["findings"]
    assert "sesame" not in json.dumps(document) + text
    assert main(["check", "-m", EXPERIMENT, secret, "seed=1,2", "--json"]) == 2
    assert "sesame" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "plain",
    [
        "reward.token_env=REWARD_TOKEN",
        "trainer.args.max_new_tokens=5",
        "trainer.env.TOKENIZERS_PARALLELISM=false",
        "model.add_tokens=['<think>']",
        "trainer.args.eos_token='<|end|>'",
        "reward.functions=[{name: a, target: 'b.py:c'}]",
    ],
)
def test_what_is_no_secret_is_shown(plain: str) -> None:
    assert shown_override(plain) == plain


def test_a_secret_is_left_out_of_the_sentence_too() -> None:
    finding = without_secrets(
        Finding(
            problem="trainer.env.API_KEY = 'k-1234' is odd",
            why="k-1234",
            fix="write x=k-1234",
            values={"a.env": {"API_KEY": "k-1234", "B": ["b"]}, "c": "http://u:p@host"},
        )
    )
    assert "k-1234" not in str(finding)
    assert finding.values == {"a.env": {"API_KEY": HIDDEN, "B": ["b"]}, "c": f"http://{HIDDEN}@host"}
    assert is_secret("trainer.env.HF_TOKEN")
    assert not is_secret("reward.token_env")
