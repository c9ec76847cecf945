"""One of several trainer processes: two_ranks.py FOLDER REWARD_FILE, under torchrun's environment variables.

Scores one generation batch of three groups of four through a RewardBatch, as TRL would: each rank with its slice, so
that the group in the middle straddles two of them. Writes what TRL would get to FOLDER/RANK.json.
"""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import torch.distributed
from accelerate import PartialState

from orchestrator.training.reward import RewardBatch, reward_callables
from orchestrator.training.samples import SampleLog
from rewards.calling.post_process import hook_spec
from rewards.contract import FunctionSpec
from rewards.scoring import Scorer

GROUP, SAMPLES = 4, 12


def main(folder: Path, file: str) -> None:
    state = PartialState(cpu=True)
    requests: list[int] = []
    scorer = Scorer(
        [
            FunctionSpec(name="best", target=f"{file}:best", granularity="group", weight=2.0),
            FunctionSpec(name="length", target=f"{file}:length", granularity="sample"),
        ],
        post_process=hook_spec(f"{file}:hook"),
    )

    def score(*batch):  # type: ignore[no-untyped-def]
        requests.append(len(batch[0]))
        return scorer.score(*batch)

    logged: dict[str, float] = {}
    batch = RewardBatch(
        score=score,
        names=("best", "length"),
        group_size=lambda: GROUP,
        samples=SampleLog(path=folder / "samples.jsonl"),
        wants_ids=True,
        is_training=lambda: True,
        post_process=True,
    )
    size = SAMPLES // state.num_processes
    mine = range(state.process_index * size, (state.process_index + 1) * size)
    columns = {}
    for reward in reward_callables(batch):
        columns[reward.__name__] = reward(
            prompts=[f"p{i // GROUP}" for i in mine],
            completions=["x" * (i + 1) for i in mine],
            completion_ids=[[1] * (i + 1) for i in mine],
            rollout_status=["aborted" if i == 11 else "completed" for i in mine],
            gold=[str(i) for i in mine],
            trainer_state=SimpleNamespace(global_step=6),
            log_metric=logged.__setitem__,
            log_extra=None,
        )
    (folder / f"{state.process_index}.json").write_text(
        json.dumps({"columns": columns, "requests": requests, "logged": logged})
    )


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), sys.argv[2])
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
