"""The real vLLM: `vllm serve` with what the trainer needs of it. It may live in an interpreter of its own."""

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from packaging.version import InvalidVersion, Version

from launchers.context import Context, gpus, threads
from orchestrator.adapters import legal_rank, sends_adapters
from orchestrator.assets import VLLM_PLUGIN
from orchestrator.schema import RunConfig
from orchestrator.steps import HttpProbe, Step

# Its distribution is not always named vllm, and then `vllm serve` does not start; the module does.
MODULE = "vllm.entrypoints.openai.api_server"
SCALE_OUT_SINCE = Version("0.30")
"""Before, TRL's routes for multimodal prompts were always there; since, they are asked for."""


def step(run: RunConfig, context: Context) -> Step:
    generation = run.generation
    return Step(
        name="generation",
        argv=(generation.python or context.interpreter, "-m", MODULE, *_words(_flags(run, context))),
        env=_env(run, context),
        ready=HttpProbe(url=f"{generation.url}/health"),
        ready_timeout_s=generation.ready_timeout_s or run.supervision.ready_timeout_s,
        host=generation.host,
        port=generation.port if isinstance(generation.port, int) else None,
    )


def _flags(run: RunConfig, context: Context) -> dict[str, Any]:
    """vLLM's own names -> values; what the recipe's `generation.args` add comes last; SYN008 refuses contradictions."""
    generation = run.generation
    ours = {
        "model": generation.model,
        "served_model_name": generation.model,
        "revision": generation.revision,
        "trust_remote_code": run.model.trust_remote_code or None,
        "host": generation.host,
        "port": generation.port,
        "dtype": generation.dtype,
        "max_model_len": generation.max_model_len,
        "tensor_parallel_size": generation.tensor_parallel_size,
        "data_parallel_size": generation.data_parallel_size,
        "seed": run.seed,
        "weight_transfer_config": {"backend": generation.weight_sync.backend},
        # Log-probs of the distribution that was sampled from, for importance ratios, and as many as are asked for.
        "logprobs_mode": "processed_logprobs",
        "max_logprobs": -1,
        # A line for each request would be most of the log.
        "disable_uvicorn_access_log": True,
        "enable_scale_out": True if _at_least(context.vllm_version, SCALE_OUT_SINCE) else None,
    }
    if sends_adapters(run):
        ours |= {"enable_lora": True, "max_lora_rank": legal_rank(run.trainer.lora.r or 1)}
    return {**ours, **generation.args}


def _env(run: RunConfig, context: Context) -> dict[str, str]:
    """`generation.env` wins, but for PYTHONPATH, which it only extends."""
    own = dict(run.generation.env)
    path = own.pop("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    return (
        threads(context.num_cpus)
        | gpus(context, "generation")
        | {
            # /update_weights, /pause and their like exist in this mode only.
            "VLLM_SERVER_DEV_MODE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            # As -P does, which Python 3.10 does not know: a user's module must not shadow one of vLLM's.
            "PYTHONSAFEPATH": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, (str(VLLM_PLUGIN), path))),
            "ORCHESTRATE_WEIGHTS_DIR": str(context.paths.weights),
        }
        | ({"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"} if sends_adapters(run) else {})
        | own
    )


def _words(flags: Mapping[str, Any]) -> Iterator[str]:
    """As vLLM's command line takes them: a switch for a bool, JSON for a mapping, words for a list."""
    for name, value in flags.items():
        flag = name.replace("_", "-")
        match value:
            case None:
                continue
            case bool():
                yield f"--{flag}" if value else f"--no-{flag}"
            case dict():
                yield from (f"--{flag}", json.dumps(value))
            case list():
                yield from (f"--{flag}", *map(str, value))
            case _:
                yield from (f"--{flag}", str(value))


def _at_least(version: str | None, wanted: Version) -> bool:
    """An unknown version counts as a new one."""
    try:
        return version is None or Version(version) >= wanted
    except InvalidVersion:
        return True
