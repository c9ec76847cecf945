"""Overrides -> one merged, unresolved recipe. The only importer of Hydra.

Hydra composes the chosen groups; value overrides are applied here, one by one, because Hydra stops at the first unknown
key and refuses `trainer.args.beta=0` when no YAML mentions `beta`. What is wrong with a key is for the rules to say.
"""

import contextlib
import io
import sys
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hydra
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, OverrideParseException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from orchestrator.resolve import register_resolvers, with_defaults

# By path and not by import: a user's own `conf` package must not shadow ours.
CONF_DIR = Path(__file__).resolve().parent.parent / "conf"


class CommandLineError(Exception):
    """The command line itself is wrong: exit code 64."""


class RecipeError(Exception):
    """The chosen groups do not compose (a group or a file that is not there, broken YAML)."""


@dataclass(frozen=True)
class Composed:
    """One combination of overrides: the merged recipe with its interpolations, and the overrides that made it."""

    raw: DictConfig
    overrides: tuple[str, ...]
    rejected: tuple[str, ...] = ()
    """Overrides that could not be applied at all, each with the reason."""


class Composer:
    """Composes many combinations: once per distinct choice of groups (about 0.1 s each), values applied to copies."""

    def __init__(self, config_dir: str | None = None) -> None:
        self._searchpath = [f"hydra.searchpath=[file://{Path(config_dir).resolve()}]"] if config_dir else []
        if config_dir and not Path(config_dir).is_dir():
            raise CommandLineError(f"--config-dir {config_dir}: no such directory")
        # A group is a folder of YAML files, ours or the user's; asking Hydra would cost another compose.
        roots = [CONF_DIR, *([Path(config_dir)] if config_dir else [])]
        self._groups = frozenset(str(d.relative_to(root)) for root in roots for d in root.rglob("*") if d.is_dir())
        self._bases: dict[tuple[str, ...], DictConfig] = {}
        register_resolvers()

    def parse(self, overrides: Sequence[str]) -> list[Override]:
        try:
            parsed = OverridesParser.create().parse_overrides([_with_plus(o) for o in overrides])
        except (OverrideParseException, HydraException) as error:
            raise CommandLineError(f"cannot read the override: {error}") from error
        for override in parsed:
            if not override.key_or_group:
                raise CommandLineError(f"{override.input_line}: an override is key=value")
        return parsed

    def compose(self, overrides: Sequence[str]) -> Composed:
        """Merge one combination. Raises CommandLineError or RecipeError; everything else is left to the rules."""
        parsed = self.parse(overrides)
        values = [o for o in parsed if not self._is_group(o)]
        raw = deepcopy(self._base(tuple(o.input_line or "" for o in parsed if self._is_group(o))))
        rejected = tuple(reason for o in values if (reason := _apply(raw, o)))
        return Composed(raw=raw, overrides=tuple(overrides), rejected=rejected)

    def _is_group(self, override: Override) -> bool:
        key = override.key_or_group
        return key.startswith("hydra") or ((not override.is_delete() or "." not in key) and key in self._groups)

    def _base(self, groups: tuple[str, ...]) -> DictConfig:
        if groups not in self._bases:
            try:
                with initialize_config_dir(str(CONF_DIR), version_base="1.3", job_name="orchestrate"):
                    whole = compose("config", [*self._searchpath, *groups], return_hydra_config=True)
            except (HydraException, OmegaConfBaseException, YAMLError) as error:
                raise RecipeError(str(error)) from error
            HydraConfig.instance().set_config(whole)
            OmegaConf.set_struct(whole, False)
            with open_dict(whole):
                del whole["hydra"]
            self._bases[groups] = with_defaults(whole)
        return self._bases[groups]

    def combinations(self, overrides: Sequence[str]) -> list[tuple[str, ...]]:
        """The jobs of a sweep by Hydra's own sweeper: grid, list and range."""
        from hydra._internal.core_plugins.basic_sweeper import BasicSweeper

        parsed = self.parse(overrides)
        for override in parsed:
            plugin = override.key_or_group
            if plugin in ("hydra/sweeper", "hydra/launcher") and override.value() != "basic":
                raise CommandLineError(
                    f"{override.input_line}: only Hydra's basic {plugin.removeprefix('hydra/')} is known"
                )
        self._base(tuple(o.input_line or "" for o in parsed if self._is_group(o) and not o.is_sweep_override()))
        params = HydraConfig.get().sweeper.get("params") or {}
        swept = self.parse([f"{key}={value}" for key, value in params.items()])
        named = {override.key_or_group for override in parsed}
        # As Hydra does it: what the recipe sweeps stands first, and the command line wins.
        every = [*(override for override in swept if override.key_or_group not in named), *parsed]
        return [tuple(job) for batch in BasicSweeper.split_arguments(every, max_batch_size=None) for job in batch]

    def is_sweep(self, overrides: Sequence[str]) -> bool:
        return any(o.is_sweep_override() for o in self.parse(overrides))

    def for_hydra(self, overrides: Sequence[str]) -> list[str]:
        """The overrides as Hydra accepts them: every value override becomes `++key=value`, known to Hydra or not."""
        parsed = self.parse(overrides)
        return [o.input_line or "" if self._is_group(o) or o.is_delete() else _forced(o) for o in parsed]


def _with_plus(override: str) -> str:
    """`experiment=x` is what people type; only `+experiment=x` is in Hydra's grammar, as no default names one."""
    return f"+{override}" if override.startswith("experiment=") else override


def _forced(override: Override) -> str:
    return "++" + (override.input_line or "").lstrip("+")


def _apply(raw: DictConfig, override: Override) -> str | None:
    """Apply a value override in place; returns why not, if it cannot be."""
    key = override.key_or_group
    if override.is_sweep_override():
        raise CommandLineError(f"{override.input_line}: several values need -m (or quotes, for a list: {key}=[...])")
    if override.is_delete():
        parent, _, name = key.rpartition(".")
        node = OmegaConf.select(raw, parent) if parent else raw
        if not isinstance(node, DictConfig) or name not in node:
            return f"~{key}: there is no such key"
        del node[name]
        return None
    try:
        OmegaConf.update(raw, key, override.value(), merge=True, force_add=True)
    except Exception as error:  # OmegaConf raises bare AssertionError, IndexError and ValueError here
        return f"{override.input_line}: {type(error).__name__}: {error}".splitlines()[0]
    return None


def sweep_dir() -> Path:
    """Hydra's folder for the sweep that the calling job belongs to; only inside a launched job."""
    return Path(HydraConfig.get().sweep.dir)


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
