"""The baseline: the same recipe as plain TRL in one process, completions by model.generate. Prints seconds per step."""

import json
import sys
import time
from typing import Any

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from orchestrator.compose import Composer
from orchestrator.data.recipe import training_rows
from orchestrator.resolve import resolve
from orchestrator.training.grpo import load_model, load_tokenizer
from rewards.functions.accuracy import accuracy


def reward(prompts: list[Any], completions: list[Any], answer: list[str], **columns: Any) -> list[float | None]:
    return accuracy(prompts, completions, answer)


def main(overrides: list[str], output_dir: str) -> None:
    run, problems = resolve(Composer().compose(overrides).raw)
    assert not problems
    # TRL 1.16 takes top_k and the like for model.generate from the same fields.
    args = run.trainer.args | {"output_dir": output_dir, "disable_tqdm": True, "remove_unused_columns": False}
    trainer = GRPOTrainer(
        model=load_model(run),
        args=GRPOConfig(**args),
        processing_class=load_tokenizer(run),
        train_dataset=Dataset.from_list(training_rows(run)),
        reward_funcs=[reward],
    )
    started = time.monotonic()
    trainer.train()
    seconds = time.monotonic() - started
    rewards = [entry["reward"] for entry in trainer.state.log_history if "reward" in entry]
    print(json.dumps({"seconds_per_step": seconds / trainer.state.global_step, "rewards": rewards}))


if __name__ == "__main__":
    main(sys.argv[2:], sys.argv[1])
