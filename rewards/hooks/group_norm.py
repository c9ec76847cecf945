"""Rewards normalised within their group, by group id: (r - mean) / (std + 1e-6), the advantage of GRPO.

Mean 0 and, with `std`, standard deviation 1 (n - 1 in the denominator, as torch.std); a group of one, or of equal
rewards, gets zeros. Without `std` only the mean is taken off (Dr. GRPO). Groups may be of any size: each is normalised
by itself, never together with others. Source: DeepSeekMath, arXiv 2402.03300, equation 3.
"""

import statistics
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

EPSILON = 1e-6
INLINE = True


def group_norm(
    rewards: Sequence[float], group_ids: Sequence[str | int] | None, std: bool = True, **kwargs: Any
) -> tuple[list[float], list[float]]:
    """(raw, processed). Raises ValueError without group ids."""
    if group_ids is None:
        raise ValueError("group_norm needs group_ids: which samples belong together")
    groups: dict[str | int, list[int]] = defaultdict(list)
    for index, group in enumerate(group_ids):
        groups[group].append(index)
    processed = [0.0] * len(rewards)
    for members in groups.values():
        values = [rewards[i] for i in members]
        mean, spread = statistics.fmean(values), statistics.stdev(values) if std and len(values) > 1 else 1.0
        scale = spread + EPSILON if std and len(values) > 1 else 1.0
        for i in members:
            processed[i] = (rewards[i] - mean) / scale
    return list(rewards), processed
