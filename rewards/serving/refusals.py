"""Refused requests in the server's log.

The clients of Align-Anything, OpenRLHF, slime and vime drop the words of a refusal and show its status alone, so the
log is where their users can find the reason.
"""

import time
from collections.abc import Sequence

from rewards.contract import Failure
from rewards.protocols.common import first_to_look_at
from rewards.serving.http_io import say

QUIET_S = 1.0
"""A client that asks in a loop must not fill the disk: within this time further refusals are only counted."""


class RefusalLog:
    """At most a line per QUIET_S. A refusal's words may quote a prompt or a gold answer, so they need `with_words`."""

    def __init__(self, with_words: bool) -> None:
        self._with_words, self._silent_until, self._unsaid = with_words, 0.0, 0

    def note(self, dialect: str, status: int, failures: Sequence[Failure]) -> None:
        now = time.monotonic()
        if now < self._silent_until:
            self._unsaid += 1
            return
        first = first_to_look_at(failures)
        where = "" if first.index is None else f", sample {first.index}"
        why = first.message if self._with_words else f"{first.kind} (--log-samples says more)"
        before = f" ({self._unsaid} more since the last line)" if self._unsaid else ""
        say(f"{dialect} request refused with {status}: {first.function or 'server'}{where}: {why}{before}")
        self._silent_until, self._unsaid = now + QUIET_S, 0
