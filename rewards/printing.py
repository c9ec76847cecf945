"""Text from others on a terminal: what a server or a reward function said may hold anything."""

from typing import TextIO


def printable(text: str) -> str:
    """Escapes what is not printable: control characters move the cursor, half an emoji cannot be encoded."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text)


def say(text: str, stream: TextIO) -> None:
    """A line, whatever is in `text` and whatever the stream can encode. Raises BrokenPipeError."""
    encoding = stream.encoding or "utf-8"
    print(printable(text).encode(encoding, "backslashreplace").decode(encoding), file=stream, flush=True)
