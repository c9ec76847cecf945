"""What the NET, ORD and SEC rules look at: the services with an address."""

from collections.abc import Iterator

from orchestrator.addresses import is_loopback, is_number
from orchestrator.kinds import GENERATION_KINDS, STARTED_REWARD, generation_kind
from orchestrator.rules.case import Case
from orchestrator.schema import GenerationConfig, RewardConfig

STARTED = {"generation": "embedded", "reward": STARTED_REWARD}
"""A kind of each service that a run starts itself."""


def services(case: Case) -> Iterator[tuple[str, GenerationConfig | RewardConfig]]:
    if generation_kind(case.run.generation).server:
        yield "generation", case.run.generation
    if case.run.reward.kind != "inprocess":
        yield "reward", case.run.reward


def started(case: Case) -> Iterator[tuple[str, GenerationConfig | RewardConfig]]:
    for name, part in services(case):
        kind = GENERATION_KINDS.get(part.kind)
        if part.kind == STARTED_REWARD or (kind is not None and kind.started and name == "generation"):
            yield name, part


def asked_by_rewards(case: Case) -> dict[str, str]:
    """Addresses of the judge and the environments, by setting; '' where there is none."""
    reward = case.run.reward
    return {"reward.judge.url": reward.judge.url or ""} | {
        f"reward.environment.urls.{i}": url for i, url in enumerate(reward.environment.urls)
    }


def same_host(one: str, other: str) -> bool:
    """False only where the two certainly differ: a name and a number may be one machine."""
    if is_loopback(one) or is_loopback(other):
        return is_loopback(one) and is_loopback(other)
    return one.lower() == other.lower() or is_number(one) != is_number(other)
