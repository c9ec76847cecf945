"""`python -m tests.bench sync`: a whole weight sync to the embedded server beside the same bytes through shared memory.

A whole sync is what a step pays: reading the trainer's model, the file, the server's checks and its answer that it has
the new version. The baseline copies as many bytes into a file in shared memory and out again.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from orchestrator.assets import TINY_MATH
from orchestrator.generation.client import GenerationClient, GenerationError
from orchestrator.generation.transfer import SafetensorsSender, named_weights
from orchestrator.supervise.leases import lease_ports
from tests.orchestrated import wait_for

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path("/dev/shm")
REPEATS = 7
AIM_RATIO, AIM_EXTRA_S = 3.0, 0.1
# The shape of SmolLM2-135M: 135 million parameters, of which the tied embedding has 28.
MEDIUM = {
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": True,
}


def bench_sync(cwd: Path) -> None:
    medium = cwd / "llama-135m"
    shutil.copytree(TINY_MATH, medium, ignore=shutil.ignore_patterns("*.safetensors"))
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(**MEDIUM)).save_pretrained(medium)
    _bench("the shipped model", TINY_MATH, adapted=False)
    _bench("135 M parameters", medium, adapted=False)
    _bench("135 M parameters with adapters in every layer (merged)", medium, adapted=True)


def _bench(what: str, folder: Path, *, adapted: bool) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    if adapted:
        model = get_peft_model(model, LoraConfig(r=8, target_modules="all-linear"))
    num_bytes = sum(tensor.nbytes for _, tensor in named_weights(model))
    with tempfile.TemporaryDirectory(dir=SHARED) as shared, _server(folder, Path(shared)) as client:
        sender = SafetensorsSender(client, Path(shared), torch.float32)
        sender.open()
        sender.send(named_weights(model), "warm-up")
        pairs = [(_sync_s(sender, model, i), _copy_s(Path(shared), num_bytes)) for i in range(REPEATS)]
    sync, copy = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratio = statistics.median(mine / theirs for mine, theirs in pairs)
    print(f"weight sync, {what} ({num_bytes / 1e6:.1f} MB): median {sync:.3f} s")
    print(f"  the same bytes through shared memory: median {copy:.3f} s")
    aim = f"aim: at most {AIM_RATIO:g} times and {AIM_EXTRA_S} s, {AIM_RATIO * copy + AIM_EXTRA_S:.3f} s"
    print(f"  ratio: median {ratio:.2f}, {REPEATS} pairs ({aim})")


def _sync_s(sender: SafetensorsSender, model: torch.nn.Module, number: int) -> float:
    started = time.monotonic()
    sender.send(named_weights(model), f"step-{number}")
    return time.monotonic() - started


def _copy_s(folder: Path, num_bytes: int) -> float:
    source, target = torch.ones(num_bytes, dtype=torch.uint8).numpy(), torch.ones(num_bytes, dtype=torch.uint8).numpy()
    path = folder / "copied"
    started = time.monotonic()
    path.write_bytes(source.data)
    with path.open("rb", buffering=0) as file:
        done = 0
        while done < num_bytes:
            done += file.readinto(target.data[done:]) or 0
    path.unlink()
    return time.monotonic() - started


@contextmanager
def _server(model: Path, weights: Path) -> Iterator[GenerationClient]:
    with lease_ports(1)[0] as lease:
        argv = [sys.executable, "-P", "-m", "orchestrator.generation.server", "--model", str(model)]
        argv += ["--port", str(lease.port), "--weights-dir", str(weights), "--dtype", "float32"]
        argv += ["--max-model-len", "32"]
        # As the recipe says for its generation server.
        env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(argv, env=env, stderr=subprocess.DEVNULL)
        client = GenerationClient(f"http://127.0.0.1:{lease.port}", timeout_s=120)
        try:
            wait_for("the server is ready", lambda: _is_ready(client) or process.poll() is not None)
            yield client
        finally:
            process.kill()
            process.wait(10)


def _is_ready(client: GenerationClient) -> bool:
    try:
        return client.health()
    except GenerationError:
        return False
