"""Reward callables for TRL: one per function, and one request per generation batch behind them all.

TRL calls each function by itself, in order. So the callables share a memo that is keyed by the order of calls, not by
content: two batches with equal completions are two batches.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from orchestrator.training.groups import group_figures
from orchestrator.training.samples import SampleLog

NOT_COLUMNS = frozenset(
    {"prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric", "environments"}
)
"""What TRL passes to a reward function beside the data's columns."""

STATUS_COLUMN = "rollout_status"
"""How rollouts tell what became of a completion: completed, truncated or aborted."""


class Scored(Protocol):
    """A reply of the reward client, or of the in-process scorer."""

    @property
    def components(self) -> dict[str, list[float | None]]: ...

    @property
    def rewards(self) -> list[float | None]: ...


Score = Callable[[Sequence[Any], Sequence[Any], Mapping[str, Sequence[Any]], Sequence[int], Sequence[str]], Scored]
"""prompts, completions, columns, group ids, statuses -> a reward per sample and function."""


@dataclass
class RewardBatch:
    """The memo: the reply for the batch that TRL is asking about, and who has asked for it."""

    score: Score
    names: tuple[str, ...]
    group_size: Callable[[], int]
    samples: SampleLog
    wants_ids: bool
    """A function asks for `completion_ids`: they are sent only then, for they double a request."""
    is_training: Callable[[], bool]
    """False while TRL evaluates: only what is trained on goes into the samples."""
    by_part: tuple[str, ...] = ()
    """Functions whose rewards make an advantage each by itself; () = their weighted total makes one."""
    metrics: Callable[[], Mapping[str, float]] = dict
    """Figures that are logged once per generation batch, beside the rewards."""
    _reply: Scored | None = None
    _asked: set[str] = field(default_factory=set)

    def component(
        self, name: str, prompts: list[Any], completions: list[Any], kwargs: dict[str, Any]
    ) -> list[float | None]:
        if self._reply is None or name in self._asked:
            self._reply, self._asked = self._fetch(prompts, completions, kwargs), set()
        self._asked.add(name)
        # A sample without a total (an error that is masked) has no part either: TRL would take the rest for the whole.
        totals = self._reply.rewards
        return [None if totals[i] is None else value for i, value in enumerate(self._reply.components[name])]

    def _fetch(self, prompts: list[Any], completions: list[Any], kwargs: dict[str, Any]) -> Scored:
        columns = {key: values for key, values in kwargs.items() if key not in NOT_COLUMNS | {STATUS_COLUMN}}
        if self.wants_ids:
            columns["completion_ids"] = kwargs["completion_ids"]
        statuses = kwargs.get(STATUS_COLUMN) or ["completed"] * len(prompts)
        size = self.group_size()
        group_ids = [index // size for index in range(len(prompts))]
        reply = self.score(prompts, completions, columns, group_ids, statuses)
        step = kwargs["trainer_state"].global_step + 1  # the step that they are trained in, as metrics.jsonl counts
        if self.is_training():
            self.samples.write(step, prompts, completions, statuses, reply.components, reply.rewards)
        parts = [reply.components[name] for name in self.by_part] or [reply.rewards]
        for key, value in (group_figures(reply.rewards, parts, size) | dict(self.metrics())).items():
            kwargs["log_metric"](key, value)
        return reply


def reward_callables(batch: RewardBatch) -> list[Callable[..., list[float | None]]]:
    """One TRL-shaped callable per function, named after it: TRL weights and logs each under its name."""

    def make(name: str) -> Callable[..., list[float | None]]:
        def reward(prompts: list[Any], completions: list[Any], **kwargs: Any) -> list[float | None]:
            return batch.component(name, prompts, completions, kwargs)

        reward.__name__ = name
        return reward

    return [make(name) for name in batch.names]
