"""Text of a completion, whichever of TRL's two forms it has."""

from rewards.batch import Text


def text_of(completion: Text) -> str:
    """The text itself, or the contents of the messages (their text parts) joined by newlines. Raises ValueError."""
    if isinstance(completion, str):
        return completion
    if isinstance(completion, list) and all(isinstance(message, dict) for message in completion):
        return "\n".join(_content(message.get("content")) for message in completion)
    raise ValueError(f"a completion is a string or a list of messages, not {type(completion).__name__}")


def _content(content: object) -> str:
    if content is None:  # a message that only calls tools
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    raise ValueError(f"a message's content is a string or a list of parts, not {type(content).__name__}")
