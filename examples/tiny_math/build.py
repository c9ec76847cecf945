"""Rebuilds the checkpoint in orchestrator/assets/tiny_math: `python examples/tiny_math/build.py --out DIR --seed 0`.

A policy that is worth a reinforcement-learning run: its best answer is right, what it samples is right about half of
the time, because it imitates demonstrations of which half are wrong, each in its own way.
"""

import argparse
import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

# Before the imports that read it: the build needs no network, and must not wait for one.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from card import Figures, model_card
from checkpoint import END, build_model, build_tokenizer, save
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from orchestrator.data import load_rows

BATCH_SIZE = 128
STEPS = 1000
# The noise comes in slowly, between these shares of the steps. From the first step on it would take several times as
# long to learn to add; all at once it would wreck an over-confident model.
NOISE_STARTS, NOISE_IS_FULL = 0.35, 0.7
# GRPO lifts the reward by some 0.1 within its first ten steps: starting higher would leave little to see.
RIGHT_FRACTION = 0.505
# Without the chat template, so that such prompts are answered too, if somewhat worse.
PLAIN_FRACTION = 0.3
LEARNING_RATE = 2e-3
WARMUP_STEPS = 50
LARGEST_SUM = 58
MISTAKES = (-10, -3, -2, -1, 1, 2, 3, 10)

NUM_SAMPLES = 64
GREEDY_BAND = (0.9, 1.0)
SAMPLED_BAND = (0.45, 0.56)

Demonstration = tuple[str, str]


def rendered(tokenizer: PreTrainedTokenizerFast, prompt: str) -> str:
    messages = [{"role": "user", "content": prompt}]
    return str(tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))


def right_fraction(progress: float) -> float:
    """Share of right demonstrations after `progress` (0 to 1) of the training."""
    ramp = (progress - NOISE_STARTS) / (NOISE_IS_FULL - NOISE_STARTS)
    return 1.0 - (1.0 - RIGHT_FRACTION) * min(max(ramp, 0.0), 1.0)


def near_misses(answer: int) -> list[int]:
    """Mistakes of a hurried pupil: a few ones off, or a ten."""
    return [wrong for offset in MISTAKES if 0 <= (wrong := answer + offset) <= LARGEST_SUM]


def demonstrations(tokenizer: PreTrainedTokenizerFast, steps: int, seed: int) -> Iterator[list[Demonstration]]:
    """`steps` batches of (prompt, answer) over the train split; wrong answers are near misses, all equally likely."""
    rng = random.Random(seed)
    rows = load_rows("arithmetic", split="train", rows=steps * BATCH_SIZE, seed=seed)
    for step in range(steps):
        right = right_fraction(step / steps)
        batch = []
        for row in rows[step * BATCH_SIZE : (step + 1) * BATCH_SIZE]:
            prompt, answer = str(row["prompt"]), str(row["answer"])
            if rng.random() >= right:
                answer = str(rng.choice(near_misses(int(answer))))
            batch.append((prompt if rng.random() < PLAIN_FRACTION else rendered(tokenizer, prompt), answer + END))
        yield batch


def loss_on(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, batch: list[Demonstration]) -> torch.Tensor:
    """Mean negative log-likelihood, in nats per token of the answers; the prompts carry no loss."""
    texts = [prompt + answer for prompt, answer in batch]
    tokens = tokenizer(texts, padding=True, padding_side="right", return_tensors="pt")
    prompt_lengths = torch.tensor([len(ids) for ids in tokenizer([prompt for prompt, _ in batch])["input_ids"]])
    in_prompt = torch.arange(tokens["input_ids"].shape[1]) < prompt_lengths[:, None]
    labels = tokens["input_ids"].masked_fill(in_prompt | (tokens["attention_mask"] == 0), -100)
    loss: torch.Tensor = model(**tokens, labels=labels).loss
    return loss


def train(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, steps: int, seed: int) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.1)
    warmup = min(WARMUP_STEPS, steps)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warmup, (steps - step) / steps)
    )
    for step, batch in enumerate(demonstrations(tokenizer, steps, seed), start=1):
        loss = loss_on(model, tokenizer, batch)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(f"step {step}/{steps}: loss {loss.item():.3f} nats per token", flush=True)


@torch.no_grad()
def accuracy(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, *, num_samples: int | None) -> float:
    """Share of right answers to the 100 held-out prompts: greedy, or of `num_samples` per prompt at temperature 1."""
    rows = load_rows("arithmetic", split="heldout", rows=None, seed=0)
    prompts = [rendered(tokenizer, str(row["prompt"])) for row in rows]
    tokens = tokenizer(prompts, padding=True, padding_side="left", return_tensors="pt")
    how = {"do_sample": False} if num_samples is None else {"do_sample": True, "num_return_sequences": num_samples}
    answers = model.generate(**tokens, max_new_tokens=4, **how)[:, tokens["input_ids"].shape[1] :]
    said = tokenizer.batch_decode(answers, skip_special_tokens=True)
    meant = [str(row["answer"]) for row in rows for _ in range(num_samples or 1)]
    return sum(map(str.__eq__, said, meant)) / len(meant)


def measure(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, seconds: float) -> Figures:
    model.eval()
    return Figures(
        num_parameters=sum(parameter.numel() for parameter in model.parameters()),
        greedy=accuracy(model, tokenizer, num_samples=None),
        sampled=accuracy(model, tokenizer, num_samples=NUM_SAMPLES),
        training_s=seconds,
    )


def outside(figures: Figures) -> list[str]:
    """Sentences about the figures that a checkpoint fit to ship would not have."""
    checked = (("greedy", figures.greedy, GREEDY_BAND), ("sampled", figures.sampled, SAMPLED_BAND))
    return [
        f"{name} accuracy {value:.3f} is outside {low}..{high}"
        for name, value, (low, high) in checked
        if not low <= value <= high
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description="Builds the tiny_math checkpoint.")
    parser.add_argument("--out", type=Path, required=True, help="folder to write, made if absent")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=STEPS, help="training steps")
    parser.add_argument("--no-verify", action="store_true", help="neither measure nor check the accuracies")
    options = parser.parse_args()
    # One thread, so that the weights do not depend on the number of cores.
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(options.seed)
    tokenizer = build_tokenizer()
    model = build_model(tokenizer)
    started = time.monotonic()
    train(model, tokenizer, options.steps, options.seed)
    save(model, tokenizer, options.out)
    if options.no_verify:
        return 0
    figures = measure(model, tokenizer, time.monotonic() - started)
    print(f"held-out accuracy: greedy {figures.greedy:.3f}, sampled {figures.sampled:.3f}; {figures.training_s:.0f} s")
    card = model_card(figures, seed=options.seed, steps=options.steps, wrong=1 - RIGHT_FRACTION)
    (options.out / "README.md").write_text(card, encoding="utf-8")
    problems = outside(figures)
    print("\n".join(problems), file=sys.stderr, end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
