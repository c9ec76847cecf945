"""One client for every generation server: ours and vLLM 0.32. Imports no torch."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import cached_property
from typing import Any, TypeVar

from orchestrator.generation import EMBEDDED
from orchestrator.generation.asking import completion_body, completions_of, one_by_one, seed_of
from orchestrator.generation.params import Sampling, sampling_problems
from orchestrator.generation.replies import Completion, choices_of, next_token_score, sequence_scores
from orchestrator.generation.transport import GenerationError, Transport

__all__ = ["Completion", "GenerationClient", "GenerationError", "Sampling"]

# For questions that need no generation.
FACT_TIMEOUT_S = 30.0

Value = TypeVar("Value")


class GenerationClient:
    """Speaks to one server. Every method raises GenerationError; none waits longer than `timeout_s` for an answer.

    Not for use by several threads at once: give each its own client.
    """

    def __init__(
        self, base_url: str, model: str | None = None, timeout_s: float = 600.0, *, token: str | None = None
    ) -> None:
        """`model` is the served name; None lets the server use its own. `token` is sent as a bearer token."""
        self.base_url, self.model = base_url.rstrip("/"), model
        self._token = token
        self._http = Transport(base_url, timeout_s, token)

    def health(self) -> bool:
        """True when the server is ready, False when it answers that it is not. Raises when nobody answers."""
        try:
            self._http.get("/health", timeout_s=FACT_TIMEOUT_S)
        except GenerationError as error:
            if error.status is None:
                raise
            return False
        return True

    def models(self) -> list[dict[str, Any]]:
        """Served models, each with `id`, `root` and `max_model_len`."""
        return self._read("/v1/models", lambda reply: list(reply["data"]))

    def server_info(self) -> dict[str, Any]:
        """The server's configuration tree (vLLM's `VllmConfig`); vLLM needs VLLM_SERVER_DEV_MODE=1 to tell."""
        return self._read("/server_info", lambda reply: dict(reply["vllm_config"]), {"config_format": "json"})

    def version(self) -> dict[str, Any]:
        """`version`, and `engine` where the server is the embedded one."""
        return self._read("/version", dict)

    def world_size(self) -> int:
        """Workers of the server, tensor parallel times data parallel."""
        return self._read("/get_world_size", lambda reply: int(reply["world_size"]))

    def weight_info(self) -> dict[str, Any]:
        """`weight_version`: what the last finished update named, "default" before the first."""
        return self._read("/weight_info", lambda reply: {**reply, "weight_version": reply["weight_version"]})

    def complete(
        self, prompts: Sequence[Sequence[int]], n: int, sampling: Sampling, seed: int | None
    ) -> list[list[Completion]]:
        """`n` completions for each prompt of token ids, [prompts][n].

        The same call gets the same again, but for `seed` None; equal prompts and neighbouring seeds get others.
        Raises ValueError for sampling that no server takes as it is said.
        """
        for _, problem in sampling_problems(sampling):
            raise ValueError(problem)
        if sampling.temperature == 0:
            # There is one answer only, and vLLM refuses to give it twice.
            return [group * n for group in self._complete(self._http, prompts, 1, sampling, seed)]
        if seed is None or not self._one_noise:
            return self._complete(self._http, prompts, n, sampling, seed)

        def ask(place: int) -> list[Completion]:
            with closing(Transport(self.base_url, self._http.timeout_s, self._token)) as own:
                (group,) = self._complete(own, [prompts[place]], n, sampling, seed_of(seed, place))
            return group

        return one_by_one(ask, len(prompts))

    def score(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """Log-probs (temperature 1, nothing filtered) of each sequence's tokens after the first.

        A sequence must be shorter than the server's max_model_len: the API insists on generating one more token.
        """
        body = {
            **self._named(),
            "prompt": [list(sequence) for sequence in sequences],
            "max_tokens": 1,
            "temperature": 0.0,
            "prompt_logprobs": 1,
        }
        reply = self._http.post("/v1/completions", body, repeatable=True)

        def read(reply: Any) -> list[list[float]]:
            choices = choices_of(reply, len(sequences))
            return [sequence_scores(choice, sequence) for choice, sequence in zip(choices, sequences, strict=True)]

        return self._checked("POST", "/v1/completions", read, reply)

    def score_stepwise(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        """As `score`, each token asked for by itself after those before it. vLLM only.

        vLLM (0.32) has no right log-probs of a prompt under an adapter: it dies on a CPU, and drops lm_head's part on a
        GPU (vllm-project/vllm issues 29955 and 51594). A sequence has at most 128 different tokens.
        """
        return [self._score_steps(sequence) for sequence in sequences]

    def _score_steps(self, sequence: Sequence[int]) -> list[float]:
        body = {
            **self._named(),
            "prompt": [list(sequence[:end]) for end in range(1, len(sequence))],
            "max_tokens": 1,
            "temperature": 1.0,
            "top_p": 1.0,
            "top_k": 0,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "logprobs": 0,
            "logprob_token_ids": sorted(set(sequence[1:])),
            "return_tokens_as_token_ids": True,
        }
        reply = self._http.post("/v1/completions", body, repeatable=True)

        def read(reply: Any) -> list[float]:
            choices = choices_of(reply, len(sequence) - 1)
            return [next_token_score(choice, token) for choice, token in zip(choices, sequence[1:], strict=True)]

        return self._checked("POST", "/v1/completions", read, reply)

    def tokenize(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids under the server's tokenizer."""
        body = {**self._named(), "prompt": text, "add_special_tokens": add_special_tokens}
        reply = self._http.post("/tokenize", body, repeatable=True)
        return self._checked("POST", "/tokenize", _tokens, reply)

    def tokenize_chat(self, messages: Sequence[Mapping[str, str]], template_kwargs: Mapping[str, Any]) -> list[int]:
        """Token ids of a conversation, ready for the answer, under the server's chat template."""
        body = {**self._named(), "messages": [dict(message) for message in messages], "add_generation_prompt": True}
        if template_kwargs:
            body["chat_template_kwargs"] = dict(template_kwargs)
        reply = self._http.post("/tokenize", body, repeatable=True)
        return self._checked("POST", "/tokenize", _tokens, reply)

    def init_weight_transfer(self, info: Mapping[str, Any]) -> None:
        """Open the server's weight-transfer engine; `info` is the backend's own."""
        self._http.post("/init_weight_transfer_engine", {"init_info": dict(info)})

    def update_weights(self, update_info: Mapping[str, Any], weight_version: str) -> None:
        """One whole update: start, update, finish. When the update is refused the server keeps its old version.

        Cached prefixes go with the old weights: neither the update nor the proof by log-probs would touch them.
        """
        self._http.post("/start_weight_update", {})
        self._http.post("/update_weights", {"update_info": dict(update_info)})
        self._http.post("/finish_weight_update", {"weight_version": weight_version})
        if not self.reset_prefix_cache():
            why = "prefixes that the old weights computed are still held, by requests under way"
            raise GenerationError("POST", self.base_url + "/reset_prefix_cache", 200, why)

    def load_adapter(self, name: str, path: str) -> None:
        """Serve the PEFT adapter in the folder `path` as a model of its own, `name`, which must be new.

        vLLM only, with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1.
        """
        self._http.post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": path}, reads=False)

    def unload_adapter(self, name: str) -> None:
        """Serve `name` no longer."""
        self._http.post("/v1/unload_lora_adapter", {"lora_name": name}, reads=False)

    def reset_prefix_cache(self) -> bool:
        """Forget cached prefixes; False when the server could not (requests under way). Older vLLM says nothing."""
        reply = self._http.post("/reset_prefix_cache", repeatable=True)
        return reply is None or bool(reply.get("success", True))

    def pause(self, mode: str = "wait") -> None:
        """Stop generating; returns when that holds. Requests under way are finished ("wait"), "abort"ed or frozen
        ("keep")."""
        self._http.post("/pause", params={"mode": mode}, repeatable=True)

    def resume(self) -> None:
        """Generate again, beginning with what arrived in between."""
        self._http.post("/resume", repeatable=True)

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    @cached_property
    def _one_noise(self) -> bool:
        """Whether the server draws the prompts of one request alike: all but ours do."""
        try:
            return self.version().get("engine") != EMBEDDED
        except GenerationError as error:
            if error.status is None:
                raise
            return True

    def _complete(
        self, http: Transport, prompts: Sequence[Sequence[int]], n: int, sampling: Sampling, seed: int | None
    ) -> list[list[Completion]]:
        path, body = "/v1/completions", completion_body(self._named(), prompts, n, sampling, seed)
        reply = http.post(path, body, repeatable=True)
        return self._checked("POST", path, lambda it: completions_of(it, prompts, n, sampling.max_tokens), reply)

    def _named(self) -> dict[str, str]:
        return {} if self.model is None else {"model": self.model}

    def _read(self, path: str, read: Callable[[Any], Value], params: Mapping[str, str] | None = None) -> Value:
        timeout_s = min(FACT_TIMEOUT_S, self._http.timeout_s)
        return self._checked("GET", path, read, self._http.get(path, params=params, timeout_s=timeout_s))

    def _checked(self, method: str, path: str, read: Callable[[Any], Value], reply: Any) -> Value:
        try:
            return read(reply)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            message = f"unexpected answer: {type(error).__name__}: {error}"
            raise GenerationError(method, self.base_url + path, 200, message) from error


def _tokens(reply: Any) -> list[int]:
    return [int(token) for token in reply["tokens"]]
