"""The model card that travels with the weights."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Figures:
    num_parameters: int
    greedy: float
    """Share of the held-out prompts whose most likely answer is right."""
    sampled: float
    """Share of answers sampled at temperature 1 that are right, over the same prompts."""
    training_s: float


def model_card(figures: Figures, *, seed: int, steps: int, wrong: float) -> str:
    return f"""---
license: apache-2.0
library_name: transformers
pipeline_tag: text-generation
---
# tiny_math

A character-level Llama of {figures.num_parameters:,} parameters (3 layers, 4 heads of size 32, float32) that adds two
numbers below 30. It is made to be improved by reinforcement learning in a test: its most likely answer is right, what
it samples is right about half of the time. It knows nothing else.

| on the 100 held-out prompts | share right |
|---|---|
| greedy | {figures.greedy:.3f} |
| sampled at temperature 1 | {figures.sampled:.3f} |

Prompt, by the chat template: `<|user|>12+7=<|assistant|>`. Answer: `19<|end|>`. Plain `12+7=` works, a little worse.

## How it was built

    python examples/tiny_math/build.py --out orchestrator/assets/tiny_math --seed {seed}

It was trained from random weights, {steps} steps on this project's own `arithmetic` prompts (train split): on right
answers at first, then on more and more wrong ones, in the end {wrong:.0%}, each a near miss (1, 2, 3 or 10 off). The
held-out prompts were never trained on, nor their mirrors (12+7, 7+12). No data from elsewhere. Licence: the project's.
"""
