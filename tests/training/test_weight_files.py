"""Weight files: streamed, in the server's dtype, and a full disk is said as one."""

import errno
import os
import weakref
from collections.abc import Iterator
from operator import length_hint
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from orchestrator.assets import TINY_MATH
from orchestrator.generation.client import GenerationClient
from orchestrator.generation.transfer import SafetensorsSender, WeightSyncError, named_weights, write_weights

NOBODY = GenerationClient("http://127.0.0.1:9", timeout_s=1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_file_has_the_servers_dtype(tmp_path: Path, dtype: torch.dtype) -> None:
    model = AutoModelForCausalLM.from_pretrained(TINY_MATH, dtype=torch.float32)
    write_weights(named_weights(model), tmp_path / "w.safetensors", dtype=dtype)
    read = load_file(tmp_path / "w.safetensors")
    expected = {name: tensor.to(dtype) for name, tensor in named_weights(model)}
    assert read.keys() == expected.keys()
    assert all(torch.equal(read[name], tensor) for name, tensor in expected.items())


def test_every_kind_of_tensor_is_read_back(tmp_path: Path) -> None:
    base = torch.arange(24.0).reshape(4, 6)
    kept = {"transposed": base.T, "slice": base[:, 2:4], "scalar": torch.tensor(3.5), "empty": torch.zeros(0, 3)}
    kept["half"] = base.bfloat16()
    write_weights(iter(kept.items()), tmp_path / "w.safetensors", {"weight_version": "7"})
    read = load_file(tmp_path / "w.safetensors")
    assert all(torch.equal(read[name], tensor) and read[name].dtype == tensor.dtype for name, tensor in kept.items())
    with safe_open(str(tmp_path / "w.safetensors"), framework="pt") as file:
        assert file.metadata() == {"weight_version": "7"}


def test_how_many_will_come_is_known_before(tmp_path: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(TINY_MATH)
    assert length_hint(named_weights(model)) == sum(1 for _ in named_weights(model))
    with pytest.raises(ValueError, match="there is room for"):
        write_weights({f"{'long' * 100}{i}": torch.zeros(1) for i in range(50)}.items(), tmp_path / "w.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_one_tensor_is_in_memory_at_a_time(tmp_path: Path) -> None:
    alive: list[weakref.ref[Tensor]] = []

    def tensors() -> Iterator[tuple[str, Tensor]]:
        for number in range(8):
            assert sum(ref() is not None for ref in alive) <= 1  # the one that was written last
            tensor = torch.full((4,), float(number))
            alive.append(weakref.ref(tensor))
            yield f"t{number}", tensor
            del tensor

    write_weights(tensors(), tmp_path / "w.safetensors")
    assert len(load_file(tmp_path / "w.safetensors")) == 8


def test_a_full_disk_is_said_as_one(tmp_path: Path) -> None:
    def full() -> Iterator[tuple[str, Tensor]]:
        yield "a", torch.zeros(2)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(WeightSyncError, match=r"No space left.*GiB, of which .* are free.*fix: free space"):
        SafetensorsSender(NOBODY, tmp_path).write(full(), "v1")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_gone_is_said(tmp_path: Path) -> None:
    with pytest.raises(WeightSyncError, match=r"cannot be written to .*gone: No such file"):
        SafetensorsSender(NOBODY, tmp_path / "gone").write([("a", torch.zeros(1))], "v1")


def test_what_no_server_takes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WeightSyncError, match=r"quantised has dtype torch.uint8"):
        SafetensorsSender(NOBODY, tmp_path).write([("quantised", torch.zeros(2, dtype=torch.uint8))], "v1")
