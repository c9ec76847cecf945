"""Which job of a sweep may start next, and on which GPUs. Pure: tests replay whole sweeps."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.facts.ports import fixed_ports
from orchestrator.facts.types import Facts, Gpu
from orchestrator.jobs import CheckedJob
from orchestrator.ledgers.devices import claims, places
from orchestrator.schema import RunConfig

CUDA_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, kw_only=True)
class Pool:
    """The GPUs of this machine, as a sweep hands them out."""

    indices: tuple[int, ...] = ()
    """For jobs that do not say which ones they want."""
    words: Mapping[int, str] = field(default_factory=dict)
    """What CUDA_VISIBLE_DEVICES calls each GPU that there is; {} = there is none, or nobody knows which there are."""
    known: bool = True

    def visible(self, gpus: Iterable[int]) -> str | None:
        """CUDA_VISIBLE_DEVICES that leaves a job these GPUs; None = it keeps what the sweep itself has.

        That is so where there is nothing to hide, and for an index that is none of this machine's: the recipe counts
        in some other way, and a translation could uncover what was hidden from the sweep.
        """
        wanted = list(gpus)
        if not self.words or any(index not in self.words for index in wanted):
            return None
        return ",".join(self.words[index] for index in wanted)


@dataclass(frozen=True, kw_only=True)
class Need:
    """What a job takes for itself while it runs."""

    job: int
    num_gpus: int = 0
    """Any of the pool's."""
    gpus: tuple[int, ...] = ()
    """Exactly these. Never together with `num_gpus`."""
    ports: frozenset[int] = frozenset()
    """TCP ports that its recipe fixes."""


@dataclass(frozen=True, kw_only=True)
class Turn:
    """A job that may start, or runs."""

    need: Need
    gpus: tuple[int, ...]

    @property
    def job(self) -> int:
        return self.need.job


def next_turn(waiting: Sequence[Need], running: Sequence[Turn], pool: Sequence[int], limit: int) -> Turn | None:
    """The first job, in the sweep's order, that may start beside those that run; at most `limit` run at once.

    A job may overtake another one, but takes nothing that the other waits for: the one that needs most would otherwise
    have its turn when all the rest is over.
    """
    if len(running) >= limit:
        return None
    taken = {index for turn in running for index in turn.gpus}
    ports = {port for turn in running for port in turn.need.ports}
    for need in waiting:
        free = [index for index in pool if index not in taken]
        gpus = need.gpus or tuple(free[: need.num_gpus])
        if len(gpus) >= need.num_gpus and not taken.intersection(need.gpus) and not ports & need.ports:
            return Turn(need=need, gpus=gpus)
        taken.update(need.gpus or free[: need.num_gpus])
        ports |= need.ports
    return None


def pool_of(runs: Sequence[RunConfig], seen: Sequence[Gpu] | str, visible: str | None) -> Pool:
    """`seen` are the GPUs that `visible`, the sweep's own CUDA_VISIBLE_DEVICES, leaves it, in that order.

    A recipe that declares fewer (`hardware.gpus`) gets the first ones. Where there are none it is believed, as it is by
    the rules. GPUs that a judge holds are nobody's.
    """
    declared = [run.hardware.gpus for run in runs if run.hardware.gpus is not None]
    most = max(declared) if len(declared) == len(runs) else None
    own_words = None if visible is None else [word.strip() for word in visible.split(",") if word.strip()]
    if isinstance(seen, str):
        if most is None:
            return Pool(known=False)
        there = tuple(range(most if own_words is None else len(own_words[:most])))
    else:
        there = tuple(gpu.index for gpu in seen[:most]) or tuple(range(most or 0))
    words = dict(zip(there, map(str, there) if own_words is None else own_words, strict=False))
    judges = {index for run in runs for index in run.reward.judge.gpus or ()}
    return Pool(indices=tuple(index for index in there if index not in judges), words=words)


def devices(run: RunConfig, facts: Facts, visible: str | None, share: str | None = None) -> dict[str, str]:
    """Part -> its CUDA_VISIBLE_DEVICES; {} where the ledger places nothing. `share` is what of `visible` a job has."""
    pool = pool_of([run], facts.gpus, visible)
    own = None if share is None else share.split(",")
    there = [index for index in pool.indices if own is None or pool.words.get(index) in own]
    found = places(claims(run, facts.generation_versions), there)
    return {part: ",".join(pool.words.get(index, str(index)) for index in gpus) for part, gpus in found.items()}


def need_of(number: int, job: CheckedJob, pool: Pool) -> Need:
    """What the device ledger says of a job that is checked.

    A job that asks for more than there is gets all there is, as it would alone: the DEV rules have told, and nobody
    waits for ever. Where it is not known which GPUs there are, the jobs that use any take turns.
    """
    run, ports = job.run, frozenset(port for _, port in fixed_ports(job.run))
    if run.hardware.gpus is None:  # what is here: a trainer takes a GPU where there is one
        run = replace(run, hardware=replace(run.hardware, gpus=len(pool.words) if pool.known else 1))
    ledger = [c for c in claims(run, job.facts.generation_versions) if c.part != "judge" and not c.own_machines]
    if not pool.known:
        return Need(job=number, gpus=(0,) if ledger else (), ports=ports)
    named = list(dict.fromkeys(index for claim in ledger for index in claim.named or ()))
    others = sum(claim.per_machine for claim in ledger if not claim.shares and not claim.named)
    if not named:
        return Need(job=number, num_gpus=min(others, len(pool.indices)), ports=ports)
    # The parts that name none get the first that no other part names.
    rest = [index for index in pool.indices if index not in named]
    return Need(job=number, gpus=(*named, *rest[:others]), ports=ports)
