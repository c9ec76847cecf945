"""Weights to the generation server, with proof that they arrived.

A 200 proves nothing, and before the first step both sides are equal anyway. So before step 1 a canary: every tensor is
perturbed, sent, and the server's log-probs must become the perturbed trainer's; then the true weights likewise. Later
the weight version must advance at every sync, and every `verify_every` syncs the log-probs are compared again.
"""

import math
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from torch import nn

from orchestrator.generation.client import GenerationClient
from orchestrator.generation.transfer import SafetensorsSender, named_weights
from orchestrator.training.probe import largest_gap, perturbed, probe_sequences, sequence_logprobs

TOLERANCES = {"float32": 1e-3, "float16": 0.05, "bfloat16": 0.25}
"""Largest gap in nats that rounding explains, by dtype of the served weights."""

CANARY_SYNCS = 2
"""Updates that the canary sends: perturbed weights, true weights."""

NOISE = (0.1, 0.2, 0.4, 0.8, 1.6)
"""Of each tensor's root mean square, tried in turn."""

VISIBLE = 10.0  # the canary must move the log-probs by this many tolerances, or it could not see anything


class SyncProofError(RuntimeError):
    """The generation server does not hold the trainer's weights."""


@dataclass(kw_only=True)
class WeightSync:
    """One trainer's way to one server. `gap`, in nats, is that of the last push; None where it was not compared."""

    model: Callable[[], nn.Module]
    """The unwrapped policy, as it is now."""
    client: GenerationClient
    sender: SafetensorsSender
    probes: list[list[int]]
    tolerance: float
    verify_every: int
    seed: int
    tag: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    pushed_step: int | None = None
    num_syncs: int = 0
    gap: float | None = None

    def canary(self, step: int) -> None:
        """Raises SyncProofError unless the server follows a perturbation of every tensor, and the way back."""
        self.sender.open()
        model = self.model()
        before = sequence_logprobs(model, self.probes)
        with perturbed(model, self.seed, self._visible_noise(model, before)):
            expected = sequence_logprobs(model, self.probes)
            self._send("canary")
            self._compare(expected, before, "the canary (every tensor perturbed, before step 1)")
        self._send(f"step-{step}")
        self._compare(before, expected, "the true weights after the canary")
        self.pushed_step = step

    def _visible_noise(self, model: nn.Module, before: list[list[float]]) -> float:
        """The least noise that moves the log-probs by VISIBLE tolerances, or it could not see a failed sync."""
        for noise in NOISE:
            with perturbed(model, self.seed, noise):
                moved = largest_gap(before, sequence_logprobs(model, self.probes))
            if moved >= VISIBLE * self.tolerance:
                return noise
        raise SyncProofError(
            f"the canary moves the log-probs by only {moved:.2g} nats, less than {VISIBLE:g} x the tolerance "
            f"{self.tolerance:g}: it could not see a failed sync. fix: lower generation.weight_sync.tolerance"
        )

    def push(self, step: int) -> None:
        """Send the weights of optimizer step `step`, once. Raises WeightSyncError or SyncProofError."""
        if self.pushed_step == step:
            return
        self._send(f"step-{step}")
        self.pushed_step, self.gap = step, None
        if self.num_syncs % self.verify_every == 0:
            self._compare(sequence_logprobs(self.model(), self.probes), None, f"the weights of step {step}")

    def verify(self) -> None:
        """Compare now, whatever the count says. Raises SyncProofError."""
        self._compare(sequence_logprobs(self.model(), self.probes), None, f"the weights of step {self.pushed_step}")

    def metrics(self) -> dict[str, float]:
        """What is logged with each generation batch."""
        gap = {} if self.gap is None else {"sync/logprob_gap": self.gap}
        return gap | {"sync/count": float(self.num_syncs)}

    def _send(self, label: str) -> None:
        self.num_syncs += 1
        # Unique for every run: a server that somebody else keeps may still name the version of an earlier one.
        self.sender.send(named_weights(self.model()), f"{label}-{self.num_syncs}-{self.tag}")

    def _compare(self, expected: list[list[float]], stale: list[list[float]] | None, what: str) -> None:
        if not all(math.isfinite(value) for row in expected for value in row):
            raise SyncProofError(
                f"with {what} the trainer's own log-probs are NaN or infinite: training has broken the model. "
                "fix: go on from an earlier checkpoint with a lower trainer.args.learning_rate"
            )
        said = self.client.score(self.probes)
        gap = largest_gap(expected, said)
        if not gap <= self.tolerance:  # a NaN is no proof either
            raise SyncProofError(
                f"the generation server at {self.client.base_url} does not hold {what}: its log-probs differ from the "
                f"trainer's by up to {gap:.3g} nats, tolerance {self.tolerance:g}. "
                f"{_likely_cause(said, stale, self.tolerance)} "
                "It answered every update with 200; training on would sample from another policy than the one trained."
            )
        self.gap = gap


def _likely_cause(said: list[list[float]], stale: list[list[float]] | None, tolerance: float) -> str:
    if stale is not None and largest_gap(stale, said) <= tolerance:
        return "Likely cause: it ignores weight updates (its log-probs are those of the weights before)."
    return (
        "Likely cause: it misses a tensor (with tied embeddings: lm_head.weight), serves another model of the same "
        "shapes, or stopped updating. Look at its log."
    )


def make_sync(
    model: Callable[[], nn.Module],
    client: GenerationClient,
    sender: SafetensorsSender,
    *,
    dtype: str,
    tolerance: float | None,
    verify_every: int,
    max_length: int,
    seed: int,
) -> WeightSync:
    """`max_length` in tokens: what the server accepts, the one generated token included."""
    vocab_size = model().get_input_embeddings().weight.shape[0]  # type: ignore[operator, union-attr]
    return WeightSync(
        model=model,
        client=client,
        sender=sender,
        probes=probe_sequences(vocab_size, max_length - 1, seed),
        tolerance=TOLERANCES[dtype] if tolerance is None else tolerance,
        verify_every=verify_every,
        seed=seed,
    )
