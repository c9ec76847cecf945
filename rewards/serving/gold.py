"""Gold answers from a file, by question: for clients that send a question and no gold.

A question is looked for exactly, then as gold_words.py reads it, then among those that differ by slips in long words
alone. What is not found is an error; nothing is guessed.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rapidfuzz import process
from rapidfuzz.distance import Levenshtein

from rewards.batch import GOLD_COLUMNS
from rewards.calling.targets import near
from rewards.serving.gold_words import Reading, misspelt, read, words_of

QUESTION_KEYS = ("question", "prompt", "problem")
ANSWER_KEYS = GOLD_COLUMNS
SHOWN_ROWS = 8  # in an error about the file
REMEMBERED = 65_536  # look-ups


class GoldError(Exception):
    """A gold file that cannot be used. Names the file and its rows, never their text."""


class NoGoldError(Exception):
    """There is no gold answer for this question. The message holds nothing of the file."""


@dataclass(frozen=True)
class Gold:
    row: int
    """Line of a .jsonl, position in a .json list; both from 1."""
    question: str
    answer: str


class GoldSet:
    """The rows of one file, to be asked from any thread."""

    def __init__(self, path: Path, sha256: str, rows: Sequence[Gold], threshold: float) -> None:
        """`threshold`: least 1 - (edits) / (characters) of a question with slips in more than one word; 1: no slips."""
        self.path, self.sha256, self.rows, self.threshold = path, sha256, tuple(rows), threshold
        self._exact = {gold.question: gold for gold in reversed(rows)}  # of equal rows the first
        self._alike: dict[str, list[Gold]] = {}
        self._framed: dict[str, dict[str, Reading]] = {}
        self._rows_of_words: dict[str, int] = {}
        self._words: set[str] = set()
        for gold in reversed(self._exact.values()):
            reading = read(gold.question)
            self._alike.setdefault(reading.plain, []).append(gold)
            self._framed.setdefault(reading.frame, {}).setdefault(reading.plain, reading)
            self._rows_of_words.setdefault(reading.letters, gold.row)
            self._words.update(words_of(reading))
        self._known: dict[str, Gold] = {}

    def find(self, question: str) -> Gold:
        """Raises NoGoldError."""
        found = self._exact.get(question) or self._known.get(question)
        if found is None:
            found = self._search(read(question))
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[question] = found
        return found

    def describe(self) -> dict[str, Any]:
        return {
            "path": str(self.path),
            "rows": len(self.rows),
            "sha256": self.sha256,
            "threshold": self.threshold,
        }

    def _search(self, asked: Reading) -> Gold:
        if asked.plain in self._alike:
            return self._one_answer(self._alike[asked.plain])
        most = max(1, int((1 - self.threshold) * len(asked.plain)))
        for slips in sorted({1, most}) if self.threshold < 1 else ():
            if meant := self._misspelt(asked, slips):
                return self._one_answer([gold for text in meant for gold in self._alike[text]])
        if row := self._rows_of_words.get(asked.letters):
            raise NoGoldError(f"row {row} of the gold file has the same words, but other numbers, operators or signs")
        raise NoGoldError("no question in the gold file is the same but for white space and slips in long words")

    def _misspelt(self, asked: Reading, slips: int) -> list[str]:
        """Questions of the file from which it differs by at most so many letters, all of them slips."""
        candidates = self._framed.get(asked.frame, {})
        # The C loop leaves few of a large file; only those are compared word by word.
        near_ones = process.extract_iter(
            asked.plain, list(candidates), scorer=Levenshtein.distance, processor=None, score_cutoff=slips
        )
        return [text for text, _, _ in near_ones if misspelt(asked, candidates[text], self._words)]

    @staticmethod
    def _one_answer(candidates: Sequence[Gold]) -> Gold:
        if len({gold.answer for gold in candidates}) > 1:
            rows = ", ".join(str(gold.row) for gold in candidates)
            raise NoGoldError(f"rows {rows} of the gold file are equally like it and have different answers")
        return candidates[0]


def load_gold(path: Path, question_key: str | None, answer_key: str | None, threshold: float) -> GoldSet:
    """Read a .jsonl or a .json list of objects. Raises GoldError."""
    if not 0 < threshold <= 1:
        raise GoldError(f"--gold-threshold must be above 0 and at most 1, not {threshold:g}")
    try:
        content = path.read_bytes()
        raw = list(_rows(path, content.decode("utf-8-sig")))
    except OSError as error:
        raise GoldError(f"--gold {path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise GoldError(f"--gold {path}: not UTF-8 (byte {error.start})") from error
    if not raw:
        raise GoldError(f"--gold {path}: the file has no rows")
    question = question_key or _key(path, raw[0][1], QUESTION_KEYS, "--gold-question")
    answer = answer_key or _key(path, raw[0][1], ANSWER_KEYS, "--gold-answer")
    golds, unusable = [], []
    for number, row in raw:
        if usable := _usable(row.get(question)) and _usable(row.get(answer)):
            golds.append(Gold(number, row[question], row[answer].strip()))
        if not usable:
            unusable.append(number)
    if unusable:
        raise GoldError(
            f"--gold {path}: {question!r} or {answer!r} is blank or no text or number in {shown_rows(unusable)}"
        )
    if rows := _conflicts(golds):
        raise GoldError(f"--gold {path}: the same question has different answers in {shown_rows(rows)}")
    return GoldSet(path, hashlib.sha256(content).hexdigest(), golds, threshold)


def _rows(path: Path, text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    # Numbers stay as they are written: an answer of 72.50 is the text "72.50".
    numbers: dict[str, Any] = {"parse_int": str, "parse_float": str}
    if path.suffix == ".jsonl":
        pieces = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    elif path.suffix == ".json":
        pieces = [(1, text)]
    else:
        raise GoldError(f"--gold {path}: expected a .jsonl or a .json file")
    for number, piece in pieces:
        try:
            value = json.loads(piece, **numbers)
        except (ValueError, RecursionError) as error:
            where = f"line {number}" if path.suffix == ".jsonl" else "the file"
            raise GoldError(f"--gold {path}: {where} is not JSON: {str(error)[:100]}") from None
        items = list(enumerate(value, 1)) if path.suffix == ".json" and isinstance(value, list) else [(number, value)]
        for row, item in items:
            if not isinstance(item, dict):
                raise GoldError(f"--gold {path}: row {row} is a {type(item).__name__}, expected an object")
            yield row, item


def _key(path: Path, row: dict[str, Any], known: Sequence[str], flag: str) -> str:
    found = next((key for key in known if key in row), None)
    if found is None:
        raise GoldError(
            f"--gold {path}: no {' or '.join(known[:3])} in its first row: name it with {flag}{near('', row)}"
        )
    return found


def _usable(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _conflicts(golds: Sequence[Gold]) -> list[int]:
    """Rows whose question stands in an earlier row with another answer, and those earlier rows."""
    first: dict[str, Gold] = {}
    rows: set[int] = set()
    for gold in golds:
        earlier = first.setdefault(gold.question, gold)
        if earlier.answer != gold.answer:
            rows |= {earlier.row, gold.row}
    return sorted(rows)


def shown_rows(rows: Sequence[int]) -> str:
    more = f" and {len(rows) - SHOWN_ROWS} more" if len(rows) > SHOWN_ROWS else ""
    return f"row{'s' if len(rows) > 1 else ''} {', '.join(map(str, rows[:SHOWN_ROWS]))}{more}"
