"""The port ledger: every TCP port that a recipe declares or implies, and who opens it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from orchestrator.addresses import host_of, is_loopback, port_of
from orchestrator.kinds import STARTED_REWARD, generation_kind
from orchestrator.schema import AUTO, GenerationConfig, RewardConfig, RunConfig


@dataclass(frozen=True, kw_only=True)
class Port:
    """One port on this machine."""

    part: str
    path: str
    """The setting that names it."""
    number: int | str
    """`auto` = picked when the run starts, free by construction."""
    started: bool
    """The run opens it; otherwise somebody else listens there."""
    url: str = ""
    """The whole address, of what somebody else runs."""


def ports(run: RunConfig) -> Iterator[Port]:
    """API, reward, weight-sync group and rendezvous ports, and those of judges and environments on this machine."""
    generation, reward, kind = run.generation, run.reward, generation_kind(run.generation)
    if kind.server and (kind.started or _here(generation.url)) and generation.num_machines == 0:
        yield _service("generation", generation, started=kind.started)
    if reward.kind != "inprocess" and (reward.kind == STARTED_REWARD or _here(reward.url)):
        yield _service("reward", reward, started=reward.kind == STARTED_REWARD)
    if kind.server and generation.weight_sync.backend == "nccl":
        path, number = "generation.weight_sync.port", generation.weight_sync.port
        yield Port(part="weight sync", path=path, number=number, started=True)
    if run.launcher.num_processes * run.launcher.num_machines > 1:
        yield Port(part="rendezvous", path="launcher.main_port", number=run.launcher.main_port, started=True)
    others = {"reward.judge.url": reward.judge.url} | {
        f"reward.environment.urls.{i}": url for i, url in enumerate(reward.environment.urls)
    }
    for path, url in others.items():
        number_there: Any = port_of(url) if url else None
        if url and _here(url) and isinstance(number_there, int):
            yield Port(part=path.split(".")[1], path=path, number=number_there, started=False, url=url)


def _service(name: str, part: GenerationConfig | RewardConfig, *, started: bool) -> Port:
    """A started service is where its `port` says, somebody else's where its `url` says."""
    number = part.port if started else port_of(part.url) or AUTO
    return Port(part=name, path=f"{name}.{'port' if started else 'url'}", number=number, started=started, url=part.url)


def _here(url: str) -> bool:
    return is_loopback(host_of(url))
