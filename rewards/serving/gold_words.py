"""When two texts are the same question: what is forgiven between them, which is little.

A wrong gold answer is worse than none, so only what cannot change a question is forgiven: white space around words and
operators, a capital at the start of a word, full-width forms, the mark at the text's end, and a slip in a long word.
Everything else must be the same in the same order: digits, signs, operators, formulas, names, short words.
"""

import re
import unicodedata
from collections.abc import Container
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from rapidfuzz.distance import Levenshtein

SHORTEST_FOLDED = 3  # letters of a word whose capital at the start is forgiven: "Mm" and "mm" are two units
SHORTEST_TYPO = 4  # letters of the longer of two words that may be a slip of each other
LONG_WORD = 6  # letters from which a word's end is not to be replaced
WORD_END = 3  # "propane" and "propene", "butanol" and "butanal" are no slips
FULL_WIDTH = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
DECODED = re.compile(r" (?=[.,;:?!](?: |$))| (?=(?:'(?:m|s|ve|re|d|ll)|n't)(?: |$))")  # blanks that tokenizers add
AROUND = re.compile(r"(?<=[\w)\]}]) ?([+*/=<>\u00d7\u00f7]) ?(?=[\w(\[{\\])")
AROUND_MINUS = re.compile(r"(?<=[\w)\]}]) ([-\u2212]) (?=[\w(\[{\\])")  # not "5 -3", which may be a list
WORD = re.compile(r"""([("']*)([^\W\d_]+)([)"'.,;:?!]*)""")
LETTERS = re.compile(r"[^\W\d_]+")
SLOT = "\0"
LONGEST_KEPT = 32  # characters of a token that is remembered

NEAR_OTHERS = (
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million billion trillion "
    "first second third fourth fifth sixth seventh eighth ninth tenth half once twice none never neither either more "
    "most less least last even ever same some than then above about lost lend lent send sent spend spent mean mode "
    "sine cosine sinh cosh tanh coth sech"
)
FIXED = frozenset(NEAR_OTHERS.split())
"""Words that a slip of one letter may turn into another one, which makes it another question: never slips."""


class Token(NamedTuple):
    """What stands between two blanks."""

    plain: str
    """Without a capital at the start of its word."""
    frame: str
    """With a slot for its word if that may be misspelt."""
    before: str = ""
    word: str = ""
    """Its letters, where there is nothing else but the marks before and after; else empty."""
    after: str = ""


@dataclass(frozen=True)
class Reading:
    """A text as it is compared."""

    tokens: tuple[Token, ...]
    plain: str
    """Equal texts ask the same."""
    frame: str
    """Where it differs, the question does."""
    letters: str
    """Nothing but its words."""


def read(text: str) -> Reading:
    text = unicodedata.normalize("NFC", text.translate(FULL_WIDTH))
    text = AROUND_MINUS.sub(r"\1", AROUND.sub(r"\1", DECODED.sub("", " ".join(text.split()))))
    found = (_without_final_mark(text) or text).split(" ")
    tokens = tuple([_known_token(each) if len(each) <= LONGEST_KEPT else _token(each) for each in found])
    return Reading(
        tokens=tokens,
        plain=" ".join([token.plain for token in tokens]),
        frame=" ".join([token.frame for token in tokens]),
        letters=" ".join(LETTERS.findall(text)).lower(),
    )


def _without_final_mark(text: str) -> str:
    """Not "5!", a factorial, nor "...", which goes on. No pattern: a long row of marks must take linear time."""
    marks = text[len(text.rstrip("?!")) :]
    if "?" in marks:
        return text[: len(text) - len(marks) + marks.index("?")].rstrip()
    if text.endswith((".", ",", ";", ":")) and not text.endswith(".."):
        return text[:-1].rstrip()
    return text


def words_of(reading: Reading) -> set[str]:
    """Its words in lower case."""
    return {token.word.lower() for token in reading.tokens}


def misspelt(asked: Reading, question: Reading, known: Container[str]) -> bool:
    """Whether they differ by slips in long words alone; `known` words are never slips. Needs equal frames."""
    return all(
        one.plain == other.plain or _slip(one, other, known, first=position == 0)
        for position, (one, other) in enumerate(zip(asked.tokens, question.tokens, strict=True))
    )


def _slip(asked: Token, right: Token, known: Container[str], *, first: bool) -> bool:
    if not asked.word or not right.word or (asked.before, asked.after) != (right.before, right.after):
        return False
    if right.word[0].isupper() and not first:  # a name: Ireland, Iceland
        return False
    wrong, word = asked.word.lower(), right.word.lower()
    if wrong in known or wrong in FIXED or word in FIXED or max(len(wrong), len(word)) < SHORTEST_TYPO:
        return False
    if wrong[0] != word[0] and not first:  # typical, atypical
        return False
    if len(wrong) == len(word) >= LONG_WORD and wrong[:-WORD_END] == word[:-WORD_END]:
        return False
    return Levenshtein.distance(wrong, word, score_cutoff=1) <= 1


def _token(text: str) -> Token:
    """Only scripts with capitals have words of letters: a Chinese sentence is compared as it is."""
    found = WORD.fullmatch(text)
    if found is None or not all(letter.isalpha() and letter.lower() != letter.upper() for letter in found[2]):
        return Token(text, text)
    before, word, after = found.groups()
    if len(word) < SHORTEST_FOLDED:
        return Token(text, text, before, word, after)
    plain = text.lower() if word[1:].islower() else text
    return Token(plain, f"{before}{SLOT}{after}", before, word, after)


_known_token = lru_cache(maxsize=65_536)(_token)
