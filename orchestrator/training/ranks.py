"""Work that the main process does for all processes of a trainer (ranks)."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object

Own = TypeVar("Own")
Share = TypeVar("Share")


class MainProcessError(RuntimeError):
    """The main process failed; the message is its own. Raised on the others, so that all end with the same words."""


def on_main(own: Own, work: Callable[[list[Own]], Sequence[Share]]) -> Share:
    """`work` over what every rank gives, in the ranks' order; each gets its item of the result.

    All ranks must call it. What `work` raises is raised on the main process, and MainProcessError on the others.
    """
    state = PartialState()
    everyone = gather_object([own])
    outcome: list[Any] = [None, None]  # result, words of an error
    failure: Exception | None = None
    if state.is_main_process:
        try:
            outcome = [list(work(everyone)), None]
        except Exception as error:  # whatever it is, the others wait for word of it
            failure, outcome = error, [None, f"{type(error).__name__}: {error}"]
    broadcast_object_list(outcome, from_process=0)
    if failure is not None:
        raise failure
    if outcome[1] is not None:
        raise MainProcessError(outcome[1])
    share: Share = outcome[0][state.process_index]
    return share
