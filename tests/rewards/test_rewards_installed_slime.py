"""Reward files of slime where a package of that name is there, each in a fresh process."""

import subprocess
import sys
from pathlib import Path

TYPES = """
from dataclasses import dataclass, field
from enum import Enum

@dataclass
class Sample:
    group_index: int | None = None
    index: int | None = None
    prompt: str = ""
    tokens: list = field(default_factory=list)
    response: str = ""
    response_length: int = 0
    label: str | None = None
    reward: float | None = None
    custom_rm_path: str | None = None

    class Status(Enum):
        COMPLETED = "completed"
        TRUNCATED = "truncated"

    status: Status = Status.COMPLETED
    metadata: dict = field(default_factory=dict)
"""
REWARD = """
from slime.utils.types import Sample

async def reward_func(args, sample, **kwargs):
    if not isinstance(sample, Sample):
        raise TypeError("Sample must be an instance of Sample class.")
    assert isinstance(sample.status, Sample.Status)
    {more}
    return float(sample.response == sample.label)
"""


def check(folder: Path, more: str) -> subprocess.CompletedProcess[str]:
    """`rewards check` of a reward file in `folder`, which is on the path."""
    (folder / "mine.py").write_text(REWARD.format(more=more))
    (folder / "rows.jsonl").write_text('{"prompt": "1+1=", "label": "2"}\n')
    command = [sys.executable, "-m", "rewards", "check", "mine.py:reward_func", "--data", "rows.jsonl"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)


def test_samples_are_of_the_installed_class(tmp_path: Path) -> None:
    (tmp_path / "slime/utils").mkdir(parents=True)
    for name, source in {"__init__": "", "utils/__init__": "", "utils/types": TYPES}.items():
        (tmp_path / "slime" / f"{name}.py").write_text(source)
    done = check(tmp_path, "assert sample.custom_rm_path is None")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_clone_of_the_repository_in_the_working_directory_is_no_installation(tmp_path: Path) -> None:
    (tmp_path / "slime/slime").mkdir(parents=True)
    (tmp_path / "slime/slime/__init__.py").touch()
    done = check(tmp_path, "assert not hasattr(sample, 'custom_rm_path')")
    assert done.returncode == 0, done.stdout + done.stderr
