"""The trainer's side of a weight sync: write a safetensors file, have the server load it, see that it did."""

import errno
import json
import os
import re
import shutil
import struct
from collections.abc import Iterable, Mapping
from operator import length_hint
from pathlib import Path
from typing import Any, BinaryIO

import torch

from orchestrator.generation.client import GenerationClient, GenerationError
from orchestrator.generation.model_weights import Named, named_weights

__all__ = ["SafetensorsSender", "WeightSyncError", "named_weights", "write_weights"]

_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

# From the description of the format (github.com/huggingface/safetensors): eight bytes with the header's length, the
# header as JSON, which spaces may pad, then the tensors' bytes without gaps.
CODES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.float64: "F64"}
HEADER_BYTES_EACH = 256
"""Room for a tensor's entry: its name, and some hundred bytes of shape and offsets."""
UNKNOWN_COUNT = 10_000
"""Tensors that there is room for where nobody says how many will come."""


class WeightSyncError(RuntimeError):
    """The server does not have the weights it was sent: its completions would come from another policy."""


def write_weights(
    named_tensors: Iterable[Named],
    path: Path,
    metadata: Mapping[str, str] | None = None,
    dtype: torch.dtype | None = None,
) -> None:
    """Write floating-point tensors to a safetensors file that appears under its name only when it is whole.

    One tensor is in memory at a time: the header is written last, into room that is kept for it. `dtype` converts;
    None = each has its own. Raises OSError, and WeightSyncError for what is no floating-point tensor.
    """
    room = HEADER_BYTES_EACH * (1 + length_hint(named_tensors, UNKNOWN_COUNT))
    header: dict[str, Any] = {"__metadata__": dict(metadata or {})}
    partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with partial.open("wb") as file:
            file.seek(struct.calcsize("<Q") + room)
            header |= _write_tensors(file, named_tensors, dtype)
            file.seek(0)
            file.write(struct.pack("<Q", room) + _padded(header, room))
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _write_tensors(file: BinaryIO, named: Iterable[Named], dtype: torch.dtype | None) -> dict[str, Any]:
    """Returns the tensors' entries in the header."""
    entries, end = {}, 0
    for name, tensor in named:
        flat = tensor.detach().to("cpu", dtype).contiguous()
        if flat.dtype not in CODES:
            raise WeightSyncError(f"{name} has dtype {flat.dtype}; only floating-point weights are sent")
        start, end = end, end + flat.nbytes
        file.write(flat.reshape(-1).view(torch.uint8).numpy().data)
        entries[name] = {"dtype": CODES[flat.dtype], "shape": list(flat.shape), "data_offsets": [start, end]}
    return entries


def _padded(header: Mapping[str, Any], room: int) -> bytes:
    text = json.dumps(header, separators=(",", ":")).encode()
    if len(text) > room:
        raise ValueError(f"{len(header) - 1} tensors need a header of {len(text)} bytes; there is room for {room}")
    return text.ljust(room)


class SafetensorsSender:
    """Sends weights to one server through files in a folder that server reads from. For one process."""

    def __init__(self, client: GenerationClient, folder: Path, dtype: torch.dtype | None = None) -> None:
        """`dtype` is the served weights'; None sends the trainer's."""
        self.client, self.folder, self.dtype = client, folder.resolve(), dtype

    def open(self) -> None:
        """Have the server prepare, and check that it reads from our folder. Raises WeightSyncError."""
        try:
            self.client.init_weight_transfer({"folder": str(self.folder)})
        except GenerationError as error:
            raise WeightSyncError(f"the server takes no weights from {self.folder}: {error}") from error

    def send(self, named_tensors: Iterable[Named], version: str) -> None:
        """Replace the server's weights and prove by /weight_info that it now names `version`.

        `version` must be new, and fit for a file name. Raises WeightSyncError; the server then has its old weights,
        unless the message says otherwise.
        """
        self.write(named_tensors, version)
        self.load(version)

    def write(self, named_tensors: Iterable[Named], version: str) -> None:
        """The first half of `send`: the file. Raises WeightSyncError; the server knows nothing of it yet."""
        path = self._path(version)
        try:
            write_weights(named_tensors, path, {"weight_version": version}, self.dtype)
        except OSError as error:
            raise WeightSyncError(_why_not_written(path, error)) from error

    def load(self, version: str) -> None:
        """The second half: the server takes the file, which is gone afterwards. Raises WeightSyncError."""
        path = self._path(version)
        try:
            if self.client.weight_info()["weight_version"] == version:
                raise WeightSyncError(f"the server already names version {version}: an update would prove nothing")
            self.client.update_weights({"path": str(path)}, version)
            named = self.client.weight_info()["weight_version"]
        except GenerationError as error:
            raise WeightSyncError(f"weights {version} were not taken: {error}") from error
        finally:
            path.unlink(missing_ok=True)
        if named != version:
            raise WeightSyncError(f"the server accepted weights {version} but names version {named}")

    def _path(self, version: str) -> Path:
        if not _VERSION.fullmatch(version):
            raise ValueError(f"weight version {version!r} must be letters, digits, '.', '_' and '-'")
        return self.folder / f"weights-{version}.safetensors"


def _why_not_written(path: Path, error: OSError) -> str:
    problem = f"the weights cannot be written to {path.parent}: {error.strerror or error}"
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return problem
    usage = shutil.disk_usage(path.parent)
    return (
        f"{problem}. It holds {usage.total / 2**30:.2f} GiB, of which {usage.free / 2**30:.2f} are free now. "
        "fix: free space there; in a container, start it with a larger --shm-size"
    )
