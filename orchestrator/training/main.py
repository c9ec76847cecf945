"""`python -P -m orchestrator.training.main --config RUN/config.yaml`: the trainer process."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from orchestrator.data import DataError
from orchestrator.generation.client import GenerationError
from orchestrator.generation.transfer import WeightSyncError
from orchestrator.resolve import resolve
from orchestrator.training.grpo import ConfigRefusedError
from orchestrator.training.prompts import PromptTooLongError
from orchestrator.training.ranks import MainProcessError
from orchestrator.training.session import NothingTrainedError, train
from orchestrator.training.sync import SyncProofError
from rewards.client import RewardError
from rewards.contract import ContractError

EXPECTED = (
    ConfigRefusedError,
    ContractError,
    DataError,
    GenerationError,
    MainProcessError,
    NothingTrainedError,
    PromptTooLongError,
    RewardError,
    SyncProofError,
    WeightSyncError,
)
"""Errors whose message says it all: no traceback."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="orchestrator.training.main", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="the run's resolved config.yaml")
    parser.add_argument("--resume-from", help="checkpoint folder to go on from")
    args = parser.parse_args(argv)
    raw = OmegaConf.load(args.config)
    assert isinstance(raw, DictConfig)  # noqa: S101 - we wrote it
    run, problems = resolve(raw)
    if problems:
        print(f"trainer: {args.config} does not fit this version: {problems}", file=sys.stderr)
        return 1
    try:
        train(run, args.config.parent, args.resume_from)
    except EXPECTED as error:
        print(f"trainer: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
