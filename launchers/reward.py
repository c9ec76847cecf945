"""Our reward server."""

import json
from dataclasses import asdict

from launchers.context import Context, module_argv, threads
from orchestrator.ledgers.batches import largest_request, run_batches
from orchestrator.ledgers.replies import longest_scoring_s
from orchestrator.schema import RunConfig
from orchestrator.steps import HttpProbe, Step

BYTES_PER_TOKEN = 24
"""Of a request, at worst: four characters a token, six bytes each as JSON escapes them."""
SMALLEST_LIMIT = 4096
SMALLEST_QUEUE = 65_536


def step(run: RunConfig, context: Context) -> Step:
    reward = run.reward
    flags = {
        "--host": reward.host,
        "--port": reward.port,
        "--workers": reward.workers,
        "--timeout-s": reward.timeout_s,
        "--on-error": reward.on_error,
        "--max-batch": _largest_batch(run),
        "--max-body-mb": max(64, _largest_batch(run) * _bytes_per_sample(run) // 2**20),
        "--max-queue": max(SMALLEST_QUEUE, _largest_batch(run)),
        "--request-timeout-s": longest_scoring_s(reward, _largest_request(run)),
    }
    functions = tuple(word for f in reward.functions for word in ("--function", json.dumps(asdict(f), sort_keys=True)))
    hook = ("--post-process", json.dumps(asdict(reward.post_process))) if reward.post_process.target else ()
    token = ("--token-env", reward.token_env) if reward.token_env else ()
    return Step(
        name="reward",
        argv=(
            *module_argv(reward.python or context.interpreter, "rewards.server"),
            *(str(word) for flag in flags.items() for word in flag),
            *token,
            *functions,
            *hook,
        ),
        env=threads(1) | dict(reward.env),
        ready=HttpProbe(url=f"{reward.url}/health"),
        ready_timeout_s=run.supervision.ready_timeout_s,
        host=reward.host,
        port=reward.port if isinstance(reward.port, int) else None,
        restarts=run.supervision.restarts,
    )


def _largest_batch(run: RunConfig) -> int:
    return max(SMALLEST_LIMIT, _largest_request(run))


def _largest_request(run: RunConfig) -> int:
    return largest_request(run.evaluation, run_batches(run))


def _bytes_per_sample(run: RunConfig) -> int:
    return (run.limits.prompt_length + run.limits.completion_length) * BYTES_PER_TOKEN
