"""Gold answers from a file, by question: for clients that send a question and no gold.

A question is looked for exactly, then without regard to case, white space and Unicode form, then by similarity. Similar
is not enough: the nearest question must have the same numbers and operators, for "2 apples" and "3 apples" are alike
and have different answers. What is not found is an error; nothing is guessed.
"""

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rapidfuzz import fuzz, process
from rapidfuzz.distance import Levenshtein

from rewards.batch import GOLD_COLUMNS
from rewards.calling.targets import near

QUESTION_KEYS = ("question", "prompt", "problem")
ANSWER_KEYS = GOLD_COLUMNS
SHOWN_ROWS = 8  # in an error about the file
REMEMBERED = 65_536  # look-ups
SHORTEST_TYPO = 5  # characters of a question that may differ by one edit although the ratio is below the threshold
FAR = 0.75  # ratio below which nothing can match; saves the exact ratio of most questions
TOLD = 0.3  # ratio from which it is worked out for the message: a very long prompt would take very long
MARKS = re.compile(r"\d+|[+*/^=<>%]")  # not "-", which has many Unicode forms


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
        """`threshold`: least similarity, 1 - (insertions + deletions) / (both lengths); 1: letter by letter only."""
        self.path, self.sha256, self.rows, self.threshold = path, sha256, tuple(rows), threshold
        self._exact = {gold.question: gold for gold in reversed(rows)}  # of equal rows the first
        self._alike: dict[str, list[Gold]] = {}
        for gold in reversed(self._exact.values()):
            self._alike.setdefault(normalised(gold.question), []).append(gold)
        self._questions = list(self._alike)
        self._known: dict[str, Gold] = {}

    def find(self, question: str) -> Gold:
        """Raises NoGoldError, with the best similarity."""
        found = self._exact.get(question) or self._known.get(question)
        if found is None:
            found = self._search(normalised(question))
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

    def _search(self, question: str) -> Gold:
        if question in self._alike:
            return self._one_answer(self._alike[question])
        cutoff = 100 * min(self.threshold, FAR)
        near_ones = process.extract(question, self._questions, scorer=fuzz.ratio, score_cutoff=cutoff, limit=2)
        if not near_ones:
            found = process.extractOne(question, self._questions, scorer=fuzz.ratio, score_cutoff=100 * TOLD)
            best_one = f"{found[1] / 100:.3f}" if found else f"below {TOLD:g}"
            raise NoGoldError(f"no question in the gold file is like it (best similarity {best_one})")
        best, score, _ = near_ones[0]
        ratio = score / 100
        typo = self.threshold < 1 and len(best) >= SHORTEST_TYPO and Levenshtein.distance(question, best) <= 1
        if ratio < self.threshold and not typo:
            words = f"best similarity {ratio:.3f}, below --gold-threshold {self.threshold:g}"
            raise NoGoldError(f"no question in the gold file is like it ({words})")
        if MARKS.findall(best) != MARKS.findall(question):
            words = f"similarity {ratio:.3f}) has other numbers or operators"
            raise NoGoldError(f"the nearest question in the gold file (row {self._alike[best][0].row}, {words}")
        equally_near = [gold for text, other, _ in near_ones if other == score for gold in self._alike[text]]
        return self._one_answer(equally_near)

    @staticmethod
    def _one_answer(candidates: Sequence[Gold]) -> Gold:
        if len({gold.answer for gold in candidates}) > 1:
            rows = ", ".join(str(gold.row) for gold in candidates)
            raise NoGoldError(f"rows {rows} of the gold file are equally like it and have different answers")
        return candidates[0]


def normalised(text: str) -> str:
    """Unicode's compatible form (NFKC), without case, white space as single blanks."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


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
