"""Overrides -> one merged, unresolved recipe. Beside this module only request.py and launch.py import Hydra.

Hydra composes the chosen groups; value overrides are applied here, one by one, because Hydra stops at the first unknown
key and refuses `trainer.args.beta=0` when no YAML mentions `beta`. What is wrong with a key is for the rules to say.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.conf import HydraConf
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, OverrideParseException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf._utils import split_key
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


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One of the things that a recipe is merged from: a YAML file, or a value override of the command line."""

    package: str
    """Where it lands, dotted; '' = at the root."""
    file: Path | None = None
    override: str = ""
    """As typed, for a layer that is no file."""
    value: Any = None
    """What the override sets."""
    deletes: bool = False
    """The override takes the key out."""


class Composer:
    """Composes many combinations: once per distinct choice of groups (about 0.1 s each), values applied to copies."""

    def __init__(self, config_dir: str | None = None) -> None:
        if config_dir and not Path(config_dir).is_dir():
            raise CommandLineError(f"--config-dir {config_dir}: no such directory")
        theirs = [Path(config_dir).resolve()] if config_dir else []
        self._searchpath = [f"hydra.searchpath=[{_quoted(f'file://{folder}')}]" for folder in theirs]
        # A group is a folder of YAML files, ours or the user's; asking Hydra would cost another compose.
        roots = [CONF_DIR, *theirs]
        self._groups = frozenset(str(d.relative_to(root)) for root in roots for d in root.rglob("*") if d.is_dir())
        self._bases: dict[tuple[str, ...], tuple[DictConfig, Any, frozenset[str]]] = {}
        self._parsed: dict[str, Override] = {}
        self._lent = False
        register_resolvers()

    def parse(self, overrides: Sequence[str]) -> list[Override]:
        return [self._parsed.get(text) or self._parse(text) for text in map(_with_plus, overrides)]

    def _parse(self, text: str) -> Override:
        """Hydra's grammar takes a millisecond for a text; a sweep repeats the same few."""
        try:
            (override,) = OverridesParser.create().parse_overrides([text])
        except (OverrideParseException, HydraException) as error:
            raise CommandLineError(f"cannot read the override: {error}") from error
        if not override.key_or_group:
            raise CommandLineError(f"{override.input_line}: an override is key=value")
        return self._parsed.setdefault(text, override)

    def compose(self, overrides: Sequence[str]) -> Composed:
        """Merge one combination. Raises CommandLineError or RecipeError; everything else is left to the rules."""
        with self.lent(overrides) as composed:
            return replace(composed, raw=deepcopy(composed.raw))

    @contextmanager
    def lent(self, overrides: Sequence[str]) -> Iterator[Composed]:
        """As `compose`, for a recipe that is looked at and given back: what no override touches is not copied.

        Raises RuntimeError while another one is lent: it would start from that one's values.
        """
        if self._lent:
            raise RuntimeError("one recipe at a time is lent")
        parsed = self.parse(overrides)
        if swept := next((o for o in parsed if o.is_sweep_override()), None):
            key = swept.key_or_group
            raise CommandLineError(f"{swept.input_line}: several values need -m (or quotes, for a list: {key}=[...])")
        base, written = self._base(parsed)
        values = [o for o in parsed if not self.is_group(o)]
        with _restored(base, {split_key(o.key_or_group)[0] for o in values}):
            rejected = tuple(reason for o in values if (reason := _apply(base, o, written)))
            self._lent = True
            try:
                yield Composed(raw=base, overrides=tuple(overrides), rejected=rejected)
            finally:
                self._lent = False

    def is_group(self, override: Override) -> bool:
        """Whether Hydra itself has to see it: it chooses a file, or is one of Hydra's own settings."""
        key = override.key_or_group
        return key.startswith("hydra") or ((not override.is_delete() or "." not in key) and key in self._groups)

    def _base(self, parsed: Sequence[Override]) -> tuple[DictConfig, frozenset[str]]:
        """What the chosen groups make, and the keys that they write; HydraConfig is set as it is for them, because
        `${hydra:...}` of a recipe reads it."""
        groups = tuple(o.input_line or "" for o in parsed if self.is_group(o))
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
            self._bases[groups] = with_defaults(whole), HydraConfig.instance().cfg, frozenset(_keys(whole))
        base, HydraConfig.instance().cfg, written = self._bases[groups]
        return base, written

    def hydra_config(self, parsed: Sequence[Override]) -> HydraConf:
        """Hydra's own settings, as these groups choose them. Raises RecipeError."""
        self._base(parsed)
        return HydraConfig.get()

    def layers(self, composed: Composed) -> list[Layer]:
        """What `composed` was merged from, in that order: a later layer wins. Hydra's own settings are left out."""
        parsed = self.parse(composed.overrides)
        chosen = [*self._searchpath, *(o.input_line or "" for o in parsed if self.is_group(o))]
        with initialize_config_dir(str(CONF_DIR), version_base="1.3", job_name="orchestrate"):
            loader = GlobalHydra.instance().config_loader()
            sources = compose("config", chosen, return_hydra_config=True).hydra.runtime.config_sources
            defaults = loader.compute_defaults_list("config", chosen, RunMode.RUN).defaults
        folders = [Path(source.path) for source in sources if source.schema == "file"]
        return [
            *(
                Layer(package=default.package or "", file=_file(folders, default.config_path or ""))
                for default in defaults
                if (default.package or "").partition(".")[0] != "hydra"
            ),
            *(
                Layer(package=o.key_or_group, override=o.input_line or "", value=o.value(), deletes=o.is_delete())
                for o in parsed
                if not self.is_group(o) and not any(r.startswith(f"{o.input_line}: ") for r in composed.rejected)
            ),
        ]

    def options(self, group: str) -> list[str]:
        """The files of a group."""
        with initialize_config_dir(str(CONF_DIR), version_base="1.3", job_name="orchestrate"):
            loader = GlobalHydra.instance().config_loader()
            return loader.get_group_options(group, ObjectType.CONFIG, "config", self._searchpath)


@contextmanager
def _restored(raw: DictConfig, names: Iterable[str]) -> Iterator[None]:
    """Let the values of these keys be changed in place; afterwards all is as it was."""
    content: dict[str, Any] = raw.__dict__["_content"]
    before = dict(content)
    originals = [before[name] for name in names if name in before]
    for node in originals:
        node._set_parent(None)  # or the whole recipe would be copied along
        content[node._key()] = copied = deepcopy(node)
        copied._set_parent(raw)
        node._set_parent(raw)
    try:
        yield
    finally:
        content.clear()
        content.update(before)


def _file(folders: Sequence[Path], config: str) -> Path | None:
    """Where Hydra found a config: in the first folder of its search path that has it; None = in none of them."""
    candidates = (folder / f"{config.removesuffix('.yaml')}.yaml" for folder in folders)
    return next((path for path in candidates if path.is_file()), None)


def _quoted(text: str) -> str:
    """As a quoted string of Hydra's grammar."""
    return "'" + text.replace("'", "\\'") + "'"


def _with_plus(override: str) -> str:
    """`experiment=x` is what people type; only `+experiment=x` is in Hydra's grammar, as no default names one."""
    return f"+{override}" if override.startswith("experiment=") else override


def _keys(node: DictConfig, path: str = "") -> Iterator[str]:
    """Every key of a recipe, as a path."""
    for key in map(str, node):
        yield f"{path}{key}"
        child = node._get_node(key)
        if isinstance(child, DictConfig) and not child._is_none() and not child._is_missing():
            yield from _keys(child, f"{path}{key}.")


def _apply(raw: DictConfig, override: Override, written: frozenset[str]) -> str | None:
    """Apply a value override in place; returns why not, if it cannot be."""
    key = override.key_or_group
    if override.is_delete():
        parent, _, name = key.rpartition(".")
        try:
            node = OmegaConf.select(raw, parent) if parent else raw
        except OmegaConfBaseException as error:
            return f"~{key}: {error}".splitlines()[0]
        if not isinstance(node, DictConfig) or name not in node:
            return f"~{key}: there is no such key"
        if key not in written:  # Hydra, which launches the job, knows only what files say
            return f"~{key}: no file writes it, so it has its default already"
        del node[name]
        return None
    try:
        OmegaConf.update(raw, key, override.value(), merge=True, force_add=True)
    except Exception as error:  # OmegaConf raises bare AssertionError, IndexError and ValueError here
        return f"{override.input_line}: {type(error).__name__}: {error}".splitlines()[0]
    return None
