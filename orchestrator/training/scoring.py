"""Where rewards come from: the reward service, or the same functions in this process."""

import os
from dataclasses import asdict, dataclass

from orchestrator.ledgers.replies import longest_reply_s
from orchestrator.schema import RewardConfig
from orchestrator.training.reward import Score
from rewards.calling.post_process import hook_spec
from rewards.client import RewardClient
from rewards.contract import spec_from_mapping
from rewards.scoring import OnError, Scorer

_ON_ERROR: dict[str, OnError] = {"fail": "fail", "mask": "mask"}


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """How completions are scored in a run."""

    score: Score
    wants_ids: bool
    """A function, or the hook, asks for `completion_ids`."""


def make_scoring(reward: RewardConfig, batch_size: int) -> Scoring:
    """`batch_size` completions in the largest request bound how long a reply may take.

    Raises LoadError and PrepareError (inprocess), RewardError (no server).
    """
    if reward.kind == "inprocess":
        return _in_process(reward)
    token = os.environ.get(reward.token_env) if reward.token_env else None
    client = RewardClient(reward.url, token=token, timeout_s=longest_reply_s(reward, batch_size))
    # The server has loaded them; their source, read from here, would not say what a decorator wants.
    functions = client.info()["functions"]
    return Scoring(score=client.score, wants_ids=any(function["wants_completion_ids"] for function in functions))


def reward_weights(reward: RewardConfig) -> list[float]:
    """TRL's weights of the columns: of the functions, or of the hook's alone, where there is one."""
    if reward.post_process.target:
        return [0.0] * len(reward.functions) + [1.0]
    return [function.weight for function in reward.functions]


def _in_process(reward: RewardConfig) -> Scoring:
    hook = reward.post_process
    scorer = Scorer(
        [spec_from_mapping(asdict(function)) for function in reward.functions],
        on_error=_ON_ERROR[reward.on_error],
        post_process=hook_spec(hook.target, hook.params) if hook.target else None,
    )
    bound = [*scorer.functions, *([scorer.hook] if scorer.hook else [])]
    return Scoring(score=scorer.score, wants_ids=any(one.signature.wants_completion_ids for one in bound))
