"""Gathers the facts for the rules. Each is a function of the settings that it is called with, and of this machine.

Nothing here imports torch, transformers, trl or vllm, or runs user code; a network is reached only when that is asked
for. Where a fact is not to be had, its place holds a string that says why.
"""

import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from orchestrator.data import DataError, DataFacts, describe
from orchestrator.data.recipe import heldout_rows, training_rows
from orchestrator.facts import gpus, machine, ports, prompt_tokens
from orchestrator.facts.cache import FactsCache
from orchestrator.facts.interpreters import LayoutError, site_packages
from orchestrator.facts.launcher_file import launcher_config
from orchestrator.facts.models import model_facts
from orchestrator.facts.packages import installed_versions, requirements
from orchestrator.facts.types import Facts
from orchestrator.fields.engine import CLASSES, engine_fields
from orchestrator.fields.source import FieldFact, SearchPath, SourceUnreadableError
from orchestrator.fields.trainer import trainer_fields
from orchestrator.kinds import generation_kind
from orchestrator.schema import DataConfig, EvaluationConfig, GenerationConfig, PostProcessConfig, RunConfig
from rewards.calling.signature import Signature, read_signature
from rewards.calling.targets import LoadError
from rewards.contract import SHAPES

LAUNCHERS = ("torchrun", "accelerate", "deepspeed")
"""Kinds of launcher that are programs of the same name."""


def gather(run: RunConfig, cache: FactsCache | None = None, *, online: bool = False) -> Facts:
    """Everything the rules ask for, in less than 0.1 s for a small recipe on CPUs. `online` lets it ask the hub.

    With `cache`, what an earlier call has looked up is not looked up again.
    """
    look = cache or FactsCache()
    models = {name: look(model_facts, name, revision, online=online) for name, revision in _model_names(run)}
    data = look(_described, run.data, run.evaluation, "train")
    generation_path = look(_generation_path, run.generation)
    return Facts(
        versions=installed_versions(),
        requirements=requirements(),
        generation_versions=(
            generation_path if isinstance(generation_path, str) else installed_versions(path=generation_path)
        ),
        models=models,
        data=data,
        heldout=look(_described, run.data, run.evaluation, "heldout") if run.evaluation.rows > 0 else None,
        prompt_tokens=prompt_tokens.read(run, data, models.get(run.model.name)),
        signatures={f.target: look(_signature, f.target, f.params, f.shape) for f in run.reward.functions if f.target},
        hook_signature=_hook_signature(run.reward.post_process, look),
        trainer_fields=_trainer_fields(run.trainer.kind),
        generation_fields=_generation_fields(run.generation.kind, generation_path),
        launcher_config=look(launcher_config, run.launcher.config),
        gpus=(
            look(gpus.visible_gpus, os.environ.get("CUDA_VISIBLE_DEVICES"))
            if gpus.uses_gpus(run)
            else "the recipe places nothing on GPUs"
        ),
        busy_ports=look(ports.busy_ports, tuple(ports.fixed_ports(run))),
        listening=look(ports.listening_ports),
        programs=look(runnable, tuple(_programs(run))),
        environment=frozenset(os.environ),
        environment_size=machine.environment_size(os.environb),
        num_cpus=look(machine.num_cpus),
        shm_free_bytes=look(machine.shm_free_bytes),
        run_dir_free_bytes=look(machine.free_bytes, Path(run.runs_dir).expanduser()),
    )


def _model_names(run: RunConfig) -> Iterator[tuple[str, str | None]]:
    wanted = {run.generation.model: run.generation.revision} | {run.model.name: run.model.revision}
    return ((name, revision) for name, revision in wanted.items() if name)


def _described(data: DataConfig, evaluation: EvaluationConfig, split: str) -> DataFacts | str:
    run = RunConfig(data=data, evaluation=evaluation)
    try:
        return describe(training_rows(run) if split == "train" else heldout_rows(run))
    except DataError as error:
        return str(error)


def _hook_signature(hook: PostProcessConfig, look: FactsCache) -> Signature | str | None:
    return look(_signature, hook.target, hook.params, "post_process") if hook.target else None


def _signature(target: str, params: Iterable[str], shape: Any) -> Signature | str:
    try:
        return read_signature(target, params, shape if shape in SHAPES else None)  # CFG004 names another one
    except LoadError as error:
        return str(error)


def _trainer_fields(kind: str) -> Mapping[str, FieldFact] | str:
    try:
        return trainer_fields(kind)
    except SourceUnreadableError as error:
        return str(error)


def _generation_path(generation: GenerationConfig) -> SearchPath | str:
    """Where the generation service's packages are: None = where ours are. A string says why that is not known."""
    if generation.kind == "external":
        return "somebody else runs the generation server"
    if generation.python is None or not generation_kind(generation).server:
        return None
    try:
        return site_packages(generation.python)
    except (LayoutError, OSError) as error:
        return str(error)


def _generation_fields(kind: str, path: SearchPath | str) -> Mapping[str, FieldFact] | str:
    if kind not in CLASSES:
        return "the generation service is not vLLM"
    if isinstance(path, str):
        return path
    try:
        return engine_fields(kind, path)
    except SourceUnreadableError as error:
        return str(error)


def _programs(run: RunConfig) -> Iterator[str | None]:
    yield from (run.generation.python, run.reward.python)
    if run.trainer.kind == "command":
        yield from run.trainer.argv[:1]
    elif run.launcher.kind in LAUNCHERS:
        yield run.launcher.kind


def runnable(names: Iterable[str | None]) -> frozenset[str]:
    """Those that are programs: named by a path or on PATH; a launcher may also stand beside our own interpreter, as
    torchrun does in an environment that is not activated.
    """
    beside = str(Path(sys.executable).parent)
    return frozenset(
        name
        for name in names
        if name and (shutil.which(name) or (name in LAUNCHERS and shutil.which(name, path=beside)))
    )
