"""`make learn`: the shipped experiment with three seeds (`SEEDS=0`: with one). Exit 1 unless each one learns.

Learning is: the mean sampled reward of the first 10 steps is at most 0.6, that of the last 10 at least 0.85.
"""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.orchestrated import orchestrate, read, run_dirs

SEEDS = ("0", "1", "2")
FIRST_AT_MOST, LAST_AT_LEAST = 0.6, 0.85


def main(seeds: Sequence[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        cwd = Path(folder)
        done = orchestrate("-m", "+experiment=grpo_math", f"seed={','.join(seeds)}", cwd=cwd, timeout_s=3600)
        print(done.stdout or done.stderr)
        results = [read(path / "result.json") for path in run_dirs(cwd)]
        learned = [
            result["code"] == 0 and result["first_reward"] <= FIRST_AT_MOST and result["last_reward"] >= LAST_AT_LEAST
            for result in results
        ]
        print(f"{sum(learned)} passed, {len(seeds) - sum(learned)} failed")
        return 0 if len(learned) == len(seeds) and all(learned) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or SEEDS))
