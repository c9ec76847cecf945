"""One of two trainer processes: two_shards.py FOLDER GOOD_URL FAULTY_URL, under torchrun's environment variables.

Shards the shipped model by FSDP2 and syncs it to a server, as a trainer does: canary, a step, a push. Writes to
FOLDER/RANK.json what it saw in each case: how it ended, the last gap, and whether its shards came back bit for bit.
"""

import json
import resource
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from accelerate import PartialState
from peft import get_peft_model
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from transformers import AutoModelForCausalLM

from orchestrator.assets import TINY_MATH
from orchestrator.generation.client import GenerationClient
from orchestrator.generation.transfer import SafetensorsSender, named_weights
from orchestrator.schema import LoraConfig
from orchestrator.training.lora import lora_config
from orchestrator.training.sending import FileSender
from orchestrator.training.sync import make_sync

MOST_BYTES = 500_000


def policy(*, adapted: bool) -> Any:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(TINY_MATH, dtype=torch.float32)
    if adapted:
        model = get_peft_model(model, lora_config(LoraConfig(r=8, target_modules="all-linear", lora_alpha=16)))
    return model


def sharded(model: Any) -> Any:
    mesh = init_device_mesh("cpu", (2,))
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    for layer in base.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def shards(model: Any) -> list[torch.Tensor]:
    assert all(isinstance(p, DTensor) for p in model.parameters()), "a forward left gathered weights behind"
    return [p.to_local().detach().clone() for p in model.parameters()]


def main(folder: Path, good_url: str, faulty_url: str) -> None:
    state = PartialState(cpu=True)
    seen = {
        "plain": case(folder, good_url, adapted=False),
        "adapted": case(folder, good_url, adapted=True),
        "faulty": case(folder, faulty_url, adapted=False),
        "cut short": cut_short(folder, good_url, state.is_main_process),
    }
    (folder / f"{state.process_index}.json").write_text(json.dumps(seen))


def cut_short(folder: Path, url: str, is_main: bool) -> dict[str, Any]:
    """The main process can write no file as large as the weights."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    if is_main:
        resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_BYTES, before[1]))
    try:
        return case(folder, url, adapted=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def case(folder: Path, url: str, *, adapted: bool) -> dict[str, Any]:
    expected = {name: tensor.clone() for name, tensor in named_weights(policy(adapted=adapted))}
    model = sharded(policy(adapted=adapted))
    client = GenerationClient(url, model=str(TINY_MATH), timeout_s=30)
    before, seen = shards(model), {"same_as_whole": same(expected, model)}
    sync = make_sync(
        lambda: model,
        client,
        FileSender(SafetensorsSender(client, folder)),
        dtype="float32",
        tolerance=None,
        verify_every=1,
        max_length=24,
        seed=0,
    )
    try:
        sync.canary(0)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.01)
        sync.push(1)
        return seen | {"ended": "well", "gap": sync.gap, "num_syncs": sync.num_syncs}
    except RuntimeError as error:
        return seen | {
            "ended": type(error).__name__,
            "said": str(error),
            "restored": all(map(torch.equal, before, shards(model))),
        }


def same(expected: dict[str, torch.Tensor], model: Any) -> bool:
    sent = {name: tensor.clone() for name, tensor in named_weights(model)}
    return list(sent) == list(expected) and all(torch.equal(expected[name], tensor) for name, tensor in sent.items())


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
