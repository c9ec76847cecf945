"""`make bench`: each figure is a ratio against a named baseline, both measured here, now, in turn.

Numbers, not tests: a slow machine makes both sides slow. `python -m tests.bench check` or `step` runs one of them.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.orchestrated import ORCHESTRATE, orchestrate, read, run_dirs

EXPERIMENT = "+experiment=grpo_math"
CHECK_RUNS = 7
STEP_RUNS = 3
STEPS = 40
BARE_HYDRA = (
    "from hydra import compose, initialize_config_dir\n"
    "from omegaconf import OmegaConf\n"
    "for name in ('shipped', 'sum', 'url_port'):\n"
    "    OmegaConf.register_new_resolver(name, lambda *words: str(words))\n"
    "with initialize_config_dir({conf!r}, version_base='1.3'):\n"
    "    OmegaConf.to_container(compose('config', ['{experiment}']), resolve=True)\n"
)


def seconds(argv: list[str], cwd: Path) -> float:
    started = time.monotonic()
    subprocess.run(argv, cwd=cwd, check=True, capture_output=True, timeout=600)
    return time.monotonic() - started


def bench_check(cwd: Path) -> None:
    """Cold `orchestrate check` over a bare Hydra composition of the same recipe."""
    from orchestrator.compose import CONF_DIR

    bare = [sys.executable, "-c", BARE_HYDRA.format(conf=str(CONF_DIR), experiment=EXPERIMENT)]
    ours = [str(ORCHESTRATE), "check", EXPERIMENT]
    pairs = [(seconds(ours, cwd), seconds(bare, cwd)) for _ in range(CHECK_RUNS)]
    _report("orchestrate check", "bare Hydra composition", pairs)


def bench_step(cwd: Path) -> None:
    """Seconds per step, orchestrated over plain TRL in one process: same model, data, settings, threads."""
    settings = [EXPERIMENT, f"trainer.args.max_steps={STEPS}", "trainer.args.save_strategy=no", "evaluation.rows=0"]
    pairs = [(_orchestrated(cwd, settings), _in_process(cwd, settings)) for _ in range(STEP_RUNS)]
    _report(f"seconds per step over {STEPS} steps, three processes", "TRL in one process, model.generate", pairs)


def _orchestrated(cwd: Path, settings: list[str]) -> float:
    done = orchestrate(*settings, cwd=cwd, timeout_s=600)
    assert done.returncode == 0, done.stderr
    return float(read(run_dirs(cwd)[-1] / "trainer.json")["seconds_per_step"])


def _in_process(cwd: Path, settings: list[str]) -> float:
    env = os.environ | {"OMP_NUM_THREADS": "1"}  # as the recipe says for its trainer and generation server
    argv = [sys.executable, "-m", "tests.bench.in_process_trl", str(cwd / "plain"), *settings]
    done = subprocess.run(
        argv, cwd=Path(__file__).parents[2], env=env, check=True, capture_output=True, text=True, timeout=600
    )
    return float(json.loads(done.stdout.splitlines()[-1])["seconds_per_step"])


def _report(ours: str, baseline: str, pairs: list[tuple[float, float]]) -> None:
    mine, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratios = sorted(a / b for a, b in pairs)
    print(f"{ours}: median {mine:.3f} s")
    print(f"  {baseline}: median {theirs:.3f} s")
    spread = f"least {ratios[0]:.2f}, greatest {ratios[-1]:.2f}, {len(pairs)} pairs"
    print(f"  ratio: median {statistics.median(ratios):.2f} ({spread})")


BENCHES: dict[str, Callable[[Path], None]] = {"check": bench_check, "step": bench_step}


def main(names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in names or BENCHES:
            BENCHES[name](Path(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
