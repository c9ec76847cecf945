"""A plain TRL script whose rewards come from a reward server: train.py MODEL SERVER_URL."""

import sys

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from rewards.client import RemoteReward


def main(model: str, url: str) -> None:
    rows = [
        {"prompt": [{"role": "user", "content": f"{a}+{b}="}], "answer": str(a + b)} for a in range(8) for b in range(8)
    ]
    args = GRPOConfig(
        output_dir="runs/trl_script",
        max_steps=3,
        num_generations=8,
        per_device_train_batch_size=32,
        max_completion_length=8,
        logging_steps=1,
        report_to="none",
        save_strategy="no",
        # For the shipped model, which is that small; leave both out on a GPU.
        use_cpu=True,
        bf16=False,
    )
    trainer = GRPOTrainer(
        model=model,
        args=args,
        train_dataset=Dataset.from_list(rows),
        reward_funcs=RemoteReward(url, num_generations=args.num_generations),
    )
    trainer.train()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
