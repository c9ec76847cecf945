"""The *.safetensors files of a checkpoint: their size, and what their headers say. No weight is read."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.facts.json_files import read_object

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
LARGEST_HEADER_BYTES = 100 * 2**20  # what the format allows
EMBEDDINGS = ("embed_tokens.weight", "wte.weight", "embed_in.weight", "word_embeddings.weight", "tok_embeddings.weight")
DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn"}


class WeightsError(Exception):
    """No weights that can be loaded, and why."""


@dataclass(frozen=True, kw_only=True)
class Weights:
    """None = the headers were not read, or do not say."""

    num_bytes: int
    on_disk: bool = True
    dtype: str | None = None
    """Of the embedding."""
    embedding_rows: int | None = None
    tied_embeddings: bool | None = None


def weights_on_disk(folder: Path) -> Weights:
    """Raises WeightsError, OSError and ValueError."""
    files = _files(folder)
    tensors: dict[str, Any] = {}
    for file in files:
        tensors |= _header(file)
    num_bytes = sum(file.stat().st_size for file in files)
    embedding = next((tensors.pop(name) for name in list(tensors) if name.endswith(EMBEDDINGS)), None)
    if embedding is None:
        return Weights(num_bytes=num_bytes)
    return Weights(
        num_bytes=num_bytes,
        dtype=DTYPES.get(embedding["dtype"]),
        embedding_rows=int(embedding["shape"][0]),
        # A head of its own has the embedding's shape, whatever its name.
        tied_embeddings=not any(one["shape"] == embedding["shape"] for one in tensors.values()),
    )


def _files(folder: Path) -> list[Path]:
    index, single = folder / INDEX, folder / SINGLE
    if single.is_file():
        return [single]
    if index.is_file():
        wanted = sorted({folder / name for name in read_object(index)["weight_map"].values()})
        missing = [path.name for path in wanted if not path.is_file()]
        if missing:
            raise WeightsError(
                f"{folder} lacks {len(missing)} of the {len(wanted)} weight files of {INDEX}: {missing[0]}"
                + (", ..." if len(missing) > 1 else "")
            )
        return wanted
    files = sorted(path for path in folder.glob("*.safetensors") if path.is_file())
    if not files:
        raise WeightsError(f"{folder} holds no .safetensors weights{_instead(folder)}")
    return files


def _instead(folder: Path) -> str:
    """What a folder without weights holds in their place."""
    if (folder / "adapter_config.json").is_file():
        return ", only an adapter for another model"
    for pattern in ("pytorch_model*.bin", "*.gguf", "*.pth", "*.pt", "tf_model.h5", "*.msgpack"):
        other = next(iter(sorted(folder.glob(pattern))), None)
        if other is not None:
            return f", only {other.name}: save it again with save_pretrained"
    return ""


def _header(file: Path) -> Mapping[str, Any]:
    """Name -> dtype and shape of each tensor, from the start of the file."""
    with file.open("rb") as opened:
        size = int.from_bytes(opened.read(8), "little")
        if not 2 <= size <= min(LARGEST_HEADER_BYTES, file.stat().st_size - 8):
            raise WeightsError(f"{file} is no safetensors file, or an incomplete one")
        header = json.loads(opened.read(size))
    return {name: one for name, one in header.items() if name != "__metadata__"}
