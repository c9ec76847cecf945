r"""1.0 where the completion chooses the right letter.

The choice is read after the thinking (`</think>`), from the first of these that is there: the last
`<answer>...</answer>`, the last `\boxed{...}`, the last "answer is X" or "Answer: X", the last line. A letter counts
alone ("B", "(b)"), before its text ("B) Paris"), and as the text of one choice, if these are known; two letters
("A or B") are no choice. The gold is a letter, the index of a choice from 0 (an integer), or a choice's text. The
letters are as many as the row has in its column `choices` (a list of texts), or else those of `letters`.

Range: 0.0 or 1.0.
Source: the task of GPQA (arXiv 2311.12022); the reading of a choice is ours.
"""

import re
from collections.abc import Sequence
from string import ascii_uppercase
from typing import Any

from rewards.batch import Text
from rewards.contract import Example, short_repr
from rewards.functions.text import after_thinking, last_boxed, last_tagged, text_of

WRAPPER = re.compile(r"\\(?:text|textbf|mathrm|mathbf|boxed)\b|[\s{}()\[\]$*_`\"']|\.$|:$")
STATED = re.compile(r"\banswer\b[^\w\n]{0,4}(?:is|:|=)[^\w\n(]{0,4}([^\n]{1,300})", re.IGNORECASE)
LABELLED = re.compile(r"[\s(*_]{0,4}([A-Za-z])[*_]{0,2}\s?[).:]\s*(.*)", re.DOTALL)
# A capital that starts the words: not an article ("A dog", but "A is right"), nor the first of several ("A or B").
LEADING = re.compile(
    r"[^\w\n]{0,4}(?:(?:option|choice|letter)\W{1,3})?(?:[B-HJ-Z]|[AI](?!\s+(?!is\b|because\b|since\b|as\b)[a-z]))\b"
    r"(?!['’]|\s*(?:,|/|&|or\b|and\b)\s*\(?[A-Z]\b)",
)
CAPITAL = re.compile(r"(?<![\w'’])[A-Z](?![\w'’])")

PER_SAMPLE = True
INLINE = True
SELF_TEST = (
    Example(completion=r"It is \boxed{B}.", columns={"answer": "B"}, score=1.0),
    Example(completion="Answer: A or B", columns={"answer": "B"}, score=0.0),
)


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
    if not isinstance(letters, str) or not letters or not ascii_uppercase.startswith(letters):
        raise ValueError(f"params.letters must be capitals from A without a gap, such as 'ABCD', not {letters!r}")
    rows = [None] * len(completions) if choices is None else choices
    return [
        None if gold is None else _score(text_of(completion), gold, _texts(row, letters))
        for completion, gold, row in zip(completions, answer, rows, strict=True)
    ]


def _texts(choices: object, letters: str) -> dict[str, str]:
    """letter -> the normalised text of its choice; '' where the texts are not known."""
    if choices is None:
        return dict.fromkeys(letters, "")
    if not isinstance(choices, (list, tuple)) or not 0 < len(choices) <= len(ascii_uppercase):
        raise ValueError(f"a row's choices are a list of 1 to {len(ascii_uppercase)} texts, not {short_repr(choices)}")
    return {letter: _plain(str(text)) for letter, text in zip(ascii_uppercase, choices, strict=False)}


def _score(completion: str, gold: object, texts: dict[str, str]) -> float:
    return float(_gold_letter(gold, texts) == _chosen(after_thinking(completion), texts))


def _gold_letter(gold: object, texts: dict[str, str]) -> str:
    letters = list(texts)
    found: set[str] = set()
    if isinstance(gold, int) and not isinstance(gold, bool):
        found = {letters[gold]} if 0 <= gold < len(letters) else set()
    elif isinstance(gold, str):
        found = _named(gold, texts) | {letter for letter in letters if _bare(gold).upper() == letter}
    if len(found) != 1:
        how = f"{' and '.join(sorted(found))} alike" if found else "no choice"
        known = f"{letters[0]} to {letters[-1]}" + (", their indices or texts" if texts[letters[0]] else "")
        raise ValueError(f"the gold answer {short_repr(gold)} names {how}; there are {known}")
    return found.pop()


def _chosen(said: str, texts: dict[str, str]) -> str | None:
    """The letter that the completion chooses, or None."""
    tagged = last_tagged(said)
    part = said if tagged is None else tagged
    boxed = last_boxed(part)
    if boxed is not None:
        return _read(boxed, texts)
    stated = STATED.findall(part)
    if stated:
        return _read(stated[-1], texts) or _leading(stated[-1], texts)
    last_line = part.rstrip().rpartition("\n")[2]
    return _read(last_line, texts) or _only_capital(last_line, texts)


def _read(words: str, texts: dict[str, str]) -> str | None:
    """The letter in words that are nothing but a choice: its letter, its text, or both."""
    letter = _bare(words).upper()
    if letter in texts:
        return letter
    named = _named(words, texts)
    if named:
        return named.pop() if len(named) == 1 else None
    labelled = LABELLED.match(words)
    if labelled is None or labelled[1].upper() not in texts:
        return None
    others = _named(labelled[2], texts) - {labelled[1].upper()}  # "A) Paris", where Paris is B, is no choice
    return None if others else labelled[1].upper()


def _leading(words: str, texts: dict[str, str]) -> str | None:
    found = LEADING.match(words)
    letter = found[0][-1] if found else ""
    return letter if letter in texts else None


def _only_capital(line: str, texts: dict[str, str]) -> str | None:
    """The only letter of a choice in a line that ends with it: "so I take C."."""
    found = [letter for letter in CAPITAL.findall(line) if letter in texts]
    return found[0] if len(set(found)) == 1 and _bare(line).endswith(found[0]) else None


def _named(words: str, texts: dict[str, str]) -> set[str]:
    """Letters of the choices whose text this is; two choices may have the same."""
    plain = _plain(words)
    return {letter for letter, text in texts.items() if text and text == plain}


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()).strip(" .$*_")


def _bare(text: str) -> str:
    """The text without what is put around a letter."""
    return WRAPPER.sub("", text)
