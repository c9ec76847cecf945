"""The parts of a completion that several functions look at. Everything here takes linear time on any text."""

import re
from numbers import Number

from rewards.batch import Text
from rewards.contract import short_repr

END_OF_THINKING = "</think>"
BOX = "\\boxed{"
BRACE = re.compile(r"[{}]")


def text_of(completion: Text) -> str:
    """The text itself, or the contents of the messages (their text parts) joined by newlines. Raises ValueError."""
    if isinstance(completion, str):
        return completion
    if isinstance(completion, list) and all(isinstance(message, dict) for message in completion):
        return "\n".join(_content(message.get("content")) for message in completion)
    raise ValueError(f"a completion is a string or a list of messages, not {type(completion).__name__}")


def gold_text(gold: object) -> str:
    """A gold answer as stripped text. Raises ValueError unless it is a text or a number: a list never equals a text."""
    if not isinstance(gold, (str, Number)):
        raise ValueError(f"the gold answer {short_repr(gold)} is not a text or a number")
    return str(gold).strip()


def after_thinking(text: str) -> str:
    """What follows the last `</think>`; all of it where there is none."""
    return text.rpartition(END_OF_THINKING)[2]


def last_tagged(text: str, tag: str = "answer") -> str | None:
    """What the last `<tag>...</tag>` holds, or None. Of nested ones it is the innermost."""
    opening, closing = f"<{tag}>", f"</{tag}>"
    start = text.rfind(opening, 0, max(text.rfind(closing), 0))
    if start < 0:
        return None
    start += len(opening)
    return text[start : text.index(closing, start)]


def answer_part(text: str) -> str:
    """The stripped answer: the last <answer>...</answer> after the thinking, or all that follows the thinking."""
    said = after_thinking(text)
    tagged = last_tagged(said)
    return (said if tagged is None else tagged).strip()


def last_boxed(text: str) -> str | None:
    r"""What the last `\boxed{...}` holds, braces balanced; None without one, or where it is never closed."""
    start = text.rfind(BOX)
    if start < 0:
        return None
    depth = 1
    for brace in BRACE.finditer(text, start + len(BOX)):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return text[start + len(BOX) : brace.start()]
    return None


def question_of(prompt: Text) -> str:
    """What the user asked: the last message of the role user, without system prompt and earlier turns.

    A prompt without one (a bare text, a single message of another role) is taken whole. Raises ValueError.
    """
    if isinstance(prompt, list):
        asked = [m for m in prompt if isinstance(m, dict) and m.get("role") == "user"]
        return text_of(asked[-1:] or prompt)
    return text_of(prompt)


def _content(content: object) -> str:
    if content is None:  # a message that only calls tools
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    raise ValueError(f"a message's content is a string or a list of parts, not {type(content).__name__}")
