"""What the trainer reports when it has ended well: trainer.json."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from orchestrator.batches import BatchPlan
from orchestrator.paths import RunPaths
from orchestrator.training.evaluate import Evaluation
from orchestrator.training.metrics import rewards_by_step
from orchestrator.training.sync import CANARY_SYNCS

WINDOW = 10  # steps whose mean is the first and the last reward


@dataclass(frozen=True, kw_only=True)
class TrainingReport:
    """Figures of one part of a run: from the start or a checkpoint to the end."""

    plan: BatchPlan
    start_step: int
    final_step: int
    training_s: float
    num_rows: int
    num_dropped: int
    """Training prompts above `limits.prompt_length`."""
    logprob_gap: float | None
    """Of the last proof, in nats."""
    evaluated: Sequence[Evaluation]
    """The evaluations that this part made."""
    after: Evaluation | None

    def as_json(self, paths: RunPaths) -> dict[str, Any]:
        steps = max(self.final_step - self.start_step, 1)
        rewards = rewards_by_step(paths.metrics)
        before = paths.heldout_before
        return {
            "start_step": self.start_step,
            "final_step": self.final_step,
            "training_s": self.training_s,
            "seconds_per_step": self.training_s / steps,
            "first_reward": _mean(rewards[:WINDOW]),
            "last_reward": _mean(rewards[-WINDOW:]),
            "heldout_before": json.loads(before.read_text(encoding="utf-8")) if before.is_file() else None,
            "heldout_after": None if self.after is None else asdict(self.after),
            "logprob_gap": self.logprob_gap,
            "num_rows": self.num_rows,
            "num_dropped": self.num_dropped,
            "expected": self.expected(),
        }

    def expected(self) -> dict[str, int]:
        """What the servers must have counted, from the steps alone; orchestrator/supervise/counts.py compares."""
        steps = self.final_step - self.start_step
        scored_for_evaluation = sum(evaluation.num_scored for evaluation in self.evaluated)
        return {
            "samples_scored": self.plan.rounds(steps) * self.plan.generation_batch + scored_for_evaluation,
            # The first round finds the weights that the canary has proven; the final weights are sent after the last.
            "weight_syncs": CANARY_SYNCS + len(self.plan.generation_steps(steps)),
        }


def _mean(values: Sequence[float]) -> float | None:
    mean = sum(values) / len(values) if values else math.nan
    return None if math.isnan(mean) else mean
