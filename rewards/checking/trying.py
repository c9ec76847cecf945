"""Asks a function about rows, the user's own and made-up ones, in the forms that it may have been written for."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rewards.batch import GOLD_COLUMNS
from rewards.checking.judging import Tried, best_gap, failure_proof
from rewards.checking.made_up import MadeUp, Row, completions_for, gold_of, made_up_pairs, quoted
from rewards.checking.proofs import Level, Proof
from rewards.checking.questions import Questions, wants_ids
from rewards.checking.rows import as_chat, canned_rows
from rewards.checking.trial import Issue
from rewards.contract import FunctionSpec
from rewards.running.pool import Pool
from rewards.scoring import FunctionScores, input_problem

LOOKING_UP = ("KeyError", "AttributeError", "IndexError", "TypeError", "ValueError", "AssertionError")
"""What a function raises that finds its row unlike what it was written for."""
VARIANTS = (
    ("completions that are messages", False, True),
    ("gold answers that are numbers", True, False),
    ("completions that are messages and gold answers that are numbers", True, True),
)
"""Made-up rows for those that fail with texts: what it then takes; golds as numbers; messages."""


@dataclass
class Trying:
    """Adds to `proofs` what goes wrong, so that what comes back can be judged by its scores."""

    pool: Pool
    spec: FunctionSpec
    group_size: int
    proofs: list[Proof]
    seconds: float = 0.0
    """What the last pass took."""

    def add(self, name: str, level: Level, message: str, fix: str = "") -> None:
        self.proofs.append(Proof(name=name, level=level, message=message, fix=fix))

    async def real(self, rows: Sequence[Row]) -> Tried | None:
        found = await self.tried(rows, "the data", real=True)
        if isinstance(found, Tried):
            return found
        if _looks_up(found[0], rows[0]) and all(isinstance(row.prompt, str) for row in rows):
            messages = await self.tried([as_chat(row) for row in rows], "the data", real=True)
            if isinstance(messages, Tried):
                self.add("the data", "note", "it takes them as chat data only (`data.chat: true`); " + found[0].message)
                return messages
        self.proofs += [failure_proof(issue, self.spec) for issue in found]
        return None

    async def canned(self, *, works: bool) -> Tried | None:
        """Made-up rows, where the function can be asked about them. `works`: it has scored the user's own rows, so that
        one that raises may rightly take no others."""
        info = self.pool.functions[0]
        unknown = [name for name in info.required_columns if name not in GOLD_COLUMNS]
        if unknown:
            names = ", ".join(unknown)
            message = f"values of the column {names} cannot be made up"
            self.add("made-up rows", "skipped", message, "" if works else "--data ROWS.jsonl with that column")
            return None
        failures = await self.tried(canned_rows(), "made-up rows")
        if isinstance(failures, Tried):
            await self._as_messages(failures)
            return failures
        if not _looks_up(failures[0], canned_rows()[0]):
            proofs = [failure_proof(issue, self.spec) for issue in failures]
            own = works and all(issue.kind == "exception" for issue in failures)
            self.proofs += [replace(proof, level="warning") if own else proof for proof in proofs]
            return None
        for needs, numbers, chat in VARIANTS:
            found = await self.tried(canned_rows(numbers=numbers, chat=chat), "made-up rows")
            if isinstance(found, Tried):
                self.add("made-up rows", "note", f"it takes {needs} only, and raises for others")
                return found
        message = f"it takes other rows than made-up ones: {failures[0].message}"
        fix = "" if works else "--data ROWS.jsonl with rows of yours, or --param for what it needs"
        self.add("made-up rows", "skipped", message, fix)
        return None

    async def _as_messages(self, texts: Tried) -> None:
        """Whether a function of TRL's shape also works on chat data; all others get texts in any case."""
        gap = best_gap(texts)
        if self.pool.functions[0].shape != "trl" or gap is None or not gap.told_apart:
            return
        found = await self.tried(canned_rows(chat=True), "made-up rows")
        other = best_gap(found) if isinstance(found, Tried) else None
        if other is None or not other.told_apart:
            outcome = "right and wrong get the same" if isinstance(found, Tried) else found[0].message
            message = f"completions that are messages, as with chat data (`data.chat: true`), do not work: {outcome}"
            fix = "take the text of a message: completion[-1]['content']"
            self.add("chat data", "note", message, fix)

    async def tried(self, rows: Sequence[Row], what: str, *, real: bool = False) -> Tried | list[Issue]:
        """The scores of the rows' made-up completions; or why there are none. One group comes first, then all."""
        samples = self._samples(rows, odd_rows=1 if real else len(rows))
        questions = Questions(self.pool, self.spec, samples, has_gold=any(gold_of(row) is not None for row in rows))
        info = self.pool.functions[0]
        missing = input_problem(info.name, info.required_columns, info.granularity, samples.batch)
        if missing:
            return [questions.issue(missing.kind, missing.message)]
        scores: FunctionScores | None = None
        for count in dict.fromkeys((self.group_size, len(samples.batch))):
            began = time.perf_counter()
            scores = await questions.score(samples.prefix(count))
            self.seconds = time.perf_counter() - began
            if scores.failures:
                return await questions.failed(scores.failures, count)
        assert scores is not None  # noqa: S101  the loop ran
        return Tried(what=what, rows=rows, samples=samples, scores=scores, real=real)

    def _samples(self, rows: Sequence[Row], *, odd_rows: int) -> MadeUp:
        return made_up_pairs(rows, self.group_size, odd_rows=odd_rows, completion_ids=wants_ids(self.spec))


def _looks_up(issue: Issue, first: Row) -> bool:
    """Whether it fails at the first made-up completion already, as it would where a row is not what it expects."""
    said = f"{first.label}, completion {quoted(completions_for(first)[0])}"
    return issue.exception in LOOKING_UP and issue.sample == said
