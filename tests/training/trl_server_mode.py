"""TRL's own server mode without a GPU: all of it is TRL's but the NCCL broadcast, which a file takes the place of.

The server is the embedded one; what it is sent, and when, is decided by TRL's VLLMGeneration as on a GPU.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from trl.generation import vllm_client, vllm_generation

from orchestrator.generation.client import GenerationClient
from orchestrator.generation.transfer import write_weights

Named = Iterable[tuple[str, torch.Tensor]]


class FileClient(vllm_client.VLLMClient):  # type: ignore[misc]
    """TRL's client, whose broadcast is a file."""

    folder: Path
    takes = 10**9
    """Updates that reach the server; it answers the later ones as well, and keeps its weights."""
    announced: list[list[str]]

    def init_communicator(self, device: Any = 0) -> None:
        assert self.get_server_info()["weight_transfer_config"] is not None
        self._server = GenerationClient(self.base_url, timeout_s=30)
        self._server.init_weight_transfer({"folder": str(self.folder)})

    def update_named_params(self, metadata: list[tuple[str, str, list[int]]], named_params: Iterator[Any]) -> None:
        type(self).announced.append([name for name, _, _ in metadata])
        # At once, as a broadcast does: after the last one TRL takes the adapters out of the weights again.
        sent = [(name, tensor.clone()) for name, tensor in named_params]
        assert [(n, str(t.dtype).removeprefix("torch."), list(t.shape)) for n, t in sent] == metadata
        number = len(self.announced)
        if number <= self.takes:
            path = self.folder / f"update-{number}.safetensors"
            write_weights(sent, path, {"weight_version": str(number)})
            self._server.update_weights({"path": str(path)}, str(number))


def without_nccl(monkeypatch: pytest.MonkeyPatch, folder: Path, takes: int = 10**9) -> type[FileClient]:
    """From now on TRL believes that vLLM is installed, and speaks through FileClient."""
    client = type("FileClientHere", (FileClient,), {"folder": folder, "takes": takes, "announced": []})
    for module in (vllm_client, vllm_generation):
        monkeypatch.setattr(module, "is_vllm_available", lambda min_version=None: True)
    monkeypatch.setattr(vllm_generation, "VLLMClient", client)
    return client
