"""How much of a generation batch can teach anything: figures over its groups, for metrics.jsonl and the alarms."""

import math
from collections.abc import Sequence

from orchestrator.alarms.steps import NO_SPREAD, UNSCORED
from orchestrator.schema import RewardFunctionConfig

Rewards = Sequence[float | None]


def group_figures(totals: Rewards, parts: Sequence[Rewards], group_size: int) -> dict[str, float]:
    """Shares (0 to 1) of the groups without any reward, and of those whose completions do not differ in reward.

    `parts` are what advantages are computed from: the totals, or each function's own rewards
    (`multi_objective_aggregation: normalize_then_sum`). TRL's `frac_reward_zero_std` is another figure: with
    `scale_rewards: batch` it looks at the whole batch, and a group without rewards has no std at all.
    """
    starts = range(0, len(totals), group_size)
    unscored = [all(total is None for total in totals[i : i + group_size]) for i in starts]
    flat = [not any(_differ(part[i : i + group_size]) for part in parts) for i in starts]
    return {UNSCORED: sum(unscored) / len(starts), NO_SPREAD: sum(flat) / len(starts)}


def advantage_parts(functions: Sequence[RewardFunctionConfig], aggregation: str) -> tuple[str, ...]:
    """Functions that make an advantage each by itself (TRL's `normalize_then_sum`); () where their total makes one."""
    return tuple(f.name for f in functions if f.weight) if aggregation == "normalize_then_sum" else ()


def _differ(rewards: Rewards) -> bool:
    """By more than float32, in which TRL computes, can tell apart."""
    scored = [reward for reward in rewards if reward is not None]
    return bool(scored) and not math.isclose(min(scored), max(scored), rel_tol=1e-6, abs_tol=1e-8)
