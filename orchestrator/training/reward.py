"""Reward callables for TRL: one per function, and one request per generation batch behind them all.

TRL calls each function by itself, in order, on every process with that process's completions. So the callables share a
memo that is keyed by the order of calls, not by content: two batches with equal completions are two batches. Behind it
the main process asks for the completions of all processes at once, for groups may straddle them.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from orchestrator.alarms.steps import RAW_REWARD
from orchestrator.training.groups import group_figures
from orchestrator.training.ranks import on_main
from orchestrator.training.samples import Column, SampleLog, Scored, unscored
from rewards.asking.columns import data_columns
from rewards.calling.post_process import NAME as POST_PROCESS

STATUS_COLUMN = "rollout_status"
"""How rollouts tell what became of a completion (rewards.batch.STATUSES)."""


Score = Callable[
    [Sequence[Any], Sequence[Any], Mapping[str, Sequence[Any]], Sequence[int], Sequence[str], bool], Scored
]
"""prompts, completions, columns, group ids, statuses, is it an evaluation -> a reward per sample and function."""


@dataclass(frozen=True, kw_only=True)
class Slice:
    """What one process generated, one entry per sample."""

    prompts: list[Any]
    completions: list[Any]
    columns: dict[str, list[Any]]
    statuses: list[str]


@dataclass
class RewardBatch:
    """The memo: the rewards of the batch that TRL is asking about, and who has asked for them."""

    score: Score
    names: tuple[str, ...]
    group_size: Callable[[], int]
    samples: SampleLog
    wants_ids: bool
    """A function asks for `completion_ids`: they are sent only then, for they double a request."""
    is_training: Callable[[], bool]
    """False while TRL evaluates: only what is trained on goes into the samples."""
    post_process: bool = False
    """A hook processes the rewards: they are a column of their own, the only one with a weight."""
    by_part: tuple[str, ...] = ()
    """Functions whose rewards make an advantage each by itself; () = their weighted total makes one."""
    ends_with: Callable[[], Collection[int]] | None = None
    """Token ids that end a completion, where rollouts do not tell what became of it: TRL's own do not. None = nobody
    knows, and each counts as completed."""
    metrics: Callable[[], Mapping[str, float]] = dict
    """Figures that are logged once per generation batch, beside the rewards."""
    _columns: dict[str, Column] | None = None
    _asked: set[str] = field(default_factory=set)

    def component(self, name: str, prompts: list[Any], completions: list[Any], kwargs: dict[str, Any]) -> Column:
        """Raises RewardError or ContractError on the main process, MainProcessError on the others."""
        if self._columns is None or name in self._asked:
            self._columns, self._asked = self._fetch(prompts, completions, kwargs), set()
        self._asked.add(name)
        return self._columns[name]

    def _fetch(self, prompts: list[Any], completions: list[Any], kwargs: dict[str, Any]) -> dict[str, Column]:
        columns = {key: list(values) for key, values in data_columns(kwargs).items() if key != STATUS_COLUMN}
        if self.wants_ids:
            columns["completion_ids"] = kwargs["completion_ids"]
        statuses = kwargs.get(STATUS_COLUMN) or [self._status(ids) for ids in kwargs["completion_ids"]]
        own = Slice(prompts=prompts, completions=completions, columns=columns, statuses=statuses)
        step = kwargs["trainer_state"].global_step + 1  # the step that they are trained in, as metrics.jsonl counts
        return on_main(own, lambda slices: self._score(slices, step, kwargs["log_metric"]))

    def _status(self, completion_ids: Sequence[int]) -> str:
        ended = self.ends_with is None or (bool(completion_ids) and completion_ids[-1] in self.ends_with())
        return "completed" if ended else "truncated"

    def _score(
        self, slices: Sequence[Slice], step: int, log_metric: Callable[[str, float], None]
    ) -> list[dict[str, Column]]:
        """One request for all of them; the columns that TRL gets, cut into slices again."""
        whole, size, training = _joined(slices), self.group_size(), self.is_training()
        group_ids = [index // size for index in range(len(whole.prompts))]  # as TRL cuts its gathered rewards
        reply = self.score(whole.prompts, whole.completions, whole.columns, group_ids, whole.statuses, not training)
        if training:
            self.samples.write(step, whole.prompts, whole.completions, whole.statuses, reply)
        for key, value in self._figures(reply, whole.statuses, size).items():
            log_metric(key, value)
        columns, starts = self._columns_for_trl(reply, training), [0]
        for one in slices:
            starts.append(starts[-1] + len(one.prompts))
        return [{name: column[start:end] for name, column in columns.items()} for start, end in pairwise(starts)]

    def _columns_for_trl(self, reply: Scored, training: bool) -> dict[str, Column]:
        """A sample without a total (a masked error) has no part either: TRL would take the rest for the whole."""
        totals = reply.rewards
        columns = {
            name: [None if total is None else part for part, total in zip(column, totals, strict=True)]
            for name, column in reply.components.items()
        }
        if self.post_process:
            columns[POST_PROCESS] = totals if training else raw_rewards(reply)
        return columns

    def _figures(self, reply: Scored, statuses: Sequence[str], group_size: int) -> dict[str, float]:
        parts = [reply.components[name] for name in self.by_part] or [reply.rewards]
        figures = group_figures(reply.rewards, parts, group_size)
        figures |= {f"samples/{why}": float(count) for why, count in unscored(statuses, reply.rewards).items()}
        raw = [value for value in reply.raw or () if value is not None]
        return figures | ({RAW_REWARD: sum(raw) / len(raw)} if raw else {}) | dict(self.metrics())


def raw_rewards(reply: Scored) -> Column:
    """The rewards before a post-process hook: what tells how good completions are, not how to train on them."""
    return reply.rewards if reply.raw is None else reply.raw


def reward_callables(batch: RewardBatch) -> list[Callable[..., Column]]:
    """One TRL-shaped callable per column, named after it: TRL weights and logs each under its name."""

    def make(name: str) -> Callable[..., Column]:
        def reward(prompts: list[Any], completions: list[Any], **kwargs: Any) -> Column:
            return batch.component(name, prompts, completions, kwargs)

        reward.__name__ = name
        return reward

    return [make(name) for name in (*batch.names, *([POST_PROCESS] if batch.post_process else []))]


def _joined(slices: Sequence[Slice]) -> Slice:
    return Slice(
        prompts=[prompt for one in slices for prompt in one.prompts],
        completions=[completion for one in slices for completion in one.completions],
        columns={name: [value for one in slices for value in one.columns[name]] for name in slices[0].columns},
        statuses=[status for one in slices for status in one.statuses],
    )
