r"""How an answer is written, made uniform before it is compared: signs, separators, units, percent.

Nothing here parses mathematics, and everything takes linear time on any text.
"""

import re
from decimal import Decimal

from rewards.functions.text import without_styles

SAME_SIGN = str.maketrans({"−": "-", "－": "-", "％": "%", "\xa0": " ", "\u2009": " ", "\u202f": " ", "°": "^\\circ "})
FOREIGN_DIGIT = re.compile(r"(?![0-9])\d")
CURRENCY = re.compile(r"\\\$|[€£¥₹]")
SPELT_SEPARATOR = re.compile(r"(?<![\d.,])\d{1,3}(?:(?:,\\!|\\!,|\{,\}|\\,)\s?\d{3})+(?!\d)")
PERCENT = re.compile(r"(?<=[\d})])\s*(?:\\?%|\\text\{\s*percent\s*\}|percent\b)")
REPEATING = re.compile(r"(\d{1,15})?\.(\d{0,15})\\(?:overline|bar)\s*\{?(\d{1,15})\}?")
SCIENTIFIC = re.compile(r"(?<![\w.\\])\d{1,40}(?:\.\d{1,40})?[eE][+-]?\d{1,2}(?!\w)")
SEPARATED = re.compile(r"[+-]?\$?\s?\d{1,3}(?:(?:,\d{3})+|(?:(?:\\? |~)\d{3})+)(?:\.\d+)?")
SEPARATOR = re.compile(r"[^\d.+-]")
DELIMITERS = (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"), ("**", "**"))
ONLY_STYLE = re.compile(r"\\(?:text|math)\w*\s*\{[^{}]*\}")
MIXED = re.compile(r"([+-]?)(\d{1,15})\s+(\d{1,15})/(\d{1,15})")
SHORT_UNIT = r"(?:mm|cm|km|kg|mg|ml|ft|in|lb|oz|hr|mi|m|g|s|h)\b"
UNIT = (
    r"(?:\s|~|\\[ ,;:])*\\(?:text|mathrm|mbox)\{[^{}\d]*\}|"
    rf"\s+(?:[A-Za-z]{{3,}}|{SHORT_UNIT})\.?(?:[ /]+[A-Za-z]+\.?){{0,3}}"
)
WITH_UNIT = re.compile(rf"([+-]?\$?\s?\d[\d,]*(?:\.\d+)?|[+-]?\.\d+)({UNIT})(?:\^\{{?\d\}}?)?")
NO_UNIT = re.compile(
    r"\b(?:or|and|to|mod|more|less|than|not|no|times(?=\W+\w)|plus|minus|over|"
    r"(?:arc)?(?:sin|cos|tan)h?|log|ln|exp|sqrt|pi|infinity)\b",
    re.IGNORECASE,
)
PLUS_MINUS = re.compile(r"\\pm\b|±")
MINUS_PLUS = re.compile(r"\\mp\b|∓")
PLAIN_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d+)?|\.\d+)")
ANNOUNCED = re.compile(r"(?:the\s+)?(?:final\s+)?answer\s*(?:is|:|=)[\s:]*", re.IGNORECASE)
# math-verify takes these variables for units, and drops them: 2c, \frac{1}{2}h, 3ab.
VARIABLE = re.compile(r"(?:(?<=\})\s?([a-z])|(?<=\d)([cdto])|(?<=[\d}])(ab|bc))(?=\s*(?:\$|\\[)\]]|\Z))")
BASED = re.compile(r"(\d[0-9A-F]*)_\{?(\d{1,2})\}?")
FILLER = re.compile(r"\\left\b|\\right\b|\\[!,;:()\[\] ]|[$~]|(?<!\d)\s+|\s+(?!\d)")


def uniform(text: str) -> str:
    r"""The same text with ASCII signs and digits, and without currency signs, percent signs and `\,` in numbers."""
    text = FOREIGN_DIGIT.sub(lambda digit: str(int(digit[0])), text.translate(SAME_SIGN))
    text = SPELT_SEPARATOR.sub(lambda number: SEPARATOR.sub("", number[0]), CURRENCY.sub("", text))
    text = SCIENTIFIC.sub(lambda number: format(Decimal(number[0]), "f"), text)
    return REPEATING.sub(_fraction, PERCENT.sub("", text))


def single(text: str) -> str:
    """A text that is nothing but an answer: uniform, and without delimiters, a final period, and a number's unit."""
    text = uniform(_undressed(_unannounced(_undressed(text.strip()))))
    if SEPARATED.fullmatch(text):
        return SEPARATOR.sub("", text).lstrip("+")
    measured = WITH_UNIT.fullmatch(text)
    if measured and not NO_UNIT.search(measured[2]):
        return single(measured[1])
    mixed = MIXED.fullmatch(text)
    if mixed and int(mixed[3]) < int(mixed[4]):
        over = int(mixed[2]) * int(mixed[4]) + int(mixed[3])
        return rf"{mixed[1]}\frac{{{over}}}{{{mixed[4]}}}".lstrip("+")
    return text.replace("×", r"\times ").lstrip("+ ")


def hundredth(text: str) -> str | None:
    """The value of an answer that is one number with a percent sign; None where it is not."""
    number = single(text)
    if not PLAIN_NUMBER.fullmatch(number) or not PERCENT.search(text):
        return None
    return format(Decimal(number).scaleb(-2), "f")


def words(text: str) -> str:
    """An answer as a text to compare: only its letters, digits and signs, without type styles and white space."""
    return FILLER.sub("", without_styles(text)).rstrip(".")


def both_signs(text: str) -> str | None:
    r"""The two answers that `a \pm b` stands for, as a list; None without such a sign."""
    if not PLUS_MINUS.search(text):
        return None
    upper, lower = MINUS_PLUS.sub("-", PLUS_MINUS.sub("+", text)), MINUS_PLUS.sub("+", PLUS_MINUS.sub("-", text))
    return f"{upper}, {lower}"


def spelt_products(text: str) -> str:
    """LaTeX whose last variable cannot be taken for a unit."""
    return VARIABLE.sub(lambda found: rf" \cdot ({found[0].strip()})", text)


def _undressed(text: str) -> str:
    before = None
    while text != before:
        before = text
        text = text.rstrip(".,;: ")
        for opening, closing in DELIMITERS:
            inside = text[len(opening) : -len(closing)]
            if text.startswith(opening) and text.endswith(closing) and inside and opening not in inside:
                text = inside.strip()
        if ONLY_STYLE.fullmatch(text):
            text = without_styles(text).strip()
    return text


def _unannounced(text: str) -> str:
    announced = ANNOUNCED.match(text)
    return text[announced.end() :] if announced else text


def _fraction(number: re.Match[str]) -> str:
    whole, once, again = number[1] or "", number[2], number[3]
    before = int(whole + once or "0")
    return rf"\frac{{{int(whole + once + again) - before}}}{{{'9' * len(again)}{'0' * len(once)}}}"
