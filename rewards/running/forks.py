"""Children that user code forks, and that come back to us instead of ending: they must not go on as a second worker.

Such a child has our pipes and our memory. `os.fork` in a reward function followed by `sys.exit()`, or by nothing, would
otherwise have it answer for its parent.
"""

import os
import sys
import traceback
from typing import NoReturn

depth = 0
"""Forks between this process and the one that imported this module: it differs after a call only in a forked child."""


def _deeper() -> None:
    global depth
    depth += 1


os.register_at_fork(after_in_child=_deeper)


def end_child(error: BaseException | None = None) -> NoReturn:
    """End this forked child as Python would, but for the clean-up, which is its parent's. `error`: what it raised."""
    code: object = 1
    if error is None:
        code = 0
    elif isinstance(error, SystemExit):
        code = 0 if error.code is None else error.code
    try:
        if error is not None and not isinstance(error, SystemExit):
            traceback.print_exception(error)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code & 0xFF if isinstance(code, int) else 1)
