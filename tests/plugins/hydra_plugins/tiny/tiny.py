"""A sweeper that tries what it is told, one job after the other, and a launcher that is never used."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


@dataclass
class TinyConf:
    _target_: str = "hydra_plugins.tiny.tiny.TinySweeper"
    tries: list[str] = field(default_factory=list)


@dataclass
class ElsewhereConf:
    _target_: str = "hydra_plugins.tiny.tiny.ElsewhereLauncher"


ConfigStore.instance().store(group="hydra/sweeper", name="tiny", node=TinyConf)
ConfigStore.instance().store(group="hydra/launcher", name="elsewhere", node=ElsewhereConf)


class TinySweeper(Sweeper):
    def __init__(self, tries: Sequence[str]) -> None:
        self._tries = tries

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self._launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> None:
        told = [
            _told(self._launcher.launch([[*arguments, one]], initial_job_idx=n)[0]) for n, one in enumerate(self._tries)
        ]
        print(f"the sweeper was told: {', '.join(told)}")


def _told(done: JobReturn) -> str:
    try:
        return "a number" if isinstance(done.return_value, float) else "nothing"
    except Exception:  # whatever the job has raised
        return "failed"


class ElsewhereLauncher(Launcher):
    def setup(self, **_: Any) -> None: ...

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        raise AssertionError("jobs must not leave this process")
