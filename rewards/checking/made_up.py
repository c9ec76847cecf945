"""Completions that no model wrote, for real rows: right, wrong, empty, long, and in the forms that people ask for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

from rewards.batch import GOLD_COLUMNS, Batch, Text

NO_ANSWER = "I do not know."
LONG = "Let me think about that once more. " * 200
"""About 7,000 characters: what a model that never ends writes."""
NUM_KINDS = 7
"""Completions that `completions_for` makes up for a row."""
FORMS = (
    "{}",
    "So the answer is $\\boxed{{{}}}$.",
    "<think>\nStep by step.\n</think>\n<answer>\n{}\n</answer>",
    "<think>t</think><answer>\\boxed{{{}}}</answer>",
    "Answer: {}",
)
"""Forms in which an answer may be asked for."""
LONGEST_QUOTE = 60  # characters of a completion in a message


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of the data, and what to call it."""

    label: str
    prompt: Text
    columns: Mapping[str, Any]


@dataclass(frozen=True)
class MadeUp:
    """Whole groups of made-up completions, and in words what each sample is."""

    batch: Batch
    labels: tuple[str, ...]
    keys: tuple[tuple[str, str], ...]
    """(row, completion) of each sample: the same pair is the same sample in the batch of another function."""

    def prefix(self, count: int) -> Batch:
        """The first `count` samples."""
        return self.batch.take(range(count))


def gold_of(row: Row) -> str | None:
    """The row's right answer as text; None where no column is known to hold one."""
    found = (row.columns.get(name) for name in GOLD_COLUMNS)
    gold = next((value for value in found if isinstance(value, (str, int, float))), None)
    return None if gold is None else str(gold)


def completions_for(row: Row) -> tuple[str, ...]:
    """NUM_KINDS texts, the right answer first."""
    gold = gold_of(row)
    said = NO_ANSWER if gold is None else gold
    return (
        said,
        wrong_answer(said),
        "",
        LONG,
        f"So the answer is $\\boxed{{{said}}}$.",
        f"<think>\nStep by step.\n</think>\n<answer>\n{said}\n</answer>",
        f"Ünïcode 🙂, `code`:\n```python\nprint({said!r})\n```\n#### {said}",
    )


def wrong_answer(right: str) -> str:
    """The next number, or words that answer nothing."""
    try:
        return str(int(right) + 1)
    except ValueError:
        return "Certainly not that."


def pairs_for(row: Row) -> tuple[tuple[str, str], ...]:
    """(right, wrong) in the forms that scorers want; () where no column is known to hold the right answer."""
    gold = gold_of(row)
    if gold is None:
        return ()
    return tuple((form.format(gold), form.format(wrong_answer(gold))) for form in FORMS)


def made_up(rows: Sequence[Row], group_size: int, *, completion_ids: bool = False) -> MadeUp:
    """Groups of `group_size` completions: at least one per row, and as many as it takes to use every kind once.

    A group begins with the right answer. `completion_ids` adds that column, with the bytes of each text in the place of
    token ids: there is no tokenizer here.
    """
    picked: list[tuple[int, Row, str]] = []
    shown = 0
    for group, row in enumerate(cycle(rows)):
        if group >= len(rows) and shown >= NUM_KINDS:
            break
        picked += [(group, row, text) for text in _group(row, group_size, shown)]
        shown += max(1, group_size - 1)
    return _batch(picked, completion_ids)


def made_up_pairs(rows: Sequence[Row], group_size: int, *, odd_rows: int, completion_ids: bool = False) -> MadeUp:
    """Groups of `group_size` completions that hold every pair of every row, filled up from the start.

    The first `odd_rows` rows, and all without a gold answer, also get an empty completion, a long one, one with code.
    """
    picked: list[tuple[int, Row, str]] = []
    for number, row in enumerate(rows):
        texts = [text for pair in pairs_for(row) for text in pair]
        if number < odd_rows or not texts:
            texts += [text for text in completions_for(row) if text not in texts]
        short = -len(texts) % group_size
        texts += islice(cycle(texts), short)
        first = picked[-1][0] + 1 if picked else 0
        picked += [(first + place // group_size, row, text) for place, text in enumerate(texts)]
    return _batch(picked, completion_ids)


def _group(row: Row, size: int, shown: int) -> list[str]:
    """The right answer, then the kinds that come after the `shown` ones."""
    right, *others = completions_for(row)
    if size == 1:
        return [(right, *others)[shown % NUM_KINDS]]
    return [right, *islice(cycle(others), shown, shown + size - 1)]


def _batch(picked: Sequence[tuple[int, Row, str]], completion_ids: bool) -> MadeUp:
    columns = {name: [row.columns.get(name) for _, row, _ in picked] for name in picked[0][1].columns}
    if completion_ids:
        columns["completion_ids"] = [list(text.encode()) for _, _, text in picked]
    batch = Batch(
        prompts=[row.prompt for _, row, _ in picked],
        completions=[_in_form_of(row.prompt, text) for _, row, text in picked],
        columns=columns,
        group_ids=[group for group, _, _ in picked],
        statuses=["truncated" if text == LONG else "completed" for _, _, text in picked],
    )
    return MadeUp(
        batch=batch,
        labels=tuple(f"{row.label}, completion {quoted(text)}" for _, row, text in picked),
        keys=tuple((row.label, text) for _, row, text in picked),
    )


def quoted(text: str) -> str:
    """A completion in a message."""
    return repr(text) if len(text) <= LONGEST_QUOTE else repr(text[:LONGEST_QUOTE]) + "..."


def _in_form_of(prompt: Text, completion: str) -> Text:
    """As TRL does it: an answer to messages is a message."""
    return completion if isinstance(prompt, str) else [{"role": "assistant", "content": completion}]
