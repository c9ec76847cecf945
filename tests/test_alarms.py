"""Alarms as pure functions: a history of step metrics in, signs out. And their pages."""

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from orchestrator.alarms import ALARMS, Alarm, Seen, action_of, signs
from orchestrator.alarms.seen import Silence
from orchestrator.alarms.steps import CLIPPED, NO_SPREAD, UNSCORED, steps_in_a_row
from orchestrator.cli import main
from orchestrator.render.rules import ALARM_SECTIONS
from orchestrator.rules import RULES
from orchestrator.schema import (
    AlarmsConfig,
    LimitsConfig,
    RewardFunctionConfig,
    RunConfig,
    SupervisionConfig,
    TrainerConfig,
)
from orchestrator.training.groups import advantage_parts, group_figures

FINE = {CLIPPED: 0.1, NO_SPREAD: 0.2, UNSCORED: 0.0, "reward": 0.5, "loss": 0.01, "grad_norm": 0.3}
CLIPS, FLAT, UNREWARDED = FINE | {CLIPPED: 1.0}, FINE | {NO_SPREAD: 1.0}, FINE | {UNSCORED: 0.25}
REUSED = {"loss": 0.01, "grad_norm": 0.3}
"""A step that trains on completions of an earlier one: TRL logs no figures of them."""


def recipe(patience: int = 3, trainer: TrainerConfig | None = None, **alarms: Any) -> RunConfig:
    return RunConfig(
        limits=LimitsConfig(completion_length=8),
        trainer=trainer or TrainerConfig(),
        supervision=SupervisionConfig(
            ready_timeout_s=120, alarms=AlarmsConfig(patience_steps=patience, stall_s=60, **alarms)
        ),
    )


def lines(*figures: dict[str, Any], every: int = 1) -> list[dict[str, Any]]:
    """Steps `every`, 2 x `every`, ... as metrics.jsonl has them."""
    return [{"step": every * (i + 1)} | one for i, one in enumerate(figures)]


def codes(seen: Seen, run: RunConfig) -> list[str]:
    return [sign.code for sign in signs(seen, run)]


def times(figures: dict[str, Any], count: int) -> Iterator[dict[str, Any]]:
    return iter([figures] * count)


HISTORIES: dict[str, tuple[Sequence[dict[str, Any]], list[str]]] = {
    "nothing yet": (lines(), []),
    "all is well": (lines(*times(FINE, 30)), []),
    "clipped, not long enough": (lines(FINE, CLIPS, CLIPS), []),
    "clipped": (lines(FINE, CLIPS, CLIPS, CLIPS), ["RUN001"]),
    "clipped, then not": (lines(CLIPS, CLIPS, CLIPS, FINE), []),
    "an interruption starts the count anew": (lines(CLIPS, CLIPS, FINE, CLIPS, CLIPS), []),
    "nearly all clipped is clipped": (lines(*times(FINE | {CLIPPED: 0.95}, 3)), ["RUN001"]),
    "many clipped are not": (lines(*times(FINE | {CLIPPED: 0.94}, 30)), []),
    "no spread": (lines(FINE, *times(FLAT, 3)), ["RUN002"]),
    "one group with a spread is a spread": (lines(*times(FINE | {NO_SPREAD: 0.99}, 30)), []),
    "clipped without spread is both": (lines(*times(CLIPS | FLAT | {CLIPPED: 1.0}, 3)), ["RUN001", "RUN002"]),
    "a line stands for ten steps": (lines(FINE, CLIPS, every=10), ["RUN001"]),
    "steps that reuse completions count with the one before": (lines(FINE, CLIPS, REUSED, REUSED), ["RUN001"]),
    "steps before it do not": (lines(FINE, REUSED, REUSED, CLIPS), []),
    "a group without a reward": (lines(FINE, UNREWARDED), ["RUN003"]),
    "a group without a reward, a while ago": (lines(UNREWARDED, FINE, FINE), ["RUN003"]),
    "a group without a reward, long ago": (lines(UNREWARDED, FINE, FINE, FINE), []),
    "nothing has a reward": (
        lines(*times(FLAT | {UNSCORED: 1.0, "reward": None}, 3)),
        ["RUN002", "RUN003"],
    ),
    "a gradient is not finite": (lines(FINE, FINE | {"grad_norm": None}), ["RUN006"]),
    "a loss is not finite": (lines(FINE | {"loss": None}), ["RUN006"]),
    "it was finite again": (lines(FINE | {"grad_norm": None}, FINE), []),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_step_alarms(name: str) -> None:
    steps, expected = HISTORIES[name]
    assert codes(Seen(lines=steps), recipe()) == expected


def test_a_loss_scaler_may_overflow_for_a_while() -> None:
    run = recipe(trainer=TrainerConfig(args={"fp16": True}))
    assert codes(Seen(lines=lines(*times(FINE | {"grad_norm": None}, 2))), run) == []
    assert codes(Seen(lines=lines(*times(FINE | {"grad_norm": None}, 3))), run) == ["RUN006"]


def test_steps_in_a_row() -> None:
    assert steps_in_a_row(lines(CLIPS, CLIPS), CLIPPED, lambda ratio: ratio == 1) == 2
    assert steps_in_a_row(lines(CLIPS, REUSED, CLIPS, every=5), CLIPPED, lambda ratio: ratio == 1) == 11
    assert steps_in_a_row(lines(REUSED, REUSED), CLIPPED, lambda ratio: True) == 0


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (Seen(doing="the weight sync", quiet_s=59), []),
        (Seen(doing="the weight sync", quiet_s=60), ["RUN004"]),
        (Seen(doing="", quiet_s=119), []),  # it may still import, or compile
        (Seen(doing="", quiet_s=120), ["RUN004"]),
        (Seen(silent={"generation": Silence(seconds=29, reason="no answer within 2 s")}), []),
        (Seen(silent={"generation": Silence(seconds=30, reason="no answer within 2 s")}), ["RUN005"]),
        (Seen(silent=dict.fromkeys(("reward", "generation"), Silence(seconds=30, reason=""))), ["RUN005", "RUN005"]),
    ],
)
def test_waits(seen: Seen, expected: list[str]) -> None:
    assert codes(seen, recipe()) == expected


def test_a_foreign_trainer_reports_nothing_and_is_not_watched() -> None:
    assert codes(Seen(quiet_s=1e6), recipe(trainer=TrainerConfig(kind="command", argv=["train"]))) == []


def test_a_sign_is_a_sentence_with_both_values_and_what_to_type() -> None:
    (sign,) = signs(Seen(lines=lines(*times(CLIPS, 3))), recipe())
    assert "clipped ratio 1.00 for 3 steps; limits.completion_length = 8" in sign.sentence
    assert "limits.completion_length=16" in sign.sentence
    assert sign.sentence.startswith("RUN001 completions-clipped: ")
    assert sign.sentence.endswith("(orchestrate rules RUN001)")
    (sign,) = signs(Seen(doing="the weight sync (after step 12)", quiet_s=61), recipe())
    assert "the weight sync (after step 12) has not ended after 61 s" in sign.sentence
    assert "supervision.alarms.stall_s = 60" in sign.sentence
    (sign,) = signs(Seen(silent={"reward": Silence(seconds=31, reason="no answer within 2 s")}), recipe())
    assert sign.process == "reward"
    assert "31 s" in sign.sentence


def test_what_is_off_is_not_looked_at() -> None:
    both = Seen(lines=lines(*times(CLIPS | {NO_SPREAD: 1.0}, 3)))
    assert codes(both, recipe(action="off")) == []
    assert codes(both, recipe(actions={"RUN001": "off"})) == ["RUN002"]
    assert codes(both, recipe(action="off", actions={"RUN001": "stop"})) == ["RUN001"]
    assert action_of(AlarmsConfig(action="off", actions={"RUN001": "stop"}), "RUN001") == "stop"


@pytest.mark.parametrize(
    ("totals", "unscored", "no_spread"),
    [
        ([1.0, 0.0, 0.5, 0.5], 0.0, 0.5),
        ([1.0, 1.0, 0.0, 0.0], 0.0, 1.0),  # the groups differ, their completions do not
        ([None, None, 1.0, 0.0], 0.5, 0.5),
        ([None, 1.0, 1.0, 0.0], 0.0, 0.5),  # one reward alone has nothing to differ from
        ([None] * 4, 1.0, 1.0),
        ([1000.0, 1000.0 + 1e-5, 1.0, 1.0 - 1e-9], 0.0, 1.0),  # float32 cannot tell them apart
    ],
)
def test_group_figures(totals: list[float | None], unscored: float, no_spread: float) -> None:
    assert group_figures(totals, [totals], 2) == {UNSCORED: unscored, NO_SPREAD: no_spread}


def test_functions_that_are_normalized_each_by_itself_have_a_spread_each() -> None:
    functions = [RewardFunctionConfig(name="right"), RewardFunctionConfig(name="short", weight=0.0)]
    assert advantage_parts(functions, "sum_then_normalize") == ()
    assert advantage_parts(functions, "normalize_then_sum") == ("right",)
    assert group_figures([1.0] * 4, [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 1.0, 1.0]], 2)[NO_SPREAD] == 0.5


@pytest.mark.parametrize("alarm", ALARMS, ids=lambda alarm: alarm.code)
def test_a_page_has_its_sections_in_order(alarm: Alarm, capsys: pytest.CaptureFixture[str]) -> None:
    body = inspect.getdoc(alarm.check) or ""
    places = [body.find(section) for section in ALARM_SECTIONS]
    assert -1 not in places
    assert places == sorted(places)
    assert main(["rules", alarm.code.lower()]) == 0
    page = capsys.readouterr().out
    assert page.startswith(f"# {alarm.code}: {alarm.name}\n")
    assert "## What to do" in page
    assert "supervision.alarms" in page


def test_alarms_are_listed_with_the_rules_and_share_their_codes(capsys: pytest.CaptureFixture[str]) -> None:
    every = [*RULES, *ALARMS]
    assert len({one.code for one in every}) == len({one.name for one in every}) == len(every)
    assert main(["rules"]) == 0
    listed = capsys.readouterr().out
    assert all(alarm.code in listed and alarm.name in listed for alarm in ALARMS)
