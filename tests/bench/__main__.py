"""`make bench`: each figure is a ratio against a named baseline, both measured here, now, in turn.

Numbers, not tests: a slow machine makes both sides slow. `python -m tests.bench NAME` runs one: `check`, `sweep`,
`step`, `rewards`, `math`, `generation` or `sync`.
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

from tests.bench.generation import bench_generation
from tests.bench.math import bench_math
from tests.bench.rewards import bench_rewards
from tests.bench.sync import bench_sync
from tests.orchestrated import ORCHESTRATE, orchestrate, read, run_dirs

EXPERIMENT = "+experiment=grpo_math"
CHECK_RUNS = 7
CHECK_ALLOWANCE_S = 0.3
"""A check should take at most 1.2 of the bare composition plus this."""
SWEEP_RUNS = 3
SWEPT = (
    "seed=range(0,10)",
    "trainer.args.learning_rate=1e-5,2e-5,3e-5,4e-5,5e-5,6e-5,7e-5,8e-5,9e-5,1e-4",
    "trainer.args.beta=0.0,0.01,0.02,0.03,0.04,0.05,0.06,0.07,0.08,0.09",
)
COMBINATIONS = 1000
HYDRA_COMBINATIONS = 40
"""As many as the baseline composes: it takes long enough."""
STEP_RUNS = 3
STEPS = 40
RESOLVERS = (
    "from hydra import compose, initialize_config_dir\n"
    "from omegaconf import OmegaConf\n"
    "for name in ('shipped', 'sum', 'url_port'):\n"
    "    OmegaConf.register_new_resolver(name, lambda *words: str(words))\n"
)
BARE_HYDRA = RESOLVERS + (
    "with initialize_config_dir({conf!r}, version_base='1.3'):\n"
    "    OmegaConf.to_container(compose('config', ['{experiment}']), resolve=True)\n"
)
BARE_COMBINATIONS = RESOLVERS + (
    "import time\n"
    "with initialize_config_dir({conf!r}, version_base='1.3'):\n"
    "    started = None\n"
    "    for number in range({combinations} + 1):\n"
    "        started = started or (time.monotonic() if number else None)\n"
    "        composed = compose('config', ['{experiment}', f'seed={{number}}', f'trainer.args.beta={{number}}'])\n"
    "        OmegaConf.to_container(composed, resolve=True)\n"
    "print((time.monotonic() - started) / {combinations})\n"
)
"""Seconds for one combination, imports and the first composition not counted."""


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
    beyond = statistics.median((mine - CHECK_ALLOWANCE_S) / theirs for mine, theirs in pairs)
    print(f"  ratio without {CHECK_ALLOWANCE_S} s: median {beyond:.2f} (aim: at most 1.2)")


def bench_sweep(cwd: Path) -> None:
    """One combination of a sweep of values, checked, over Hydra composing one; ours with start and output, cold."""
    from orchestrator.compose import CONF_DIR

    script = BARE_COMBINATIONS.format(conf=str(CONF_DIR), experiment=EXPERIMENT, combinations=HYDRA_COMBINATIONS)
    bare = [sys.executable, "-c", script]
    ours = [str(ORCHESTRATE), "check", "-m", EXPERIMENT, *SWEPT]
    pairs = [(seconds(ours, cwd) / COMBINATIONS, _printed(bare, cwd)) for _ in range(SWEEP_RUNS)]
    _report(f"orchestrate check -m, each of {COMBINATIONS} combinations", "bare Hydra composition, each", pairs)
    print(f"  {1000 * statistics.median(mine for mine, _ in pairs):.1f} ms each (aim: at most 10 ms)")


def _printed(argv: list[str], cwd: Path) -> float:
    return float(subprocess.run(argv, cwd=cwd, check=True, capture_output=True, text=True, timeout=600).stdout)


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
    print(f"{ours}: median {mine:.4f} s")
    print(f"  {baseline}: median {theirs:.4f} s")
    spread = f"least {ratios[0]:.2f}, greatest {ratios[-1]:.2f}, {len(pairs)} pairs"
    print(f"  ratio: median {statistics.median(ratios):.2f} ({spread})")


BENCHES: dict[str, Callable[[Path], None]] = {
    "check": bench_check,
    "sweep": bench_sweep,
    "step": bench_step,
    "rewards": bench_rewards,
    "math": bench_math,
    "generation": bench_generation,
    "sync": bench_sync,
}


def main(names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in names or BENCHES:
            BENCHES[name](Path(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
