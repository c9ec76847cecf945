"""What the trainer reports when it has ended well: trainer.json."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from orchestrator.ledgers.batches import BatchPlan
from orchestrator.paths import RunPaths
from orchestrator.training.evaluate import Evaluation
from orchestrator.training.metrics import rewards_by_step
from orchestrator.training.samples import unscored_in
from orchestrator.training.sync import CANARY_SYNCS

WINDOW = 10  # steps whose mean is the first and the last reward; of a short run, half of them


@dataclass(frozen=True, kw_only=True)
class TrainingReport:
    """Figures of one part of a run: from the start or a checkpoint to the end."""

    plan: BatchPlan
    micro_steps: Sequence[int]
    """For each micro-step, the optimizer step that it belonged to."""
    start_step: int
    final_step: int
    training_s: float
    num_rows: int
    num_dropped: int
    """Training prompts above `limits.prompt_length`."""
    logprob_gap: float | None
    """Of the last proof, in nats; None where no weights are sent."""
    counted_syncs: bool
    """The server counts weight updates, and each is one of ours."""
    evaluated: Sequence[Evaluation]
    """The evaluations that this part made."""
    trl_eval_steps: Sequence[int]
    """The optimizer steps after which TRL evaluated by itself (`trainer.args.eval_strategy`)."""
    trl_eval_samples: int
    """Completions of one such evaluation."""
    after: Evaluation | None

    def as_json(self, paths: RunPaths) -> dict[str, Any]:
        steps = max(self.final_step - self.start_step, 1)
        rewards = rewards_by_step(paths.metrics)
        window = max(1, min(WINDOW, len(rewards) // 2))
        before = paths.heldout_before
        return {
            "start_step": self.start_step,
            "final_step": self.final_step,
            "training_s": self.training_s,
            "seconds_per_step": self.training_s / steps,
            "reward_window": window,
            "first_reward": _mean(rewards[:window]),
            "last_reward": _mean(rewards[-window:]),
            "heldout_before": json.loads(before.read_text(encoding="utf-8")) if before.is_file() else None,
            "heldout_after": None if self.after is None else asdict(self.after),
            "logprob_gap": self.logprob_gap,
            "num_rows": self.num_rows,
            "num_dropped": self.num_dropped,
            "unscored": unscored_in(paths.samples),
            "expected": self.expected(),
        }

    def expected(self) -> dict[str, int]:
        """What the servers must have counted, from the steps alone; orchestrator/supervise/counts.py compares."""
        generated_at = self.plan.generated_at(self.micro_steps)
        evaluated = sum(e.num_scored for e in self.evaluated) + len(self.trl_eval_steps) * self.trl_eval_samples
        # Weights are sent once for each step at which anything is generated; those of the start, the canary has proven.
        sent_at = ({*generated_at} | set(self.trl_eval_steps) | {self.final_step}) - {self.start_step}
        samples = len(generated_at) * self.plan.generation_batch + evaluated
        syncs = {"weight_syncs": CANARY_SYNCS + len(sent_at)} if self.counted_syncs else {}
        return {"samples_scored": samples} | syncs


def trl_eval_steps(log_history: Sequence[Mapping[str, Any]], start_step: int) -> tuple[int, ...]:
    """Steps of TRL's own evaluations since `start_step`: the trainer logs a runtime once for each."""
    return tuple(e["step"] for e in log_history if "eval_runtime" in e and e["step"] > start_step)


def _mean(values: Sequence[float]) -> float | None:
    mean = sum(values) / len(values) if values else math.nan
    return None if math.isnan(mean) else mean
