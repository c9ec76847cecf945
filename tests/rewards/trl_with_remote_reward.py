"""A user's plain TRL script: trl_with_remote_reward.py URL FOLDER GRPO|RLOO. Two steps; prints TRL's log as JSON."""

import json
import sys

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

from orchestrator.assets import TINY_MATH
from rewards.client import RemoteReward

ROWS = [{"prompt": [{"role": "user", "content": f"{a}+1="}], "answer": str(a + 1)} for a in range(8)]


TRAINERS = {"GRPO": (GRPOConfig, GRPOTrainer), "RLOO": (RLOOConfig, RLOOTrainer)}


def main(url: str, output_dir: str, method: str) -> None:
    config, trainer_class = TRAINERS[method]
    args = config(
        output_dir=output_dir,
        per_device_train_batch_size=8,
        num_generations=4,
        max_completion_length=6,
        max_steps=2,
        logging_steps=1,
        report_to="none",
        save_strategy="no",
        use_cpu=True,
        bf16=False,
        disable_tqdm=True,
    )
    trainer = trainer_class(
        model=str(TINY_MATH),
        args=args,
        train_dataset=Dataset.from_list(ROWS),
        reward_funcs=RemoteReward(url, num_generations=4),
    )
    trainer.train()
    print(json.dumps(trainer.state.log_history))


if __name__ == "__main__":
    main(*sys.argv[1:])
