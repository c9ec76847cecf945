r"""1.0 where the completion chooses the right letter.

The choice is read after the thinking (`</think>`), from the first of these that is there: the last
`<answer>...</answer>`, the last `\boxed{...}`, the last "answer is X" or "Answer: X", the last line. A letter counts
alone ("B", "(b)"), before or after its text ("B) Paris", "Paris (B)"), and as the text of one choice, if these are
known. Two letters ("A or B"), or a letter with another choice's text, are no choice; reasons ("because ...") do not
count. Without `choices` a text that names another letter ("B) Vitamin C") is read as two.

The gold is a letter, with or without its text, the index of a choice from 0 (an integer), or a choice's text. What is
both a letter and a choice's text (blood groups) is the letter, in the gold and in the completion. The letters are as
many as the row has in its column `choices` (a list of texts), or else those of `letters`.

Range: 0.0 or 1.0.
Source: the task of GPQA (arXiv 2311.12022); the reading of a choice is ours.
"""

from collections.abc import Sequence
from string import ascii_uppercase
from typing import Any

from rewards.batch import Text
from rewards.contract import Example, PrepareError, short_repr
from rewards.functions.choice_text import LABELLED, bare, chosen, named, plain
from rewards.functions.text import after_thinking, text_of

PER_SAMPLE = True
INLINE = True
SELF_TEST = (
    Example(completion=r"It is \boxed{B}.", columns={"answer": "B"}, score=1.0),
    Example(completion="Answer: A or B", columns={"answer": "B"}, score=0.0),
)


def prepare(*, letters: str = "ABCD") -> None:
    """Raises PrepareError for letters that are none."""
    try:
        _check(letters)
    except ValueError as error:
        raise PrepareError(str(error)) from error


def multiple_choice(
    prompts: Sequence[Text],
    completions: Sequence[Text],
    answer: Sequence[Any],
    choices: Sequence[Any] | None = None,
    *,
    letters: str = "ABCD",
    **kwargs: Any,
) -> list[float | None]:
    """1.0 or 0.0; None where `answer` is null. Raises ValueError for a gold that names no choice, or two."""
    _check(letters)
    rows = [None] * len(completions) if choices is None else choices
    return [
        None if gold is None else _score(text_of(completion), gold, _texts(row, letters))
        for completion, gold, row in zip(completions, answer, rows, strict=True)
    ]


def _check(letters: object) -> None:
    if not isinstance(letters, str) or not letters or not ascii_uppercase.startswith(letters):
        raise ValueError(f"params.letters must be capitals from A without a gap, such as 'ABCD', not {letters!r}")


def _texts(choices: object, letters: str) -> dict[str, str]:
    """letter -> the normalised text of its choice; '' where the texts are not known."""
    if choices is None:
        return dict.fromkeys(letters, "")
    if not isinstance(choices, (list, tuple)) or not 0 < len(choices) <= len(ascii_uppercase):
        raise ValueError(f"a row's choices are a list of 1 to {len(ascii_uppercase)} texts, not {short_repr(choices)}")
    return {letter: plain(str(text)) for letter, text in zip(ascii_uppercase, choices, strict=False)}


def _score(completion: str, gold: object, texts: dict[str, str]) -> float:
    return float(_gold_letter(gold, texts) == chosen(after_thinking(completion), texts))


def _gold_letter(gold: object, texts: dict[str, str]) -> str:
    letters = list(texts)
    found: set[str] = set()
    if isinstance(gold, int) and not isinstance(gold, bool):
        found = {letters[gold]} if 0 <= gold < len(letters) else set()
    elif isinstance(gold, str):
        labelled = LABELLED.match(gold)
        if bare(gold) in letters:
            found = {bare(gold)}
        elif not (found := named(gold, texts)) and labelled and labelled[1].upper() in letters:
            letter = labelled[1].upper()
            found = {letter} if texts[letter] in ("", plain(labelled[2])) else set()
    if len(found) != 1:
        how = f"{' and '.join(sorted(found))} alike" if found else "no choice"
        known = f"{letters[0]} to {letters[-1]}" + (", their indices or texts" if texts[letters[0]] else "")
        raise ValueError(f"the gold answer {short_repr(gold)} names {how}; there are {known}")
    return found.pop()
