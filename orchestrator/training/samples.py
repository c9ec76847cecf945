"""samples.jsonl: every completion that was trained on, with the parts of its reward."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


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
        components: Mapping[str, Sequence[float | None]],
        rewards: Sequence[float | None],
    ) -> None:
        lines = [
            json.dumps(
                {
                    "step": step,
                    "prompt": prompt,
                    "completion": completions[i],
                    "status": statuses[i],
                    "reward": rewards[i],
                    "components": {name: values[i] for name, values in components.items()},
                }
            )
            for i, prompt in enumerate(prompts)
        ]
        with self.path.open("a", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")


def keep_steps_up_to(path: Path, step: int) -> None:
    """Before a resume: drop the lines of steps that will be trained again."""
    if not path.is_file():
        return
    kept = [line for line in path.read_text(encoding="utf-8").splitlines() if json.loads(line).get("step", 0) <= step]
    scratch = path.with_suffix(".tmp")
    scratch.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
    scratch.replace(path)
