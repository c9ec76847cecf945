"""What a command line asks for: one job, or a sweep whose combinations are all known before the first one starts."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Glob, Override
from hydra.types import RunMode
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from orchestrator.compose import CommandLineError, Composer, RecipeError

BASIC_SWEEPER = "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"
BASIC_LAUNCHER = "hydra._internal.core_plugins.basic_launcher.BasicLauncher"


@dataclass(frozen=True, kw_only=True)
class Request:
    """The jobs, and how Hydra is told to launch the same ones."""

    jobs: tuple[tuple[str, ...], ...]
    """The overrides of each job. Of a sweep whose jobs a plugin chooses as it goes: of one, what all have in common."""
    for_hydra: tuple[str, ...]
    multirun: bool = False
    sweeper: str = ""
    """The `hydra/sweeper` that chooses the jobs as it goes; '' = they are known."""


def requested(composer: Composer, overrides: Sequence[str], *, multirun: bool) -> Request:
    """Raises CommandLineError and RecipeError. A recipe can ask for a sweep too (`hydra.mode: MULTIRUN`)."""
    parsed = composer.parse(overrides)
    fixed = [override for override in parsed if not override.is_sweep_override()]
    hydra_config = composer.hydra_config(fixed)
    for_hydra = tuple(_key(composer, override) + _value(override) for override in parsed)
    if not multirun and hydra_config.mode != RunMode.MULTIRUN:
        return Request(jobs=(tuple(overrides),), for_hydra=for_hydra)
    choices = hydra_config.runtime.choices
    if hydra_config.launcher._target_ != BASIC_LAUNCHER:
        typed = any(override.key_or_group == "hydra/launcher" for override in parsed)
        raise (CommandLineError if typed else RecipeError)(
            f"hydra/launcher={choices['hydra/launcher']} starts jobs in other processes, and this sweep would not see "
            "how they end; leave it out: sweep.parallel=N runs N jobs at once"
        )
    if hydra_config.sweeper._target_ != BASIC_SWEEPER:
        common = tuple(override.input_line or "" for override in fixed)
        _one_at_a_time(composer, common, choices["hydra/sweeper"])
        return Request(jobs=(common,), for_hydra=for_hydra, multirun=True, sweeper=choices["hydra/sweeper"])
    return _grid(composer, parsed, hydra_config.sweeper.get("params") or {})


def _one_at_a_time(composer: Composer, common: Sequence[str], sweeper: str) -> None:
    with composer.lent(common) as composed:
        parallel = OmegaConf.select(composed.raw, "sweep.parallel")
    if isinstance(parallel, int) and parallel > 1:
        raise CommandLineError(
            f"hydra/sweeper={sweeper} chooses each job after it has seen how the last one went, so that "
            f"sweep.parallel={parallel} cannot be; leave one of the two out"
        )


def sweep_folder(composer: Composer, overrides: Sequence[str]) -> Path:
    """`hydra.sweep.dir` for the sweep whose first job has these overrides. Raises RecipeError."""
    with composer.lent(overrides) as composed:
        settings = composer.hydra_config(composer.parse(overrides))
        template = OmegaConf.to_container(settings.sweep, resolve=False)
        recipe = OmegaConf.to_container(composed.raw, resolve=False)
    assert isinstance(template, dict) and isinstance(recipe, dict)  # noqa: S101, PT018 - both are mappings
    try:
        return Path(OmegaConf.create(recipe | {"sweep_folder": template["dir"]})["sweep_folder"])
    except OmegaConfBaseException as error:
        raise RecipeError(f"hydra.sweep.dir = {template['dir']}: {error}") from error


def _grid(composer: Composer, parsed: Sequence[Override], params: Mapping[str, Any]) -> Request:
    """The jobs of Hydra's own sweeper, in its order.

    Hydra is given every value written out, so that what `glob` has found and `shuffle` has drawn here is what it
    launches; and the recipe's own `params` among them, because it would refuse a key that no YAML mentions.
    """
    named = {override.key_or_group for override in parsed}
    # As Hydra does it: what the recipe sweeps stands first, and the command line wins.
    swept = composer.parse([f"{key}={value}" for key, value in params.items()])
    every = {_key(composer, o): o for o in [*(o for o in swept if o.key_or_group not in named), *parsed]}
    values = {key: _values(composer, override) for key, override in every.items()}
    grid = itertools.product(*([key + value for value in of_key] for key, of_key in values.items()))
    written_out = (key + ",".join(of_key) for key, of_key in values.items())
    return Request(
        jobs=tuple(tuple(text.removeprefix("++") for text in job) for job in grid),
        for_hydra=(*written_out, *(["hydra.sweeper.params=null"] if swept else [])),
        multirun=True,
    )


def _key(composer: Composer, override: Override) -> str:
    """The part of an override before its value, as Hydra accepts it whether it knows the key or not."""
    if override.is_delete():
        return override.input_line or ""
    return f"{override.get_key_element()}=" if composer.is_group(override) else f"++{override.key_or_group}="


def _value(override: Override) -> str:
    return "" if override.is_delete() else override.get_value_string()


def _values(composer: Composer, override: Override) -> list[str]:
    if not override.is_sweep_override():
        return [_value(override)]
    if override.is_hydra_override():
        raise CommandLineError(f"{override.input_line}: Hydra's own settings cannot be swept")
    if not override.is_discrete_sweep():
        raise CommandLineError(f"{override.input_line}: Hydra's basic sweeper takes lists and ranges, no intervals")
    asked = override.value()
    if not isinstance(asked, Glob):
        return list(override.sweep_string_iterator())
    there = composer.options(override.key_or_group)
    if not (found := asked.filter(there)):
        raise CommandLineError(f"{override.input_line} matches none of: {', '.join(there) or '(there is nothing)'}")
    return found
