"""Request shapes of the embedded server: vLLM's names, and nothing accepted that would be silently ignored."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt

from orchestrator.generation.errors import ApiError
from orchestrator.generation.params import Sampling, sampling_problems

ANY: tuple[Any, ...] = ()
"""Marks a field that changes nothing here, whatever its value."""

# Fields of vLLM's requests that are accepted only at the values that ask for nothing.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "allowed_token_ids": (None,),
    "bad_words": (None, []),
    "best_of": (None, 1),
    "cache_salt": ANY,
    "chat_template": (None,),
    "documents": (None,),
    "echo": (None, False),
    "ec_transfer_params": (None,),
    "frequency_penalty": (None, 0),
    "include_reasoning": ANY,
    "include_stop_str_in_output": ANY,
    "kv_transfer_params": (None,),
    "length_penalty": (None, 1),
    "logit_bias": (None, {}),
    "logprob_token_ids": (None, []),
    "min_tokens": (None, 0),
    "mm_processor_kwargs": (None,),
    "parallel_tool_calls": ANY,
    "presence_penalty": (None, 0),
    "priority": (None, 0),
    "prompt_embeds": (None,),
    "reasoning_effort": (None,),
    "repetition_detection": (None,),
    "request_id": ANY,
    "response_format": (None, {"type": "text"}),
    "session_id": ANY,
    "spaces_between_special_tokens": ANY,
    "stop": (None, [], ""),
    "stream": (None, False),
    "stream_interval": ANY,
    "stream_options": (None,),
    "structured_outputs": (None,),
    "suffix": (None,),
    "thinking_token_budget": (None,),
    "tool_choice": (None, "none"),
    "truncate_prompt_tokens": (None,),
    "truncation_side": ANY,
    "use_beam_search": (None, False),
    "user": ANY,
    "vllm_xargs": (None, {}),
    "watermarking": (None, False),
}

Int64 = Annotated[StrictInt, Field(ge=-(2**63), lt=2**63)]
SmallInt = Annotated[StrictInt, Field(ge=-(2**31), lt=2**31)]


class _Request(BaseModel):
    """Unknown fields are kept, so that `reject_unknown` can name them."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False)

    model: str | None = None

    def reject_unknown(self) -> None:
        """Raise ApiError 400 for a field that this server does not know or could not honour."""
        for field, value in (self.model_extra or {}).items():
            neutral = NEUTRAL.get(field)
            if neutral is None:
                raise ApiError(f"unknown field {field!r}", param=field)
            if neutral and value not in neutral:
                raise ApiError(f"the embedded server does not support {field}={value!r}"[:300], param=field)


class _GenerateRequest(_Request):
    """What completions and chat have in common."""

    n: SmallInt | None = 1
    seed: Int64 | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: SmallInt | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    stop_token_ids: list[Int64] | None = None
    ignore_eos: StrictBool = False
    prompt_logprobs: SmallInt | None = None
    skip_special_tokens: StrictBool = True
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None

    def sampling(self, max_tokens: int) -> Sampling:
        """The sampling asked for, neutral where nothing was said. Raises ApiError 400 for a value out of range."""
        given = {
            name: value
            for name in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
            if (value := getattr(self, name)) is not None
        }
        sampling = Sampling(max_tokens, stop_token_ids=tuple(self.stop_token_ids or ()), **given)
        for field, problem in sampling_problems(sampling):
            raise ApiError(problem, param=field)
        return sampling


class CompletionRequest(_GenerateRequest):
    """POST /v1/completions: one prompt or several, as text or as token ids."""

    prompt: str | list[StrictInt] | list[str] | list[list[StrictInt]]
    max_tokens: SmallInt | None = 16
    logprobs: SmallInt | None = None
    add_special_tokens: bool = True


class ChatTemplateRequest(_Request):
    """What the chat template needs."""

    messages: list[dict[str, Any]]
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool = False
    chat_template_kwargs: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None


class ChatRequest(_GenerateRequest, ChatTemplateRequest):
    """POST /v1/chat/completions."""

    max_tokens: SmallInt | None = None
    max_completion_tokens: SmallInt | None = None
    logprobs: bool | None = False
    top_logprobs: SmallInt | None = 0


class TokenizePromptRequest(_Request):
    """POST /tokenize with `prompt`."""

    prompt: str
    add_special_tokens: bool = True
    return_token_strs: bool | None = False


class TokenizeChatRequest(ChatTemplateRequest):
    """POST /tokenize with `messages`."""

    return_token_strs: bool | None = False


class InitWeightTransfer(BaseModel):
    """POST /init_weight_transfer_engine."""

    model_config = ConfigDict(extra="forbid")
    init_info: dict[str, Any]


class UpdateWeights(BaseModel):
    """POST /update_weights; vLLM also takes a list, one entry per worker, of which there is one here."""

    model_config = ConfigDict(extra="forbid")
    update_info: dict[str, Any]


class FinishWeightUpdate(BaseModel):
    """POST /finish_weight_update."""

    model_config = ConfigDict(extra="forbid")
    weight_version: Annotated[str, Field(max_length=200)] | None = None
