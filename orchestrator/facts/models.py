"""What a checkpoint's files say: from a folder or the local hub cache, or, only when asked for, from the hub."""

from functools import lru_cache
from pathlib import Path

from orchestrator.facts.hub import HubError, cached_snapshot, fetch_small_files
from orchestrator.facts.json_files import object_if_there, read_object
from orchestrator.facts.model_config import Architecture, architecture, ids
from orchestrator.facts.tokenizer import tokenizer_facts
from orchestrator.facts.types import ModelFacts
from orchestrator.facts.weights import Weights, WeightsError, weights_on_disk

Stamp = tuple[tuple[str, int, int], ...]
"""Name, time of change in ns and bytes of every file of a folder."""


def model_facts(name: str, revision: str | None, *, online: bool = False) -> ModelFacts | str:
    """Facts of a checkpoint folder or of a hub id in the local cache; the reason when there are none.

    `online` asks the hub about a model that is not here: its small files are downloaded, never its weights.
    """
    folder = Path(name).expanduser()
    if folder.is_dir():
        return _facts_of(folder, _stamp(folder))
    if name.startswith(("/", ".", "~")):
        return f"{name} is no folder"
    cached = cached_snapshot(name, revision)
    facts = _facts_of(cached, _stamp(cached)) if cached else f"{name} is neither a folder nor in the local hub cache"
    if isinstance(facts, ModelFacts) or not online:
        return facts
    try:
        fetched, weights = fetch_small_files(name, revision)
    except (HubError, WeightsError) as error:
        return str(error)
    return _facts_of(fetched, _stamp(fetched), weights)


def _stamp(folder: Path) -> Stamp:
    files = ((path.name, path.stat()) for path in folder.iterdir() if path.is_file())
    return tuple(sorted((name, stat.st_mtime_ns, stat.st_size) for name, stat in files))


@lru_cache(maxsize=64)
def _facts_of(folder: Path, stamp: Stamp, weights: Weights | None = None) -> ModelFacts | str:
    """`stamp` is not looked at: with it, a folder that has changed is read again. `weights` None = those on disk."""
    try:
        config = architecture(read_object(folder / "config.json"))
        eos_ids = _eos_ids(folder) or config.eos_ids
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        return f"{folder}/config.json cannot be used: {error!r}"
    try:
        return _combined(folder, config, eos_ids, weights or weights_on_disk(folder))
    except WeightsError as error:
        return str(error)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        return f"the weights' index or the tokenizer's files in {folder} cannot be used: {error!r}"


def _combined(
    folder: Path, config: Architecture, eos_ids: tuple[int, ...] | None, weights: Weights
) -> ModelFacts | str:
    vocab_size = config.vocab_size or weights.embedding_rows
    if vocab_size is None:
        return f"{folder}/config.json cannot be used: it has no vocab_size"
    tokenizer = tokenizer_facts(folder)
    return ModelFacts(
        path=str(folder),
        vocab_size=vocab_size,
        max_positions=config.max_positions,
        num_tokens=tokenizer.num_tokens,
        num_base_tokens=tokenizer.num_base_tokens,
        has_chat_template=tokenizer.has_chat_template,
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        num_layers=config.num_layers,
        head_dim=config.head_dim,
        weight_bytes=weights.num_bytes,
        weight_dtype=config.dtype or weights.dtype,
        num_experts=config.num_experts,
        tied_embeddings=weights.tied_embeddings if config.tied_embeddings is None else config.tied_embeddings,
        generation_eos_ids=eos_ids,
        tokenizer_eos_id=tokenizer.eos_id,
        tokenizer_sha256=tokenizer.sha256,
        prompt_files_sha256=tokenizer.prompt_files_sha256,
        weights_on_disk=weights.on_disk,
    )


def _eos_ids(folder: Path) -> tuple[int, ...] | None:
    found = object_if_there(folder / "generation_config.json").get("eos_token_id")
    return None if found is None else ids(found)
