"""Senders of weights, safe to be called by every rank: all read the model, the main process speaks to the server."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from accelerate import PartialState

from orchestrator.generation.model_weights import Named
from orchestrator.generation.transfer import SafetensorsSender, WeightSyncError
from orchestrator.training.ranks import on_main

Result = TypeVar("Result")


def once(work: Callable[[], Result]) -> Result:
    """`work` on the main process, its result on all; what it raises ends all of them."""
    return on_main(None, lambda ranks: [work()] * len(ranks))


class FileSender:
    """Whole weights through a file."""

    def __init__(self, sender: SafetensorsSender) -> None:
        self._sender = sender

    def open(self) -> None:
        """Raises WeightSyncError."""
        once(self._sender.open)

    def send(self, named_tensors: Iterable[Named], version: str) -> None:
        """All ranks take every tensor, for it may be gathered; after a failed write too. Raises WeightSyncError."""
        tensors, failure = iter(named_tensors), None
        if PartialState().is_main_process:
            try:
                self._sender.write(tensors, version)
            except WeightSyncError as error:
                failure = error
        for _ in tensors:
            pass
        once(lambda: self._finish(failure, version))

    def _finish(self, failure: WeightSyncError | None, version: str) -> None:
        if failure is not None:
            raise failure
        self._sender.load(version)
