"""`python -m tests.bench rewards`: pairs per second beside bare FastAPI servers, the same payloads in turn."""

import json
import os
import statistics
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.bench.http_load import Load
from tests.bench.serving import reward_server, serving

REPEATS = 3
SECONDS = 1.0
CLIENTS = (1, 8, 64)
BATCHES = (1, 16, 256)
CORES = len(os.sched_getaffinity(0))
P99_AIM_MS = 100
USER_FUNCTIONS = """
def whole(prompts, completions, answer, **kwargs):
    return [float(completion == gold) for completion, gold in zip(completions, answer)]
def alone(prompts, completions, answer, **kwargs):
    return [float(completions[0] == answer[0])]
"""
ECHO, OPENRLHF = "bare FastAPI echo", "as OpenRLHF's server"
INLINE, WHOLE, ALONE = "inline", "workers, one call", "workers, a call per pair"
AIMS = {INLINE: 0.5, WHOLE: 0.25, ALONE: 0.25}
"""Least share of the echo's rate, for batches of more than one pair."""

Measured = dict[tuple[str, int, int], dict[str, list[float]]]
"""(server, clients, batch) -> figure -> one value per repeat."""


def bench_rewards(cwd: Path) -> None:
    """Every server gets the same load in turn, several times over: a machine that is busy slows all of them."""
    path = cwd / "mine.py"
    path.write_text(USER_FUNCTIONS)
    alone = json.dumps({"target": f"{path}:alone", "granularity": "sample"})
    with ExitStack() as stack:
        bare, logging = (
            stack.enter_context(serving("tests.bench.baseline_servers", kind, health=None))
            for kind in ("echo", "openrlhf")
        )
        servers = {
            ECHO: (bare, "/echo"),
            OPENRLHF: (logging, "/get_reward"),
            INLINE: (stack.enter_context(reward_server("exact_match", workers=CORES)), "/v1/score"),
            WHOLE: (stack.enter_context(reward_server(f"{path}:whole", workers=CORES)), "/v1/score"),
            ALONE: (stack.enter_context(reward_server(alone, workers=CORES)), "/v1/score"),
        }
        loads = [
            Load(name, port, path, clients, batch, SECONDS)
            for batch in BATCHES
            for clients in CLIENTS
            for _ in range(REPEATS)
            for name, (port, path) in servers.items()
        ]
        results = run_loads(loads)
    measured: Measured = {}
    for load, figures in zip(loads, results, strict=True):
        entry = measured.setdefault((load.server, load.clients, load.batch), {})
        for figure, value in figures.items():
            entry.setdefault(figure, []).append(value)
    report(measured)


def run_loads(loads: list[Load]) -> list[dict[str, Any]]:
    argv = [sys.executable, "-m", "tests.bench.http_load"]
    plan = json.dumps([asdict(load) for load in loads])
    limit_s = 60 + 3 * sum(load.seconds for load in loads)
    done = subprocess.run(
        argv, input=plan, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, check=True, text=True, timeout=limit_s
    )
    return list(json.loads(done.stdout))


def report(measured: Measured) -> None:
    print(f"pairs per second, 0.9 KiB a pair, {CORES} cores for load, server and workers, medians of {REPEATS}")
    print("clients x batch  server                        pairs/s   p50 ms   p95 ms   p99 ms  of echo  of OpenRLHF")
    for batch in BATCHES:
        for clients in CLIENTS:
            for server in (ECHO, OPENRLHF, INLINE, WHOLE, ALONE):
                print(_line(measured, server, clients, batch))


def _line(measured: Measured, server: str, clients: int, batch: int) -> str:
    figures = measured[server, clients, batch]
    rates, ms = figures["pairs_per_s"], [statistics.median(figures[f"p{p}_ms"]) for p in (50, 95, 99)]
    shares = {
        base: statistics.median(
            ours / theirs for ours, theirs in zip(rates, measured[base, clients, batch]["pairs_per_s"], strict=True)
        )
        for base in (ECHO, OPENRLHF)
    }
    line = f"{clients:7} x {batch:<5}  {server:27} {statistics.median(rates):9.0f} "
    line += "".join(f"{value:9.2f}" for value in ms) + f" {shares[ECHO]:8.2f} {shares[OPENRLHF]:12.2f}"
    return line + (_verdict(server, clients, batch, shares, ms[-1]) if server in AIMS else "")


def _verdict(server: str, clients: int, batch: int, shares: dict[str, float], p99_ms: float) -> str:
    """Single pairs: the rate of OpenRLHF's server, which like our inline functions has no time limit to enforce."""
    if batch > 1:
        line = f"   aim {AIMS[server]:g} of echo: {'met' if shares[ECHO] >= AIMS[server] else 'MISSED'}"
    elif server == INLINE:
        line = f"   aim 1 of OpenRLHF: {'met' if shares[OPENRLHF] >= 1 else 'MISSED'}"
    else:
        line = "  "
    if (clients, batch) == (64, 1):
        line += f" p99 under {P99_AIM_MS} ms: {'met' if p99_ms < P99_AIM_MS else 'MISSED'}"
    return line
