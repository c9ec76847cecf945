"""Printing that outlives its reader: `| head -1` closes the pipe, and neither the run nor its exit code may suffer."""

import os
import sys


def say(text: str, *, error: bool = False) -> None:
    """Print on stdout, or with `error` on stderr."""
    stream = sys.stderr if error else sys.stdout
    try:
        print(text, file=stream, flush=True)
    except BrokenPipeError:
        # Nobody reads any more; what is still to come, at exit too, goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
