"""metrics.jsonl: one line per logged step, for the progress display, the report and whoever plots."""

import json
import math
import time
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from orchestrator.alarms.steps import RAW_REWARD


class MetricsFile(TrainerCallback):  # type: ignore[misc]
    """Appends {"step", "time", ...TRL's own names} for every log call of the trainer."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if not state.is_world_process_zero or not logs:
            return
        line = {"step": state.global_step, "time": time.time()} | {k: finite(v) for k, v in logs.items() if k != "step"}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


class StepTrace(TrainerCallback):  # type: ignore[misc]
    """Which optimizer step each micro-step belonged to. The last step of an epoch may have fewer than the others."""

    def __init__(self) -> None:
        self.micro_steps: list[int] = []

    def on_substep_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.micro_steps.append(state.global_step)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self.micro_steps.append(state.global_step - 1)


def finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: a figure that is not finite is null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def rewards_by_step(path: Path) -> list[float]:
    """The sampled mean reward of each step, in order, before a post-process hook; of a step's lines the last counts."""
    by_step: dict[int, float] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        reward = entry.get(RAW_REWARD, entry.get("reward"))
        if reward is not None:
            by_step[entry["step"]] = reward
    return [by_step[step] for step in sorted(by_step)]
