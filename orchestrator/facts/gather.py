"""What is true of this machine, its packages, the model's files and the data: gathered once, passed to rules as data.

Nothing here imports torch, transformers, trl or vllm, runs user code or reaches a network. Where a fact is not to be
had, its place holds a string that says why.
"""

import json
import os
import shutil
import socket
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from orchestrator.data import DataError, DataFacts, describe
from orchestrator.data.recipe import heldout_rows, training_rows
from orchestrator.facts.types import Facts, ModelFacts
from orchestrator.schema import RunConfig
from orchestrator.trainer_fields import FieldFact, SourceUnreadableError, trainer_fields
from rewards.signature import Signature, read_signature
from rewards.targets import LoadError

PACKAGES = (
    "orchestrate",
    "trl",
    "transformers",
    "torch",
    "accelerate",
    "hydra-core",
    "omegaconf",
    "math-verify",
    "fastapi",
    "uvicorn",
)
"""Packages whose versions the rules and the lock file name."""


def gather(run: RunConfig) -> Facts:
    """Everything the rules ask for, in about 0.2 s for a small recipe."""
    return Facts(
        versions=installed_versions(PACKAGES),
        models={name: model_facts(name, run.model.revision) for name in {run.model.name, run.generation.model} if name},
        data=_described(run, "train"),
        heldout=_described(run, "heldout") if run.evaluation.rows > 0 else None,
        signatures={f.target: _signature(f.target, f.params) for f in run.reward.functions if f.target},
        trainer_fields=_fields(run.trainer.kind),
        busy_ports=_busy(part.port for part in (run.generation, run.reward) if isinstance(part.port, int)),
        programs=frozenset(p for p in (run.generation.python, run.reward.python) if p and shutil.which(p)),
        environment=frozenset(os.environ),
        num_cpus=len(os.sched_getaffinity(0)),
    )


def installed_versions(packages: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def model_facts(name: str, revision: str | None) -> ModelFacts | str:
    """Facts of a checkpoint folder or of a hub id in the local cache; the reason when there are none."""
    folder = Path(name).expanduser()
    if not folder.is_dir():
        cached = _hub_snapshot(name, revision)
        if cached is None:
            looked_like_path = name.startswith(("/", ".", "~"))
            return (
                f"{name} is no folder" if looked_like_path else f"{name} is neither a folder nor in the local hub cache"
            )
        folder = cached
    try:
        config = _read_json(folder / "config.json")
        return _model_facts(folder, config)
    except (OSError, ValueError, KeyError) as error:
        return f"{folder}/config.json cannot be used: {error!r}"


def _model_facts(folder: Path, config: Mapping[str, Any]) -> ModelFacts | str:
    if not any(folder.glob("*.safetensors")):
        return f"{folder} holds no .safetensors weights"
    text = config.get("text_config", config)
    return ModelFacts(
        path=str(folder),
        vocab_size=int(text["vocab_size"]),
        max_positions=text.get("max_position_embeddings"),
        num_tokens=_num_tokens(folder),
        has_chat_template=_has_chat_template(folder),
    )


def _num_tokens(folder: Path) -> int | None:
    path = folder / "tokenizer.json"
    if not path.is_file():
        return None
    tokenizer = _read_json(path)
    vocab = tokenizer["model"]["vocab"]
    ids = set(vocab.values()) if isinstance(vocab, dict) else set(range(len(vocab)))
    return 1 + max(ids | {token["id"] for token in tokenizer.get("added_tokens", [])}, default=-1)


def _has_chat_template(folder: Path) -> bool:
    config = folder / "tokenizer_config.json"
    return (folder / "chat_template.jinja").is_file() or (
        config.is_file() and bool(_read_json(config).get("chat_template"))
    )


def _hub_snapshot(name: str, revision: str | None) -> Path | None:
    """Folder of a hub id in the local cache, by the cache's documented layout; nothing is downloaded."""
    home = Path(os.environ.get("HF_HOME", Path.home() / ".cache" / "huggingface"))
    cache = Path(os.environ.get("HF_HUB_CACHE", home / "hub")) / f"models--{name.replace('/', '--')}"
    ref = cache / "refs" / (revision or "main")
    commit = ref.read_text().strip() if ref.is_file() else (revision or "")
    snapshot = cache / "snapshots" / commit
    return snapshot if commit and snapshot.is_dir() else None


def _read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _described(run: RunConfig, split: str) -> DataFacts | str:
    try:
        return describe(training_rows(run) if split == "train" else heldout_rows(run))
    except DataError as error:
        return str(error)


def _signature(target: str, params: Iterable[str]) -> Signature | str:
    try:
        return read_signature(target, params)
    except LoadError as error:
        return str(error)


def _fields(kind: str) -> Mapping[str, FieldFact] | str:
    try:
        return trainer_fields(kind)
    except SourceUnreadableError as error:
        return str(error)


def _busy(ports: Iterable[int]) -> dict[int, str]:
    """Ports that somebody listens on, with their owner. A bind attempt says whether; /proc says who."""
    return {port: _owner(port) for port in ports if 0 < port < 65536 and _is_busy(port)}


def _is_busy(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except PermissionError:
            return False
        except OSError:
            return True
    return False


def _owner(port: int) -> str:
    from orchestrator.supervise.ports import port_owner

    return str(port_owner(port) or "a process that cannot be seen")
