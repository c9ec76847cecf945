"""The console script: sees that our packages are ours before anything imports them.

`rewards`, `launchers` and `conf` are names that a user may have too. The working directory never comes first on the
path, but PYTHONPATH does; a module found there would be imported in our place, by the services as well.
"""

import gc
import sys
from importlib.machinery import PathFinder
from pathlib import Path

from orchestrator.exits import USAGE

ROOT = Path(__file__).resolve().parent.parent


def shadowing(path: list[str] | None = None) -> dict[str, str]:
    """Our package -> the foreign file or folder that would be imported for it. Nothing is imported here."""
    found = {}
    for name in ("rewards", "launchers"):
        spec = PathFinder.find_spec(name, path)
        places = [] if spec is None else [*(spec.submodule_search_locations or [spec.origin or ""])]
        if places and Path(places[0]).resolve() != ROOT / name:
            found[name] = str(places[0])
    return found


def main() -> int:
    for name, place in shadowing().items():
        print(
            f"orchestrate: {place} shadows our package {name!r}: it comes earlier on PYTHONPATH or sys.path.\n"
            f"fix: take its folder off PYTHONPATH; a reward function of yours is named by file: rewards.py:NAME",
            file=sys.stderr,
        )
        return USAGE
    gc.disable()  # what is imported stays: looking for garbage among it is a tenth of what a check costs
    from orchestrator.cli import main as run

    gc.freeze()
    gc.enable()
    return run()
