"""Load a model folder for serving, or say in one sentence why it cannot be served."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

# Below this many parameters the barriers between threads cost more than the threads give (measured: 5 times).
ONE_THREAD_BELOW = 5_000_000


class StartupError(Exception):
    """The server cannot start; the message is one line for the user."""


@dataclass(frozen=True, kw_only=True)
class Served:
    """A loaded model and the facts about it that requests are checked against."""

    model: Any
    tokenizer: Any
    path: str
    max_model_len: int
    """Most tokens of prompt and completion together."""
    vocab_size: int
    """Rows of the embedding: ids from 0 to vocab_size - 1 are legal."""
    eos_ids: tuple[int, ...]
    dtype: str


def load(path: str, *, dtype: str, max_model_len: int | None) -> Served:
    """Load weights (safetensors only) and tokenizer from a local folder. Raises StartupError."""
    if not Path(path).is_dir():
        raise StartupError(f"--model {path} is not a folder")
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True, trust_remote_code=False)
        model = AutoModelForCausalLM.from_pretrained(
            path,
            dtype=dtype if dtype == "auto" else getattr(torch, dtype),
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
        )
    except Exception as error:  # whatever the folder holds wrong, the user gets its first line
        raise StartupError(f"cannot load {path}: {_first_line(error)}") from error
    model.eval().requires_grad_(False)
    if model.num_parameters() < ONE_THREAD_BELOW and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
    return Served(
        model=model,
        tokenizer=tokenizer,
        path=path,
        max_model_len=_context(model.config, max_model_len),
        vocab_size=model.get_input_embeddings().num_embeddings,
        eos_ids=eos_ids(model, tokenizer),
        dtype=str(model.dtype),
    )


def eos_ids(model: Any, tokenizer: Any) -> tuple[int, ...]:
    """Ids that end every completion: the tokenizer's (first) and those of the model's generation config."""
    named = model.generation_config.eos_token_id if model.generation_config is not None else None
    several = named if isinstance(named, list) else [named]
    return tuple(dict.fromkeys(i for i in (tokenizer.eos_token_id, *several) if i is not None))


def _context(config: Any, asked: int | None) -> int:
    limit: Any = getattr(config.get_text_config(), "max_position_embeddings", None)
    if asked is None and limit is None:
        raise StartupError("the model states no max_position_embeddings: pass --max-model-len")
    if asked is not None and limit is not None and asked > limit:
        raise StartupError(f"--max-model-len {asked} exceeds the model's max_position_embeddings {limit}")
    return asked if asked is not None else int(limit)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
