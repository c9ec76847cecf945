"""progress.json: what the trainer is doing now, so that whoever waits for it can tell slow from stuck (RUN004)."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from orchestrator.supervise.rundir import write_json

P = ParamSpec("P")
T = TypeVar("T")
COMPUTING = "the trainer's own computation"


class Progress(TrainerCallback):  # type: ignore[misc]
    """Written before everything that may take long: {"time", "step" (the last finished one), "doing"}."""

    def __init__(self, path: Path, *, step: int, writes: bool) -> None:
        """`writes` on one rank only."""
        self._path, self._step, self._writes = path, step, writes

    def doing(self, what: str) -> None:
        if self._writes:
            write_json(
                self._path, {"time": time.time(), "step": self._step, "doing": f"{what} (after step {self._step})"}
            )

    def through(self, call: Callable[P, T], what: str, then: str) -> Callable[P, T]:
        """`call`, told of before and after."""

        def told(*args: P.args, **kwargs: P.kwargs) -> T:
            self.doing(what)
            result = call(*args, **kwargs)
            self.doing(then)
            return result

        return told

    def on_substep_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.doing(COMPUTING)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._step = state.global_step
        self.doing("what comes between two steps: logging, a checkpoint")

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self.doing(COMPUTING)
