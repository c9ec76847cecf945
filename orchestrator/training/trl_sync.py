"""Weights by TRL's own sync (NCCL to a server, or into a colocated engine), under the same canary and proof as ours."""

from collections.abc import Iterable
from typing import Any

import torch

from orchestrator.generation.transfer import WeightSyncError
from orchestrator.training.sync import WeightSync


class TrlSender:
    """TRL reads the trainer's model by itself: gathered where it is sharded, adapters merged."""

    def __init__(self, trainer: Any) -> None:
        self._sync_weights = trainer.vllm_generation.sync_weights

    def open(self) -> None:
        """TRL has opened its group when the trainer was built."""

    def send(self, named_tensors: Iterable[tuple[str, torch.Tensor]], version: str) -> None:
        """Every rank must call it. `version` reaches no server: only log-probs prove what arrived."""
        try:
            self._sync_weights()
        except Exception as error:  # TRL's client raises bare Exceptions for what a server refuses
            raise WeightSyncError(f"TRL's weight sync failed: {type(error).__name__}: {error}") from error


def prove_every_sync(trainer: Any, sync: WeightSync) -> None:
    """From now on each sync that TRL makes by itself is counted and, as `verify_every` says, proven."""
    trainer.vllm_generation.sync_weights = lambda: sync.send(trainer.state.global_step)
