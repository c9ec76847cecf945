"""The files of a run directory: one home for their names. docs/architecture.md says what each holds."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class RunPaths:
    """Paths below one run directory. logs/ and processes.json are the supervisor's own."""

    run_dir: Path

    @property
    def in_use(self) -> Path:
        """Locked by the orchestrator that works in this directory."""
        return self.run_dir / ".in_use"

    @property
    def recipe(self) -> Path:
        return self.run_dir / "recipe.yaml"

    @property
    def config(self) -> Path:
        return self.run_dir / "config.yaml"

    @property
    def plan(self) -> Path:
        return self.run_dir / "plan.json"

    @property
    def findings(self) -> Path:
        return self.run_dir / "findings.json"

    @property
    def lock(self) -> Path:
        return self.run_dir / "lock.json"

    @property
    def handshake(self) -> Path:
        return self.run_dir / "handshake.json"

    @property
    def weights(self) -> Path:
        """The folder that weight files travel through: the generation server reads from nowhere else.

        A link into shared memory where they fit (orchestrator/supervise/shared_memory.py); gone when the run has ended.
        """
        return self.run_dir / "weights"

    @property
    def metrics(self) -> Path:
        return self.run_dir / "metrics.jsonl"

    @property
    def progress(self) -> Path:
        """What the trainer is doing now: by it the supervisor sees that it does not stall."""
        return self.run_dir / "progress.json"

    @property
    def alarms(self) -> Path:
        return self.run_dir / "alarms.jsonl"

    @property
    def samples(self) -> Path:
        return self.run_dir / "samples.jsonl"

    @property
    def checkpoints(self) -> Path:
        return self.run_dir / "checkpoints"

    @property
    def model(self) -> Path:
        return self.run_dir / "model"

    @property
    def heldout_before(self) -> Path:
        return self.run_dir / "heldout_before.json"

    @property
    def trainer(self) -> Path:
        """What the trainer reports. It is written last: without it, training did not end well."""
        return self.run_dir / "trainer.json"

    @property
    def counts(self) -> Path:
        return self.run_dir / "counts.json"

    @property
    def result(self) -> Path:
        return self.run_dir / "result.json"
