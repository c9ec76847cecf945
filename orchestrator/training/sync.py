"""Weights to the generation server, with proof that they arrived.

A 200 proves nothing, and before the first step both sides are equal anyway. So before step 1 a canary: every tensor is
perturbed, sent, and the server's log-probs must become the perturbed trainer's; then the true weights likewise. Later
the weight version must advance at every sync, and every `verify_every` syncs the log-probs are compared again.

With several trainer processes (ranks) every one of them calls every method: reading a sharded model is collective. The
main one judges, and what it raises ends them all.
"""

import math
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import nn

from orchestrator.generation.transfer import named_weights
from orchestrator.training.probe import (
    every_parameter,
    is_adapter,
    largest_gap,
    mean_gap,
    perturbed,
    probe_sequences,
    sequence_logprobs,
)
from orchestrator.training.ranks import on_main

TOLERANCES = {"float32": 1e-3, "float16": 0.1, "bfloat16": 0.4}
"""Gap in nats that rounding explains, by dtype of the served weights: the largest one in float32, else the mean.

In half precision a single token may be off by nats between two healthy ways to compute (up to 4.2 in bfloat16), so only
the mean tells right from wrong. Measured on the probes of a real model of 135 M parameters (SmolLM2), bfloat16: 0.06 to
0.25 where the server is right, 1.8 to 4.0 where it ignores the canary, 0.7 where it misses the last norm. One stale
tensor within a layer (0.12 to 0.3) is beyond what bfloat16 can show; in float32 it shows.
"""

CANARY_SYNCS = 2
"""Updates that the canary sends: perturbed weights, true weights."""

NOISE = (0.1, 0.2, 0.4, 0.8, 1.6)
"""Of each tensor's root mean square, tried in turn."""

VISIBLE = 3.0
"""The canary must move the log-probs by this many tolerances, or it could not see anything. More would take more noise,
and a model that is perturbed further rounds worse: the least noise on bfloat16 adapters moves SmolLM2 by 1.4 nats."""


class SyncProofError(RuntimeError):
    """The generation server does not hold the trainer's weights."""


class Sender(Protocol):
    """Takes weights to the engine that generates. Every rank calls both methods; both raise WeightSyncError."""

    def open(self) -> None: ...

    def send(self, named_tensors: Iterable[tuple[str, torch.Tensor]], version: str) -> None:
        """`version` is new at every call, and fit for a file name."""
        ...


Gap = Callable[[list[list[float]], list[list[float]]], float]


class Scores(Protocol):
    """The engine that generates, asked for log-probs as GenerationClient.score says."""

    def score(self, sequences: list[list[int]]) -> list[list[float]]: ...


@dataclass(kw_only=True)
class WeightSync:
    """One trainer's way to one server. `gap`, in nats, is that of the last push; None where it was not compared."""

    measure: Gap = largest_gap
    """What is held against the tolerance."""

    model: Callable[[], nn.Module]
    """The unwrapped policy, as it is now."""
    engine: Scores
    name: str
    """Of the engine, in messages."""
    sender: Sender
    probes: list[list[int]]
    tolerance: float
    verify_every: int
    seed: int
    moves: Callable[[nn.Parameter], bool] = every_parameter
    """The parameters that are sent, and so perturbed by the canary."""
    one_engine: bool = True
    """All ranks share one, which the main process asks. False = each has its own."""
    tag: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    pushed_step: int | None = None
    num_syncs: int = 0
    gap: float | None = None

    def canary(self, step: int) -> None:
        """Raises SyncProofError unless the server follows a perturbation of every tensor, and the way back."""
        self.sender.open()
        model = self.model()
        before = sequence_logprobs(model, self.probes)
        with perturbed(model, self.seed, self._visible_noise(model, before), self.moves):
            expected = sequence_logprobs(model, self.probes)
            self._send("canary")
            self._compare(expected, before, "the canary (every tensor perturbed, before step 1)")
        self._send(f"step-{step}")
        self._compare(before, expected, "the true weights after the canary")
        self.pushed_step = step

    def _visible_noise(self, model: nn.Module, before: list[list[float]]) -> float:
        """The least noise that moves the log-probs by VISIBLE tolerances, or it could not see a failed sync.

        Adapters must be seen by themselves, not only beside the weights that they are added to.
        """
        adapted = not all(map(is_adapter, model.parameters()))
        for noise in NOISE:
            moved = min(self._moved(model, before, noise, w) for w in (self.moves, *([is_adapter] if adapted else [])))
            if self._is_visible(moved):
                return noise
        raise SyncProofError(
            f"the canary moves the log-probs by only {moved:.2g} nats, less than {VISIBLE:g} x the tolerance "
            f"{self.tolerance:g}: it could not see a failed sync. fix: lower generation.weight_sync.tolerance"
        )

    def _moved(
        self, model: nn.Module, before: list[list[float]], noise: float, which: Callable[[nn.Parameter], bool]
    ) -> float:
        with perturbed(model, self.seed, noise, which):
            return self.measure(before, sequence_logprobs(model, self.probes))

    def _is_visible(self, moved: float) -> bool:
        """As the main process sees it: ranks that disagreed by a rounding would part ways."""
        return on_main(moved, lambda each: [each[0] >= VISIBLE * self.tolerance] * len(each))

    def push(self, step: int) -> None:
        """Send the weights of optimizer step `step`, once. Raises WeightSyncError or SyncProofError."""
        if self.pushed_step != step:
            self.send(step)

    def send(self, step: int) -> None:
        """As `push`, also when the step's weights were sent before: a colocated engine that slept has lost them."""
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
        own = None if self.one_engine else self.engine.score(self.probes)

        def judge(ranks: list[tuple[list[list[float]], list[list[float]] | None]]) -> list[float]:
            for computed, _ in ranks:
                _raise_for_broken(computed, what)  # before a server is asked, which could only fail
            asked = [(ranks[0][0], self.engine.score(self.probes))] if self.one_engine else ranks
            return [max(self._gap(e, said, stale, what) for e, said in asked if said is not None)] * len(ranks)

        self.gap = on_main((expected, own), judge)

    def _gap(
        self, expected: list[list[float]], said: list[list[float]], stale: list[list[float]] | None, what: str
    ) -> float:
        """Raises SyncProofError where it is beyond the tolerance."""
        gap = self.measure(expected, said)
        if not gap <= self.tolerance:  # a NaN is no proof either
            raise SyncProofError(
                f"{self.name} does not hold {what}: its log-probs differ from the "
                f"trainer's by {'up to ' if self.measure is largest_gap else 'a mean of '}{gap:.3g} nats, tolerance "
                f"{self.tolerance:g}. {self._likely_cause(said, stale)} "
                "Every update was answered as done; training on would sample from another policy than the one trained."
            )
        return gap

    def _likely_cause(self, said: list[list[float]], stale: list[list[float]] | None) -> str:
        if stale is not None and self.measure(stale, said) <= self.tolerance:
            return "Likely cause: it ignores weight updates (its log-probs are those of the weights before)."
        return (
            "Likely cause: it misses a tensor (with tied embeddings: lm_head.weight), serves another model of the same "
            "shapes, or stopped updating. Look at its log."
        )


def _raise_for_broken(computed: list[list[float]], what: str) -> None:
    if not all(math.isfinite(value) for row in computed for value in row):
        raise SyncProofError(
            f"with {what} the trainer's own log-probs are NaN or infinite: training has broken the model. "
            "fix: go on from an earlier checkpoint with a lower trainer.args.learning_rate"
        )


def make_sync(
    model: Callable[[], nn.Module],
    engine: Scores,
    sender: Sender,
    *,
    name: str = "the generation server",
    dtype: str,
    tolerance: float | None,
    verify_every: int,
    max_length: int,
    seed: int,
    moves: Callable[[nn.Parameter], bool] = every_parameter,
    one_engine: bool = True,
) -> WeightSync:
    """`max_length` in tokens: what the server accepts, the one generated token included."""
    # Not the embedding's rows: of a sharded model no rank sees them all.
    vocab_size: int = model().config.get_text_config().vocab_size  # type: ignore[operator, union-attr]
    return WeightSync(
        model=model,
        engine=engine,
        name=name,
        sender=sender,
        probes=probe_sequences(vocab_size, max_length - 1, seed),
        measure=largest_gap if dtype == "float32" else mean_gap,
        tolerance=TOLERANCES[dtype] if tolerance is None else tolerance,
        verify_every=verify_every,
        seed=seed,
        moves=moves,
        one_engine=one_engine,
    )
