"""Models by hub id: in the local cache, or, only when asked for, their small files from the hub."""

import os
from collections.abc import Mapping
from pathlib import Path

from orchestrator.facts.json_files import read_object
from orchestrator.facts.tokenizer import PROMPT_FILES
from orchestrator.facts.weights import INDEX, SINGLE, Weights, WeightsError

SMALL_FILES = (*PROMPT_FILES, "generation_config.json", INDEX)
TIMEOUT_S = 10.0
"""Of one request."""


class HubError(Exception):
    """The hub does not answer, or not with what a model needs."""


def cached_snapshot(name: str, revision: str | None) -> Path | None:
    """Folder of a hub id in the local cache, by the cache's documented layout; nothing is downloaded."""
    cache = _cache_dir() / f"models--{name.replace('/', '--')}"
    ref = cache / "refs" / (revision or "main")
    commit = ref.read_text().strip() if ref.is_file() else (revision or "")
    snapshot = cache / "snapshots" / commit
    return snapshot if commit and snapshot.is_dir() else None


def fetch_small_files(name: str, revision: str | None) -> tuple[Path, Weights]:
    """Download all but the weights into the local cache; those are only measured. Raises HubError, WeightsError."""
    from huggingface_hub import HfApi, hf_hub_download

    try:
        info = HfApi().model_info(name, revision=revision, files_metadata=True, timeout=TIMEOUT_S)
        sizes = {file.rfilename: file.size for file in info.siblings or []}
        paths = [
            Path(hf_hub_download(name, file, revision=info.sha, etag_timeout=TIMEOUT_S))
            for file in SMALL_FILES
            if file in sizes
        ]
    except Exception as error:  # which HTTP library raises here differs between versions of huggingface_hub
        first_line = str(error).strip().partition("\n")[0]
        raise HubError(f"{name} cannot be had from the hub: {type(error).__name__}: {first_line}") from error
    if "config.json" not in sizes:
        raise HubError(f"{name} on the hub has no config.json")
    folder = paths[0].parent
    return folder, _weights(name, folder, sizes)


def _weights(name: str, folder: Path, sizes: Mapping[str, int | None]) -> Weights:
    if SINGLE in sizes:
        files = {SINGLE}
    elif INDEX in sizes:
        try:
            files = set(read_object(folder / INDEX)["weight_map"].values())
        except (OSError, ValueError, KeyError, AttributeError) as error:
            raise WeightsError(f"{INDEX} of {name} on the hub cannot be used: {error!r}") from error
    else:
        files = {file for file in sizes if file.endswith(".safetensors") and "/" not in file}
    if not files:
        raise WeightsError(f"{name} on the hub has no .safetensors weights")
    known = [size for file in files if (size := sizes.get(file)) is not None]
    if len(known) < len(files):
        raise WeightsError(f"the hub lacks some of the {len(files)} weight files of {name}, or their sizes")
    return Weights(num_bytes=sum(known), on_disk=False)


def _cache_dir() -> Path:
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    cache = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE") or Path(home, "hub")
    return Path(os.path.expandvars(cache)).expanduser()
