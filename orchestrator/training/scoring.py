"""Where rewards come from: the reward service, or the same functions in this process."""

import os
from dataclasses import asdict
from typing import Any

from orchestrator.schema import RewardConfig, RewardFunctionConfig
from orchestrator.training.reward import Score
from rewards.client import RewardClient
from rewards.contract import spec_from_mapping
from rewards.scoring import OnError, Scorer
from rewards.signature import read_signature
from rewards.targets import LoadError

_ON_ERROR: dict[str, OnError] = {"fail": "fail", "mask": "mask"}
ANSWER_MARGIN_S = 30.0  # queueing and transport beside the functions' own time


def make_score(reward: RewardConfig, batch_size: int) -> Score:
    """`batch_size` completions in the largest request bound how long a reply may take. Raises LoadError (inprocess)."""
    if reward.kind == "inprocess":
        return Scorer(
            [spec_from_mapping(_spec(f)) for f in reward.functions], on_error=_ON_ERROR[reward.on_error]
        ).score
    token = os.environ.get(reward.token_env) if reward.token_env else None
    # The worst case: every unit runs into its own limit, one after another on each worker.
    timeout_s = reward.timeout_s * (batch_size / reward.workers + 1) + ANSWER_MARGIN_S
    client = RewardClient(reward.url, token=token, timeout_s=timeout_s)
    return client.score


def _spec(function: RewardFunctionConfig) -> dict[str, Any]:
    return {key: value for key, value in asdict(function).items() if value is not None}


def wants_completion_ids(reward: RewardConfig) -> bool:
    """Whether a function names `completion_ids`; of one that cannot be read here (a foreign server's), no."""
    return any("completion_ids" in _parameters(function) for function in reward.functions)


def _parameters(function: RewardFunctionConfig) -> tuple[str, ...]:
    try:
        return read_signature(function.target, function.params).parameters
    except LoadError:
        return ()
