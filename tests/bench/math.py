"""`python -m tests.bench math`: math-verify over HTTP beside a plain multiprocessing.Pool, same fresh answers."""

import multiprocessing
import os
import random
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rewards.client import RewardClient
from rewards.functions.accuracy import accuracy
from tests.bench.serving import reward_server

REPEATS = 3
SAMPLES = 1024  # per repeat, batch size and number of clients; at 1.3 ms each on one core
CLIENTS = (1, 8)
BATCHES = (16, 64, 256)
CORES = len(os.sched_getaffinity(0))
AIM = 0.8
WORKING = "We simplify the expression step by step, and collect what is left on both sides of the equation. " * 3


@dataclass(frozen=True)
class Sample:
    """A completion and a gold answer, each of which is parsed; no two are alike."""

    completion: str
    gold: str
    right: bool


def fresh(rng: random.Random) -> Sample:
    top, bottom, factor, right = rng.randint(1, 10**6), rng.randint(2, 10**6), rng.randint(2, 9), rng.random() < 0.5
    shown = rf"\frac{{{top * factor + (not right)}}}{{{bottom * factor}}}"
    return Sample(f"{WORKING}So the answer is $\\boxed{{{shown}}}$.", rf"\frac{{{top}}}{{{bottom}}}", right)


def grade(sample: Sample) -> float | None:
    return accuracy([""], [sample.completion], answer=[sample.gold])[0]


def bench_math(cwd: Path) -> None:
    """The same grading, in turn, by a server with a worker per core and by a process per core without one."""
    rng = random.Random(0)
    print(f"math-verify, {CORES} cores, {SAMPLES} fresh answers a run, half of them wrong, medians of {REPEATS} runs")
    wrong = 0
    with reward_server("accuracy", workers=CORES) as port, multiprocessing.Pool(CORES) as pool:
        url = f"http://127.0.0.1:{port}"
        pool.map(grade, [fresh(rng) for _ in range(64)])  # imports
        score(url, [fresh(rng) for _ in range(64)], clients=CORES, batch=16)
        for batch in BATCHES:
            for clients in CLIENTS:
                rates, ratios = [], []
                for _ in range(REPEATS):
                    samples = [fresh(rng) for _ in range(SAMPLES)]
                    began = time.perf_counter()
                    plain = pool.map(grade, samples)
                    between = time.perf_counter()
                    ours = score(url, samples, clients, batch)
                    ended = time.perf_counter()
                    wrong += sum(a != b or a != s.right for a, b, s in zip(ours, plain, samples, strict=True))
                    rates.append(SAMPLES / (ended - between))
                    ratios.append((between - began) / (ended - between))
                share = statistics.median(ratios)
                print(
                    f"{clients:7} x {batch:<5}  {statistics.median(rates):7.0f} answers/s  of Pool.map: {share:.2f} "
                    f"(least {min(ratios):.2f}, greatest {max(ratios):.2f})   aim {AIM}: "
                    f"{'met' if share >= AIM else 'MISSED'}"
                )
    print(f"  disagreements with in-process grading, or with the truth: {wrong} (aim 0)")


def score(url: str, samples: list[Sample], clients: int, batch: int) -> list[float | None]:
    """Rewards of all samples; each client sends its next batch when it has an answer."""
    own = threading.local()

    def one(start: int) -> list[float | None]:
        if not hasattr(own, "client"):
            own.client = RewardClient(url)
        some = samples[start : start + batch]
        golds = {"answer": [sample.gold for sample in some]}
        reply = own.client.score([""] * len(some), [sample.completion for sample in some], golds)
        return list(reply.rewards)

    with ThreadPoolExecutor(clients) as threads:
        return [reward for rewards in threads.map(one, range(0, len(samples), batch)) for reward in rewards]
