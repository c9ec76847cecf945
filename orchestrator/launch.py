"""Jobs that were checked, handed to Hydra; and what a job asks of Hydra while it runs."""

import contextlib
import io
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from orchestrator.compose import CONF_DIR


def sweep_dir() -> Path:
    """Hydra's folder for the sweep that the calling job belongs to; only inside a launched job."""
    return Path(HydraConfig.get().sweep.dir)


def job_overrides() -> tuple[str, ...]:
    """The overrides of the calling job, as a sweeper chose them; only inside a launched job."""
    return tuple(text.removeprefix("++") for text in HydraConfig.get().overrides.task)


def launch(
    task: Callable[[DictConfig], Any], overrides: Sequence[str], *, multirun: bool, config_dir: str | None
) -> str:
    """Let Hydra run the job or the sweep; returns what Hydra wrote on stderr, '' when all was well.

    hydra.main reads sys.argv, drops return values and exits by itself on an exception; the caller knows the outcome
    from what its jobs have written, so all that is needed here is Hydra's own complaint.
    """
    argv = [
        sys.argv[0],
        *(["-m"] if multirun else []),
        *(["--config-dir", config_dir] if config_dir else []),
        *overrides,
    ]
    GlobalHydra.instance().clear()
    stderr, saved, complaint = sys.stderr, sys.argv, io.StringIO()

    def with_stderr(raw: DictConfig) -> Any:
        with contextlib.redirect_stderr(stderr):
            return task(raw)

    entry = hydra.main(config_path=str(CONF_DIR), config_name="config", version_base="1.3")(with_stderr)
    sys.argv = argv
    try:
        # Hydra's report of a failed job is kept, not printed: the job has already said what went wrong.
        with contextlib.redirect_stderr(complaint):
            entry()
    except (SystemExit, KeyboardInterrupt):
        return complaint.getvalue() or "Hydra ended without a message"
    finally:
        sys.argv = saved
    return ""
