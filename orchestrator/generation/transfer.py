"""The trainer's side of a weight sync: write a safetensors file, have the server load it, see that it did."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from orchestrator.generation.client import GenerationClient, GenerationError

_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class WeightSyncError(RuntimeError):
    """The server does not have the weights it was sent: its completions would come from another policy."""


def named_weights(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Every parameter under each of its names: a tied `lm_head.weight` too.

    vLLM on the CPU keeps a stale lm_head when a tied model sends the embedding alone.
    """
    yield from model.named_parameters(remove_duplicate=False)


def write_weights(
    named_tensors: Iterable[tuple[str, torch.Tensor]], path: Path, metadata: Mapping[str, str] | None = None
) -> None:
    """Write tensors to a safetensors file that appears under its name only when it is whole. Raises OSError."""
    tensors: dict[str, torch.Tensor] = {}
    stored: set[int] = set()
    for name, tensor in named_tensors:
        flat = tensor.detach().to("cpu").contiguous()
        # safetensors refuses two names for one memory: tied weights are written twice.
        tensors[name] = flat.clone() if flat.untyped_storage().data_ptr() in stored else flat
        stored.add(tensors[name].untyped_storage().data_ptr())
    partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        save_file(tensors, partial, metadata=dict(metadata or {}))
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


class SafetensorsSender:
    """Sends weights to one server through files in a folder that server reads from."""

    def __init__(self, client: GenerationClient, folder: Path) -> None:
        self.client, self.folder = client, folder.resolve()

    def open(self) -> None:
        """Have the server prepare, and check that it reads from our folder. Raises WeightSyncError."""
        try:
            self.client.init_weight_transfer({"folder": str(self.folder)})
        except GenerationError as error:
            raise WeightSyncError(f"the server takes no weights from {self.folder}: {error}") from error

    def send(self, named_tensors: Iterable[tuple[str, torch.Tensor]], version: str) -> None:
        """Replace the server's weights and prove by /weight_info that it now names `version`.

        `version` must be new, and fit for a file name. Raises WeightSyncError; the server then has its old weights,
        unless the message says otherwise.
        """
        if not _VERSION.fullmatch(version):
            raise ValueError(f"weight version {version!r} must be letters, digits, '.', '_' and '-'")
        path = self.folder / f"weights-{version}.safetensors"
        try:
            if self.client.weight_info()["weight_version"] == version:
                raise WeightSyncError(f"the server already names version {version}: an update would prove nothing")
            write_weights(named_tensors, path, {"weight_version": version})
            self.client.update_weights({"path": str(path)}, version)
            named = self.client.weight_info()["weight_version"]
        except GenerationError as error:
            raise WeightSyncError(f"weights {version} were not taken: {error}") from error
        finally:
            path.unlink(missing_ok=True)
        if named != version:
            raise WeightSyncError(f"the server accepted weights {version} but names version {named}")
