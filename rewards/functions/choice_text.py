"""Which choice a text names: the reading of multiple_choice. Everything here takes linear time on any text.

`texts` maps each letter to the plain() text of its choice, or to "" where the texts are not known.
"""

import re
from collections import deque

from rewards.functions.text import last_boxed, last_tagged, without_styles

MARKUP = re.compile(r"\\boxed\s*\{|\\[()\[\]]|[$*`]|\\?~")
LATEX_SPACE = re.compile(r"\\[ ,;:!]|\\q?quad\b")
AROUND = re.compile(r"[\s{}()\[\]_\"'“”‘’]|[.,;:]$")
STATED = re.compile(r"\banswer\b[^\w\n]{0,4}(?:is|:|=)[^\w(\\]{0,8}", re.IGNORECASE)
LONGEST = 10_000  # characters of a box, or of a last line; what is longer names no choice
STATEMENT = 300  # characters after "answer is" that may belong to it
REASON = re.compile(
    r"\b(?:because|since|for the reason|(?<!well )as(?! well\b)|not|rather than|instead of)\b", re.IGNORECASE
)
DENIED = re.compile(r"\(?\b[A-Z]\b\)?\s+(?:is|are|was)\s+(?:wrong|incorrect|false|not)\b")
DENIED_LAST = re.compile(r"\b(?:not|never|neither|nor|than)\W{1,3}[A-Z]\W{0,5}$")
LABELLED = re.compile(r"[\s(_\[]{0,4}([A-Za-z])\s?(?:[).:\]]|[-–—](?=\s))+\s*(.*)", re.DOTALL)
TRAILING = re.compile(r"(.*\S)\s*[(\[]([A-Z])[)\]]\W{0,3}", re.DOTALL)
# A capital by itself that is not an article ("A dog", but "A is right"), and a small letter that is marked as a label.
LETTER = re.compile(
    r"(?<![\w'’])(?:([B-HJ-Z]|[AI](?!\s+(?!(?:is|or|and|because|since|as|may|might|maybe)\b)[a-z]))(?![\w'’])"
    r"|(?<!\()\(?([a-z])\))"
)
LEADING = re.compile(r"[^\w\n]{0,4}(?:(?:option|choice|letter)\W{1,3})?\(?[A-Z]\b", re.IGNORECASE)
CALLED_RIGHT = re.compile(
    r"[^\w\n]{0,4}(?:(?i:option|choice|letter)\W{1,3})?\(?[A-Z]\)?\s+is\s+(?:the\s+)?"
    r"(?:only\s+|best\s+|most\s+|final\s+)?(?:correct|right|answer|choice|option|best)\b"
)
CONNECTOR = r"(?:^|\b(?:or|and)\b|[,;/|(:)])\s*(?:(?:or|and|maybe|perhaps|possibly)\s+){0,3}"


def chosen(said: str, texts: dict[str, str]) -> str | None:
    """The letter that the completion chooses, or None."""
    tagged = last_tagged(said)
    part = said if tagged is None else tagged
    boxed = last_boxed(part)
    if boxed is not None:
        return _read(boxed, texts) if len(boxed) <= LONGEST else None
    if stated := deque(STATED.finditer(part), maxlen=1):
        end = stated[0].end()
        words = part[end : end + STATEMENT].partition("\n")[0]
        return _read(words, texts) or _only_letter(words, texts, LEADING)
    last_line = part.rstrip().rpartition("\n")[2]
    if len(last_line) > LONGEST:
        return None
    return _read(last_line, texts) or _only_letter(last_line, texts, CALLED_RIGHT) or _last_letter(last_line, texts)


def _read(words: str, texts: dict[str, str]) -> str | None:
    """The letter in words that are nothing but a choice: its letter, its text, or both in either order."""
    letter = bare(words)
    if letter in texts:
        return letter
    found = named(words, texts)
    if found:
        return found.pop() if len(found) == 1 else None
    words = _unmarked(words)
    if labelled := LABELLED.match(words):
        letter, rest = labelled[1].upper(), labelled[2]
    elif trailing := TRAILING.fullmatch(words):
        rest, letter = trailing[1], trailing[2]
        if texts.get(letter) != plain(rest):  # without known texts, a letter in brackets may be anything
            return None
    else:
        return None
    return letter if letter in texts and not _others(rest, letter, texts) else None


def _only_letter(words: str, texts: dict[str, str], form: re.Pattern[str]) -> str | None:
    """The only letter in words that have this form, as in "option B", or "Paris (B)"."""
    said = _without_reasons(_unmarked(words))
    found = _letters(said, texts)
    if len(found) != 1:
        return None
    letter = next(iter(found))
    start, trailing = form.match(said), TRAILING.fullmatch(said)
    ends_with_it = trailing is not None and form is LEADING and trailing[2] == letter
    if not ends_with_it and (start is None or letter not in _letters(start[0], texts)):
        return None
    return None if _others(said, letter, texts) else letter


def _last_letter(line: str, texts: dict[str, str]) -> str | None:
    """The only letter of a choice in a line that ends with it: "so I take C."."""
    found = _letters(_unmarked(line), texts) if not DENIED_LAST.search(line) else set()
    return next(iter(found)) if len(found) == 1 and bare(line)[-1:] in found else None


def _others(rest: str, letter: str, texts: dict[str, str]) -> bool:
    """Whether what stands beside a letter names another choice, by its letter or by its text."""
    said, own = " ".join(_without_reasons(rest).split()), texts[letter]
    if own and plain(said).startswith(own) and not plain(said)[len(own) : len(own) + 1].isalnum():
        said = said[max(said.casefold().find(own), 0) + len(own) :]
    if _letters(said, texts) - {letter}:
        return True
    return any(
        re.search(rf"{CONNECTOR}{re.escape(text)}(?!\w)", plain(said))
        for other, text in texts.items()
        if text and other != letter and text != own
    )


def _without_reasons(words: str) -> str:
    return REASON.split(DENIED.sub("", words), maxsplit=1)[0]


def _letters(words: str, texts: dict[str, str]) -> set[str]:
    found = {(capital or small).upper() for capital, small in LETTER.findall(words)}
    return {letter for letter in found if letter in texts}


def named(words: str, texts: dict[str, str]) -> set[str]:
    """Letters of the choices whose text this is; two choices may have the same."""
    said = plain(words)
    return {letter for letter, text in texts.items() if text and text == said}


def _unmarked(text: str) -> str:
    """The words without LaTeX and Markdown around them."""
    return MARKUP.sub("", LATEX_SPACE.sub(" ", without_styles(text)))


def plain(text: str) -> str:
    """A text as choices are compared: without case, markup, and what surrounds it."""
    return " ".join(_unmarked(text).casefold().split()).strip(" ._")


def bare(text: str) -> str:
    """The text without what is put around a letter, in capitals if it is one."""
    left = AROUND.sub("", AROUND.sub("", _unmarked(text)))
    return left.upper() if len(left) == 1 else left
