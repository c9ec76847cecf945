"""The parts of a completion that several functions look at. Everything here takes linear time on any text."""

import re
from collections import deque
from numbers import Number

from rewards.batch import Text
from rewards.contract import short_repr

THINKING, END_OF_THINKING = "<think>", "</think>"
BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
BRACE = re.compile(r"[{}]")
STYLE = re.compile(r"\\(?:text(?:bf|it|rm|tt|sf|normal)?|math(?:rm|bf|it|sf|tt)|mbox|operatorname)\s*\{([^{}]*)\}")
DEEPEST_STYLE = 4  # styles within styles: \textbf{\text{B}}


def text_of(completion: Text) -> str:
    """What the model wrote: the text itself, or the contents of its own messages joined by newlines.

    A message without a role counts as the model's; those of the roles user, tool and system do not. Raises ValueError
    where no message of several is the model's: a completion without one was built wrongly, and is not a bad answer.
    """
    if not isinstance(completion, list):
        return conversation_of(completion)
    written = [m for m in completion if not isinstance(m, dict) or m.get("role") in (None, "assistant")]
    if completion and not written:
        roles = ", ".join(sorted({str(message["role"]) for message in completion}))
        raise ValueError(f"a completion has messages of the role {roles} only, and none of the role assistant")
    return conversation_of(written)


def conversation_of(messages: Text) -> str:
    """The text itself, or the contents of all messages (their text parts) joined by newlines. Raises ValueError."""
    if isinstance(messages, str):
        return messages
    if isinstance(messages, list) and all(isinstance(message, dict) for message in messages):
        return "\n".join(_content(message.get("content")) for message in messages)
    raise ValueError(f"a prompt or a completion is a string or a list of messages, not {type(messages).__name__}")


def gold_text(gold: object) -> str:
    """A gold answer as stripped text. Raises ValueError unless it is a text or a number: a list never equals a text."""
    if not isinstance(gold, (str, Number)):
        raise ValueError(f"the gold answer {short_repr(gold)} is not a text or a number")
    return str(gold).strip()


def after_thinking(text: str) -> str:
    """What follows the last `</think>`; all of it where there is none, for a model that does not think.

    Nothing follows a `<think>` that is never closed: the completion was cut off while thinking. A `</think>` needs no
    `<think>`, which many chat templates put into the prompt.
    """
    said = text.rpartition(END_OF_THINKING)[2]
    return "" if THINKING in said else said


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
    r"""What the last `\boxed{...}` (or `\fbox`) holds, braces balanced; None without one, or where it is not closed."""
    openings = deque(BOX.finditer(text), maxlen=1)
    if not openings:
        return None
    opening, depth = openings[0], 1
    for brace in BRACE.finditer(text, opening.end()):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return text[opening.end() : brace.start()]
    return None


def without_styles(text: str) -> str:
    r"""LaTeX without what only sets the type of words: `\textbf{(B)}` is `(B)`."""
    for _ in range(DEEPEST_STYLE):
        text, count = STYLE.subn(r"\1", text)
        if not count:
            break
    return text


def question_of(prompt: Text) -> str:
    """What the user asked: the last message of the role user, without system prompt and earlier turns.

    A prompt without one (a bare text, a single message of another role) is taken whole. Raises ValueError.
    """
    if isinstance(prompt, list):
        asked = [m for m in prompt if isinstance(m, dict) and m.get("role") == "user"]
        return conversation_of(asked[-1:] or prompt)
    return conversation_of(prompt)


def _content(content: object) -> str:
    if content is None:  # a message that only calls tools
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    raise ValueError(f"a message's content is a string or a list of parts, not {type(content).__name__}")
