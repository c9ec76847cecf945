"""A sequence classifier as a scorer of texts: tokenizing samples, and batched forward passes.

torch is loaded by the function that needs it, so that importing this module costs nothing.
"""

import importlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rewards.batch import Text
from rewards.functions.text import conversation_of, text_of

TEMPLATES = ("auto", "chat", "text", "pair")
TOO_LONG = ("error", "truncate_left")
DTYPES = ("auto", "float32", "bfloat16", "float16")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Which model, and how it is run. Raises ValueError for what cannot be meant."""

    model: str
    """A folder, or an id on the Hugging Face hub."""
    revision: str | None = None
    """Branch, tag or commit on the hub."""
    device: str = "auto"
    """`cpu`, `cuda:0`, ...; auto: the first GPU where there is one."""
    dtype: str = "auto"
    """One of DTYPES; auto: that of the weights."""
    batch_size: int = 16
    """Most sequences in a forward pass."""
    max_tokens: int | None = None
    """Most tokens in a forward pass, padding included; a longer sequence goes alone."""
    max_length: int | None = None
    """Longest sequence, in tokens; None: what model and tokenizer take."""
    template: str = "auto"
    """chat: the tokenizer's chat template. text: prompt and completion joined without anything between. pair: the
    tokenizer's two segments. auto: chat for prompts that are messages, text for others."""
    too_long: str = "error"
    """Of a longer sequence: an error, or the end of it."""
    label_index: int | None = None
    """Which output is the score, of a model with several."""
    threads: int | None = None
    """CPU threads of this process for torch; None: as it is (a worker has one)."""

    def __post_init__(self) -> None:
        if not isinstance(self.model, str) or not self.model:
            raise ValueError(f"params.model must be a folder or a hub id, not {self.model!r}")
        for name, known in (("template", TEMPLATES), ("too_long", TOO_LONG), ("dtype", DTYPES)):
            if getattr(self, name) not in known:
                raise ValueError(f"params.{name} must be one of {known}, not {getattr(self, name)!r}")
        for name, least in (
            ("batch_size", 1),
            ("max_tokens", 1),
            ("max_length", 1),
            ("label_index", 0),
            ("threads", 1),
        ):
            value = getattr(self, name)
            given = value is not None or name == "batch_size"
            if given and (isinstance(value, bool) or not isinstance(value, int) or value < least):
                raise ValueError(f"params.{name} must be an integer of at least {least}, not {value!r}")


@dataclass(frozen=True, kw_only=True)
class Classifier:
    """A model that is ready to score."""

    options: Options
    model: Any
    tokenizer: Any
    limit: int
    """Longest sequence, in tokens."""
    output: int
    """Index of the score among the model's outputs."""
    pad_id: int | None
    """The padding token that the model was trained with; None: none is known."""

    def score(self, prompts: Sequence[Text], completions: Sequence[Text]) -> list[float]:
        """One number per sample, as the model gives it. Raises ValueError for a sample that cannot be encoded."""
        pairs = zip(prompts, completions, strict=True)
        encoded = [self._encoded(i, prompt, completion) for i, (prompt, completion) in enumerate(pairs)]
        scores = [math.nan] * len(encoded)
        for members in micro_batches([len(e["input_ids"]) for e in encoded], self._rows, self.options.max_tokens):
            for index, score in zip(members, self._forward([encoded[i] for i in members]), strict=True):
                scores[index] = score
        return scores

    @property
    def _rows(self) -> int:
        """At least one token must be left for padding: see _forward."""
        return max(1, min(self.options.batch_size, len(self.tokenizer) - 1))

    def _encoded(self, sample: int, prompt: Text, completion: Text) -> dict[str, list[int]]:
        cut = {"truncation": True, "max_length": self.limit} if self.options.too_long == "truncate_left" else {}
        template = self.options.template
        if template == "chat" or (template == "auto" and isinstance(prompt, list)):
            text = self._chat(sample, prompt, completion)
            encoded = self.tokenizer(text, add_special_tokens=False, **cut)
        elif template == "pair":
            encoded = self.tokenizer(conversation_of(prompt), text_of(completion), **cut)
        else:
            encoded = self.tokenizer(conversation_of(prompt) + text_of(completion), **cut)
        length = len(encoded["input_ids"])
        if not 0 < length <= self.limit:
            room = f"at most {self.limit} fit (params.max_length, too_long)" if length else "there is nothing to score"
            raise ValueError(f"sample {sample} has {length} tokens for {self.options.model}, {room}")
        return {name: list(encoded[name]) for name in ("input_ids", "token_type_ids") if name in encoded}

    def _chat(self, sample: int, prompt: Text, completion: Text) -> str:
        from jinja2.exceptions import TemplateError

        asked = prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}]
        said = completion if isinstance(completion, list) else [{"role": "assistant", "content": completion}]
        try:
            return str(self.tokenizer.apply_chat_template([*asked, *said], tokenize=False, add_generation_prompt=False))
        except (TemplateError, ValueError, TypeError) as error:  # no template, or roles that it does not know
            raise ValueError(f"sample {sample}: the chat template of {self.options.model}: {error}") from error

    def _forward(self, encoded: Sequence[dict[str, list[int]]]) -> list[float]:
        """Classifiers of decoders read their score at the last token that is not padding, so where the model names no
        padding token, it is one that ends none of these sequences: the score is then read at the true last token.
        """
        torch: Any = importlib.import_module("torch")
        pad_id, longest = self.pad_id, max(len(e["input_ids"]) for e in encoded)
        if pad_id is None:
            ends = {e["input_ids"][-1] for e in encoded}
            pad_id = next(i for i in range(len(ends) + 1) if i not in ends)
            self.model.config.get_text_config().pad_token_id = pad_id
        fill = {"input_ids": pad_id, "token_type_ids": 0}
        columns = {n: [e[n] + [fill[n]] * (longest - len(e[n])) for e in encoded] for n in encoded[0]}
        mask = [[1] * len(e["input_ids"]) + [0] * (longest - len(e["input_ids"])) for e in encoded]
        device = self.model.device
        try:
            with torch.inference_mode():
                inputs = {name: torch.tensor(rows, device=device) for name, rows in columns.items()}
                logits = self.model(**inputs, attention_mask=torch.tensor(mask, device=device)).logits
                return [float(score) for score in logits[:, self.output].float().tolist()]
        except torch.OutOfMemoryError as error:
            size = f"{len(encoded)} sequences of {longest} tokens"
            raise RuntimeError(f"{device} has no memory for {size}: lower params.batch_size or max_tokens") from error


def micro_batches(lengths: Sequence[int], batch_size: int, max_tokens: int | None) -> Iterator[list[int]]:
    """Indices by falling length: little padding, and what does not fit into memory shows at once."""
    left = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    while left:
        rows = batch_size if max_tokens is None else min(batch_size, max(1, max_tokens // lengths[left[0]]))
        yield left[:rows]
        left = left[rows:]
