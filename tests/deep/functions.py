"""Reward functions that keep or break the contract, each in one way."""

import os
import random
import signal
import time
from typing import Any


def text_of(completion: Any) -> str:
    return completion if isinstance(completion, str) else completion[0]["content"]


def length(completions: list[Any], **columns: Any) -> list[float]:
    return [float(len(text_of(c))) for c in completions]


def one_for_all(completions: list[Any], **columns: Any) -> list[float]:
    return [1.0]


def nothing_without_gold(completions: list[Any], gold: Any = None, **columns: Any) -> list[float]:
    return [] if gold is None else length(completions)


def not_a_number(completions: list[Any], **columns: Any) -> list[float]:
    return [0.0 if text_of(c) else float("nan") for c in completions]


def scored_dict(completions: list[Any], **columns: Any) -> list[dict[str, float]]:
    return [{"score": float(len(text_of(c))), "lines": 1.0} for c in completions]


def divides_by_length(completions: list[Any], **columns: Any) -> list[float]:
    return [1 / len(text_of(c)) for c in completions]


def kills_itself(completions: list[Any], **columns: Any) -> list[float]:
    os.kill(os.getpid(), signal.SIGKILL)
    return length(completions)


def sleeps_on_empty(completions: list[Any], **columns: Any) -> list[float]:
    time.sleep(10 if any(not text_of(c) for c in completions) else 0)
    return length(completions)


def nothing(completions: list[Any], **columns: Any) -> list[None]:
    return [None] * len(completions)


def rolls_dice(completions: list[Any], **columns: Any) -> list[float]:
    return [random.random() for _ in completions]


def always_zero(completions: list[Any], **columns: Any) -> list[float]:
    return [0.0] * len(completions)
