"""samples.jsonl: every completion that was trained on, with the parts of its reward."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

Column = list[float | None]


class Scored(Protocol):
    """A reply of the reward client, or of the in-process scorer."""

    @property
    def components(self) -> dict[str, Column]: ...

    @property
    def rewards(self) -> Column: ...

    @property
    def raw(self) -> Column | None: ...


@dataclass(frozen=True, kw_only=True)
class SampleLog:
    """Appends whole batches. Prompts and completions are written here and nowhere else."""

    path: Path

    def write(
        self,
        step: int,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        statuses: Sequence[str],
        scored: Scored,
    ) -> None:
        """With a post-process hook, `reward` is what is trained on, and `raw` what came before it."""
        lines = [
            json.dumps(
                {
                    "step": step,
                    "prompt": prompt,
                    "completion": completions[i],
                    "status": statuses[i],
                    "reward": scored.rewards[i],
                    "components": {name: values[i] for name, values in scored.components.items()},
                }
                | ({} if scored.raw is None else {"raw": scored.raw[i]})
            )
            for i, prompt in enumerate(prompts)
        ]
        with self.path.open("a", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")


def unscored(statuses: Sequence[str], rewards: Sequence[float | None]) -> dict[str, int]:
    """How many samples have no reward, by why: not generated to an end (aborted, failed), or an error masked."""
    without = [status for status, reward in zip(statuses, rewards, strict=True) if reward is None]
    aborted, failed = without.count("aborted"), without.count("failed")
    return {"masked": len(without) - aborted - failed, "failed": failed, "aborted": aborted}


def unscored_in(path: Path) -> dict[str, int]:
    """The same over all of samples.jsonl."""
    statuses, rewards = [], []
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            sample = json.loads(line)
            statuses.append(sample["status"])
            rewards.append(sample["reward"])
    return unscored(statuses, rewards)


def keep_steps_up_to(path: Path, step: int) -> None:
    """Before a resume: drop the lines of steps that will be trained again."""
    if not path.is_file():
        return
    kept = [line for line in path.read_text(encoding="utf-8").splitlines() if json.loads(line).get("step", 0) <= step]
    scratch = path.with_suffix(".tmp")
    scratch.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
    scratch.replace(path)
