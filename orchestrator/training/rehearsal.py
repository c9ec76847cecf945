"""`python -P -m orchestrator.training.rehearsal`: what the trainer does before it loads a model, and no more.

For `check --deep`. Reads a list of ["arguments" or "prompts", recipe] from stdin, each recipe cut down to what is asked
about, and writes a list of what `try_arguments` and `count_prompts` say to stdout; both as JSON.
"""

import dataclasses
import json
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from omegaconf import OmegaConf

from orchestrator.data import DataError
from orchestrator.data.recipe import heldout_rows, training_rows
from orchestrator.fields.trainer import TRAINER_KINDS
from orchestrator.ledgers.batches import world_size
from orchestrator.resolve import resolve
from orchestrator.schema import RunConfig
from orchestrator.training.grpo import load_tokenizer, trainer_config
from orchestrator.training.prompts import prompt_lengths
from rewards.running.worker import die_with_parent, private_pipes


def try_arguments(run: RunConfig) -> dict[str, Any]:
    """{"refusal": the sentence of TRL's or transformers' refusal, or null; "needs_gpu": it is for want of a GPU}."""
    module, name = (TRAINER_KINDS[run.trainer.kind].config or "").split(":")
    config_class = _in_world_of(getattr(import_module(module), name), world_size(run))
    refusal = _refusal(config_class, run)
    if refusal is None or torch.cuda.is_available():
        return {"refusal": refusal, "needs_gpu": False}
    # What is left to refuse when transformers does not ask for a GPU: bf16 then passes, tf32 never does.
    trainer = dataclasses.replace(run.trainer, args={**run.trainer.args, "use_cpu": True, "tf32": None})
    elsewhere = _refusal(config_class, dataclasses.replace(run, trainer=trainer))
    return {"refusal": elsewhere or refusal, "needs_gpu": elsewhere is None}


def _in_world_of(config_class: Any, processes: int) -> Any:
    """The class, told how many processes there are: alone, this one would see itself, and divide by 1."""
    told = {"world_size": property(lambda self: processes)}
    return type(config_class.__name__, (config_class,), told)


def _refusal(config_class: Any, run: RunConfig) -> str | None:
    with TemporaryDirectory() as folder:
        try:
            trainer_config(config_class, run, Path(folder))
        except Exception as error:  # a config class may raise what it likes
            cause = error.__cause__ or error
            return str(cause) if isinstance(cause, ValueError) else f"{type(cause).__name__}: {cause}"
    return None


def count_prompts(run: RunConfig) -> dict[str, Any]:
    """{"train": {length: rows}, "heldout": {length: rows}}, lengths in tokens; or {"tokenizer" or "row": problem}."""
    try:
        tokenizer = load_tokenizer(run)
    except Exception as error:  # transformers raises what it likes
        return {"tokenizer": f"{type(error).__name__}: {error}"}
    given = run.trainer.args.get("chat_template_kwargs")
    template_kwargs = given if isinstance(given, dict) else None
    splits = (("train", "training", training_rows), ("heldout", "held-out", heldout_rows))
    try:
        return {
            key: Counter(prompt_lengths(tokenizer, rows_of(run), split, template_kwargs))
            for key, split, rows_of in splits
        }
    except DataError as error:
        return {"row": str(error)}


QUESTIONS = {"arguments": try_arguments, "prompts": count_prompts}


def _run(raw: dict[str, Any]) -> RunConfig:
    run, _ = resolve(OmegaConf.create(raw))
    return run


def main() -> int:
    requests, answers = private_pipes()
    die_with_parent()
    replies = [QUESTIONS[kind](_run(recipe)) for kind, recipe in json.loads(requests.read())]
    answers.write(json.dumps(replies).encode())
    answers.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
