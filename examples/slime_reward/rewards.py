"""Reward functions as one writes them for slime and vime; nothing here knows where it runs."""

from collections import defaultdict
from statistics import fmean

from slime.utils.types import Sample


async def correct(args, sample: Sample, **kwargs):
    """`--custom-rm-path`: one sample. Returns a dict, of which `--reward-key score` names the reward."""
    answer = sample.response.strip()
    right = answer == sample.label
    return {"score": 1.0 if right else 0.0, "is_number": answer.isdigit()}


async def rank_in_group(args, samples: list[Sample], **kwargs):
    """`--custom-rm-path` with `--group-rm`: all samples of one prompt. The share of them that is further off."""
    off = [_distance(sample, args.worst) for sample in samples]
    return [fmean(mine < other for other in off) for mine in off]


def centre(args, samples: list[Sample], **kwargs):
    """`--custom-reward-post-process-path`: the whole batch. Less each group's mean; truncated ones get no more."""
    raw = [sample.get_reward_value(args) for sample in samples]
    groups = defaultdict(list)
    for sample, reward in zip(samples, raw, strict=True):
        groups[sample.group_index].append(reward)
    processed = [reward - fmean(groups[sample.group_index]) for sample, reward in zip(samples, raw, strict=True)]
    for index, sample in enumerate(samples):
        if sample.status == Sample.Status.TRUNCATED:
            processed[index] = min(processed[index], 0.0)
    return raw, processed


def _distance(sample: Sample, worst: int) -> int:
    answer = sample.response.strip()
    return min(abs(int(answer) - int(sample.label)), worst) if answer.isdigit() else worst
