"""Text to token ids and back, with the tokenizer's failures turned into answers."""

import functools
from collections.abc import Sequence
from typing import Any

from orchestrator.generation.errors import ApiError
from orchestrator.generation.protocol import ChatTemplateRequest

# Arguments of apply_chat_template that a request must not set through chat_template_kwargs.
_RESERVED = frozenset(
    (
        "conversation", "tools", "documents", "chat_template", "add_generation_prompt", "continue_final_message",
        "tokenize", "padding", "truncation", "max_length", "return_tensors", "return_dict",
        "return_assistant_tokens_mask", "tokenizer_kwargs",
    )
)  # fmt: skip


class Text:
    """A tokenizer, as the server uses it."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        # Log-prob tables decode the same ids again and again.
        self.token = functools.lru_cache(maxsize=65536)(self._token)

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Token ids. Raises ApiError 400 for text that is not valid Unicode."""
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ApiError(f"the prompt is not valid Unicode: {error.reason}", param="prompt") from error
        return list(self.tokenizer(text, add_special_tokens=add_special_tokens)["input_ids"])

    def render(self, request: ChatTemplateRequest) -> list[int]:
        """Token ids of a conversation under the model's chat template. Raises ApiError 400."""
        if not self.tokenizer.chat_template:
            raise ApiError("the model's tokenizer has no chat template", param="messages")
        if not request.messages:
            raise ApiError("messages must not be empty", param="messages")
        if request.continue_final_message and request.add_generation_prompt:
            raise ApiError("continue_final_message and add_generation_prompt exclude each other")
        extra = request.chat_template_kwargs or {}
        if clash := sorted(_RESERVED & set(extra)):
            raise ApiError(f"chat_template_kwargs must not set {', '.join(clash)}", param="chat_template_kwargs")
        try:
            text = self.tokenizer.apply_chat_template(
                [_with_text(message) for message in request.messages],
                tools=request.tools,
                add_generation_prompt=request.add_generation_prompt,
                continue_final_message=request.continue_final_message,
                tokenize=False,
                **extra,
            )
        except ApiError:
            raise
        except Exception as error:  # the template is the model's, the messages are the caller's: either may be odd
            raise ApiError(f"the chat template cannot render these messages: {error}", param="messages") from error
        return self.encode(str(text), add_special_tokens=request.add_special_tokens)

    def decode_all(self, rows: Sequence[Sequence[int]], *, skip_special_tokens: bool) -> list[str]:
        """One text per row of ids."""
        return list(self.tokenizer.batch_decode(rows, skip_special_tokens=skip_special_tokens))

    def token_strs(self, ids: Sequence[int]) -> list[str]:
        """The tokenizer's own spelling of each id."""
        return [token or "" for token in self.tokenizer.convert_ids_to_tokens(list(ids))]

    def _token(self, token_id: int) -> str:
        return str(self.tokenizer.decode([token_id]))


def _with_text(message: dict[str, Any]) -> dict[str, Any]:
    """The message with its text parts joined; other parts (images) are refused."""
    if not isinstance(message.get("role"), str):
        raise ApiError("every message needs a role", param="messages")
    content = message.get("content")
    if not isinstance(content, list):
        return message
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise ApiError("the embedded server reads text parts only", param="messages")
    return {**message, "content": "\n".join(part["text"] for part in content)}
