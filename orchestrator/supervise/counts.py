"""`python -P -m orchestrator.supervise.counts --run-dir RUN`: the last task of a run.

The servers have counted for themselves what they scored and which weights they took. Those counts must equal what the
steps imply; a run whose counts differ trained on something else, and fails.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import requests
from omegaconf import DictConfig, OmegaConf

from orchestrator.paths import RunPaths
from orchestrator.resolve import resolve
from orchestrator.schema import RunConfig
from orchestrator.supervise.rundir import write_json
from rewards.client import RewardClient, RewardError

TIMEOUT_S = 20.0


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="orchestrator.supervise.counts", description=__doc__)
    parser.add_argument("--run-dir", type=Path, required=True)
    run_dir = parser.parse_args(argv).run_dir
    paths = RunPaths(run_dir=run_dir)
    raw = OmegaConf.load(paths.config)
    assert isinstance(raw, DictConfig)  # noqa: S101 - we wrote it
    run, _ = resolve(raw)
    expected = json.loads(paths.trainer.read_text(encoding="utf-8"))["expected"]
    try:
        counted = count(run, _reward_at_handshake(run_dir))
    except (requests.RequestException, RewardError, KeyError) as error:
        print(f"counts: a server could not be asked: {error}", file=sys.stderr)
        return 1
    write_json(paths.counts, {"expected": expected, "counted": counted})
    problems = list(differences(expected, counted))
    for problem in problems:
        print(f"counts: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _reward_at_handshake(run_dir: Path) -> Mapping[str, Any]:
    """`pid` and `samples_scored` of the reward server before the trainer started; {} where there is none."""
    services = json.loads(RunPaths(run_dir=run_dir).handshake.read_text(encoding="utf-8"))["services"]
    found: Mapping[str, Any] = services.get("reward", {})
    return found


def count(run: RunConfig, reward_before: Mapping[str, Any]) -> dict[str, int | None]:
    """What the servers counted since the handshake, whose own sample is none of the trainer's.

    None where the service is not ours, so that others may have used it too, or where it was restarted and has forgotten
    what its predecessor counted.
    """
    counted: dict[str, int | None] = {"samples_scored": None, "weight_syncs": None}
    if run.reward.kind == "local":
        token = os.environ.get(run.reward.token_env) if run.reward.token_env else None
        said = RewardClient(run.reward.url, token=token, timeout_s=TIMEOUT_S).info()
        if said["pid"] == reward_before["pid"]:
            counted["samples_scored"] = said["samples_scored"] - reward_before["samples_scored"]
    if run.generation.kind == "embedded":
        with requests.Session() as session:
            session.trust_env = False
            reply = session.get(f"{run.generation.url}/stats", timeout=TIMEOUT_S)
        reply.raise_for_status()
        counted["weight_syncs"] = reply.json()["weight_syncs"]
    return counted


def differences(expected: Mapping[str, int], counted: Mapping[str, Any]) -> Iterator[str]:
    for name, steps_imply in expected.items():
        if counted[name] is not None and counted[name] != steps_imply:
            yield (
                f"{name}: the steps imply {steps_imply}, the server counted {counted[name]}. "
                "Something was scored or synced twice, not at all, or by somebody else."
            )


if __name__ == "__main__":
    sys.exit(main())
