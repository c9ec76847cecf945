"""What the scores of made-up completions prove: each function here looks at one thing, and says it in one line."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from rewards.batch import GOLD_COLUMNS
from rewards.calling.describe import FunctionInfo
from rewards.calling.sample import MissingParamError
from rewards.checking.made_up import FORMS, MadeUp, Row, pairs_for, quoted
from rewards.checking.proofs import Level, Proof
from rewards.checking.trial import Issue
from rewards.contract import FunctionSpec
from rewards.scoring import FunctionScores


@dataclass(frozen=True, kw_only=True)
class Tried:
    """Rows, their made-up completions and the scores that came."""

    what: str
    """`made-up rows` or the data's name, for messages."""
    rows: Sequence[Row]
    samples: MadeUp
    scores: FunctionScores
    real: bool
    """The rows are the user's."""


@dataclass(frozen=True, kw_only=True)
class Gap:
    """Mean scores of right and wrong answers in one form."""

    form: str
    right: float
    wrong: float

    @property
    def told_apart(self) -> bool:
        return self.right > self.wrong

    @property
    def words(self) -> str:
        return f"right {self.right:g}, wrong {self.wrong:g} in the form {quoted(self.form.format('...'))}"


def gaps_of(tried: Tried) -> list[Gap]:
    """Forms in which pairs were scored."""
    by_key, gaps = dict(zip(tried.samples.keys, tried.scores.values, strict=True)), []
    for place, form in enumerate(FORMS):
        pairs = [pairs_for(row)[place] + (row.label,) for row in tried.rows if pairs_for(row)]
        scored = [(by_key.get((label, right)), by_key.get((label, wrong))) for right, wrong, label in pairs]
        both = [(right, wrong) for right, wrong in scored if right is not None and wrong is not None]
        if both:
            gaps.append(Gap(form=form, right=fmean(r for r, _ in both), wrong=fmean(w for _, w in both)))
    return gaps


def best_gap(tried: Tried) -> Gap | None:
    """The form that tells right from wrong best; None where no pair was scored."""
    return max(gaps_of(tried), key=lambda gap: gap.right - gap.wrong, default=None)


def judged(tried: Tried, info: FunctionInfo, spec: FunctionSpec) -> Iterator[Proof]:
    """Count and values are fine here: what the numbers say."""
    values = tried.scores.values
    given = [value for value in values if value is not None]
    if not given:
        level: Level = "error" if tried.real else "skipped"
        message = f"None for every one of {len(values)} completions of {tried.what}: 'not mine', so nothing is proven"
        fix = "give rows that it scores" if tried.real else "--data ROWS.jsonl with rows that it scores"
        yield Proof(name="values", level=level, message=message, fix=fix)
        return
    low, high = min(given), max(given)
    yield Proof(name="values", level="ok", message=f"{len(given)} numbers from {low:g} to {high:g} for {tried.what}")
    yield from _nones(tried, len(given))
    yield from _spread(tried, low, high)
    yield from _right_and_wrong(tried, info)
    if tried.scores.logs:
        yield Proof(name="logs", level="ok", message=f"beside the reward: {', '.join(sorted(tried.scores.logs))}")


def _nones(tried: Tried, given: int) -> Iterator[Proof]:
    missing = [label for label, value in zip(tried.samples.labels, tried.scores.values, strict=True) if value is None]
    if missing:
        message = f"None for {len(missing)} of {given + len(missing)} completions: 'not mine'"
        fix = "another function has to score these, or the run stops there (or return 0.0)"
        yield Proof(name="None", level="warning", message=message, sample=missing[0], fix=fix)


def _spread(tried: Tried, low: float, high: float) -> Iterator[Proof]:
    if low == high:
        message = f"{low:g} for all completions of {tried.what}: equal rewards within a group teach nothing"
        yield Proof(name="spread", level="warning", message=message)


def _right_and_wrong(tried: Tried, info: FunctionInfo) -> Iterator[Proof]:
    gap = best_gap(tried)
    if gap is None:
        if tried.real:
            names = ", ".join(GOLD_COLUMNS[:4])
            message = f"no column is known to hold the right answer ({names}, ...): right and wrong were not compared"
            yield Proof(name="right > wrong", level="skipped", message=message)
        return
    if gap.told_apart:
        yield Proof(name="right > wrong", level="ok", message=gap.words)
        return
    reads_gold = any(name in GOLD_COLUMNS for name in info.required_columns)
    worst = min(gaps_of(tried), key=lambda gap: gap.right - gap.wrong)
    message = f"the right answer ({gap.right:g}) scores no higher than a wrong one ({gap.wrong:g}) in any form"
    if worst.right < worst.wrong and reads_gold:
        yield Proof(name="right > wrong", level="error", message=f"wrong answers score above right ones; {worst.words}")
    elif reads_gold:
        fix = "compare with the gold answer; or, if it wants a form of its own, this cannot be proven here"
        yield Proof(name="right > wrong", level="warning", message=message, fix=fix)
    else:
        yield Proof(name="right > wrong", level="note", message=message + ": it does not judge the answer")


def gold_types(tried: Tried, other: Tried, numbers: Sequence[tuple[str, Any]]) -> Proof | None:
    """Of the same rows with gold answers as text and as numbers: `tried` is what the user has, `other` the other way.

    None where the type makes no difference, or nothing is told apart at all.
    """
    had, swapped = best_gap(tried), best_gap(other)
    if had is None or swapped is None or had.told_apart == swapped.told_apart:
        return None
    column, value = numbers[0]
    kind = type(value).__name__
    bad = swapped if had.told_apart else had
    message = (
        f"gold answers that are numbers ({column}: the {kind} {value!r}, not the text '{value}'): {bad.right:g} for "
        "the gold answer itself; as text it is told apart"
    )
    fix = f"compare with str({column}), or make the column text"
    if had.told_apart and tried.real:
        return None  # their golds are of the type that it takes
    if had.told_apart and not tried.real:
        return Proof(name="gold type", level="warning", message=message, fix=fix)
    if not tried.real:  # made-up golds are text: told apart as numbers only
        message = "gold answers that are text ('42') are not told apart, numbers (42) are: the column must hold numbers"
        return Proof(name="gold type", level="note", message=message)
    return Proof(name="gold type", level="error", message=message, fix=fix)


def failure_proof(issue: Issue, spec: FunctionSpec) -> Proof:
    """A broken contract, with the setting that would mend it where one would."""
    names = {"contract": "contract", "input": "columns", "exception": "exception", "timeout": "time limit"}
    return Proof(
        name=names.get(issue.kind, issue.kind),
        level="error",
        message=issue.message,
        sample=issue.sample,
        value=issue.value,
        fix=_fix(issue, spec),
    )


def load_proof(message: str, spec: FunctionSpec) -> Proof:
    """Why no worker could be started with it; a self-test may have failed for want of a key."""
    issue = Issue(kind="load", function=spec.name, message=message)
    return Proof(name="import", level="error", message=message, fix=_fix(issue, spec))


def _fix(issue: Issue, spec: FunctionSpec) -> str:
    if issue.kind == "timeout":
        return "make it quicker, or raise the limit (--timeout-s, `reward.timeout_s`)"
    if issue.exception == MissingParamError.__name__:
        return "--param NAME=VALUE here, `params` in the recipe"
    if issue.kind == "input":
        return "rename the column in the rows (`data.columns` in a recipe), or bind it with --param"
    if "no `key` is configured" in issue.message:
        return "--key NAME here, `key: NAME` in the recipe"
    if "without the configured key" in issue.message:
        return f"an entry that it has instead of {spec.key!r}"
    if "so a dict was expected" in issue.message:
        return "leave the key out: it returns plain numbers"
    return ""
