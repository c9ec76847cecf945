"""One value, who says it, who said it before, and what its interpolations refer to."""

import dataclasses
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from orchestrator.compose import Composer
from orchestrator.redact import HIDDEN, is_secret, shown_override
from orchestrator.resolve import auto_ports, resolve
from orchestrator.why.defaults import TrainerDefaults, schema_place
from orchestrator.why.interpolations import Reference, references
from orchestrator.why.keys import ABSENT, at, holders, leaves, merged
from orchestrator.why.layers import MISSING, Statement, read, statements
from orchestrator.why.places import Place, chooser, concealed, readable, shown

ARGS = "trainer.args."


@dataclass(frozen=True, kw_only=True)
class Explained:
    """One value and its origin."""

    key: str
    value: Any
    place: Place
    before: tuple[Place, ...] = ()
    """What was said before and is overridden, the latest first."""
    needs: tuple["Explained", ...] = ()
    """What its interpolations refer to, in the order of reading."""
    notes: tuple[str, ...] = ()


class UnknownKeyError(Exception):
    """The recipe has no such key; the message names the nearest one."""


class Recipe:
    """A composed recipe that answers for its values. Making one raises CommandLineError and RecipeError."""

    def __init__(self, composer: Composer, overrides: Sequence[str]) -> None:
        composed = composer.compose(overrides)
        self._raw, self._rejected, self._overrides = composed.raw, composed.rejected, composed.overrides
        run, self._problems = resolve(composed.raw)
        self._auto = auto_ports(composed.raw)
        self._layers = read(composer.layers(composed))
        self._fitted = dataclasses.asdict(run)
        self._tree = merged(self._fitted, OmegaConf.to_container(composed.raw, resolve=False))
        self._trainer = TrainerDefaults(run.trainer.kind)

    def leaves(self, key: str) -> list[str]:
        """The settings at and below `key`, which may say [0] for .0. Raises UnknownKeyError."""
        path = key.replace("[", ".").replace("]", "").strip(".")
        found = at(self._tree, path)
        if found is not ABSENT:
            return list(leaves(found, path))
        if path.startswith(ARGS) and path.removeprefix(ARGS) in self._trainer.fields:
            return [path]
        known = [*holders(self._tree), *leaves(self._tree), *(ARGS + name for name in self._trainer.fields)]
        # A misspelling, or else a key of the same last name (trainer.beta), or anything that looks alike.
        near = get_close_matches(path, known, n=1, cutoff=0.8)
        near += [name for name in known if name.rpartition(".")[2] == path.rpartition(".")[2]]
        near += get_close_matches(path, known, n=1, cutoff=0.5)
        raise UnknownKeyError(f"the recipe has no {key}" + (f"; the nearest key is {near[0]}" if near else ""))

    def chosen(self, key: str) -> tuple[Place, Place | None] | None:
        """Of a group: the file that was chosen, and who chose it. None = `key` is no group."""
        files = [layer.file for layer, _ in self._layers if layer.file and layer.package == key]
        return (Place(kind="file", file=files[-1]), chooser(self._layers, self._overrides, key)) if files else None

    def explain(self, key: str, seen: tuple[str, ...] = ()) -> Explained:
        """`key` is one of `leaves`; `seen` are the keys that led here."""
        said = statements(self._layers, key)
        held = bool(said) and not said[-1].removes
        needs = tuple(self._needs(said[-1], key, (*seen, key))) if held else ()
        value, notes = self._value(key)
        hidden = value is not None and any(need.value == HIDDEN for need in needs)
        return Explained(
            key=key,
            value=HIDDEN if hidden else readable(key, value),
            place=shown(said[-1], key) if held else self._default(key),
            before=tuple(shown(statement, key) for statement in reversed(said[:-1] if held else said)),
            needs=tuple(map(_concealed, needs)) if is_secret(key) else needs,
            notes=(*notes, *self._notes(key, value)),
        )

    def _default(self, key: str) -> Place:
        name = key.removeprefix(ARGS)
        if key.startswith(ARGS) and name in self._trainer.fields:
            return self._trainer.place(name)
        return schema_place(key) or Place(kind="nobody")

    def _needs(self, statement: Statement, key: str, seen: tuple[str, ...]) -> Iterator[Explained]:
        for reference in references(statement.value, statement.at, self._text):
            if reference.kind == "environment":
                yield _variable(reference.name)
            elif reference.kind == "hydra":
                text = self._text(f"${{{reference.name}}}")
                yield Explained(key=reference.name, value=text, place=Place(kind="hydra", text="Hydra"))
            else:
                yield from self._followed(reference, key.removeprefix(statement.at), seen)

    def _followed(self, reference: Reference, rest: str, seen: tuple[str, ...]) -> Iterator[Explained]:
        name = reference.name + rest
        found = at(self._tree, name)
        if found is ABSENT:
            yield Explained(key=name, value=None, place=Place(kind="nobody", text="there is no such key"))
            return
        for leaf in leaves(found, name):
            if leaf in seen:
                yield Explained(key=leaf, value=None, place=Place(kind="nobody", text="it refers to itself"))
            else:
                yield self.explain(leaf, seen)

    def _text(self, text: str) -> str:
        """`text` with its interpolations resolved; as it is, where they cannot be."""
        try:
            return str(DictConfig({"text": text}, parent=self._raw)["text"])
        except OmegaConfBaseException:
            return text

    def _value(self, key: str) -> tuple[Any, tuple[str, ...]]:
        """The value, and why there is none."""
        try:
            value = OmegaConf.select(self._raw, key, default=ABSENT)
            if OmegaConf.is_config(value):
                value = OmegaConf.to_container(value, resolve=True)
        except OmegaConfBaseException as error:
            return None, (f"it cannot be computed: {str(error).splitlines()[0]}",)
        if value is ABSENT and at(self._tree, key) == MISSING:
            return MISSING, ("not set: it is left to the recipe",)
        if value is ABSENT:
            value = at(self._fitted, key)
        if value is ABSENT:
            value = self._trainer.value(key.removeprefix(ARGS))
        return value, ()

    def _notes(self, key: str, value: Any) -> Iterator[str]:
        if key in self._auto:
            yield "a free port, picked when the run starts and held until it ends"
        if key.startswith(ARGS) and value not in ("", None) and self._trainer.unreadable:
            yield f"its name and type are not checked: {self._trainer.unreadable}"
        for problem in self._problems:
            if problem.path == key and problem.kind == "unknown":
                yield "nothing reads it (CFG001)"
            elif problem.path == key and problem.kind in ("type", "choice"):
                yield f"it does not fit: {problem.expected} is asked for, and the default holds (orchestrate check)"
        for reason in self._rejected:
            left = reason.partition(":")[0].partition("=")[0].lstrip("+~")
            if key == left or key.startswith(f"{left}."):
                yield f"an override cannot be applied: {shown_override(reason)}"


def _concealed(one: Explained) -> Explained:
    return dataclasses.replace(
        one,
        value=None if one.value is None else HIDDEN,
        place=concealed(one.place),
        before=tuple(map(concealed, one.before)),
        needs=tuple(map(_concealed, one.needs)),
    )


def _variable(name: str) -> Explained:
    value = os.environ.get(name)
    place = Place(kind="environment", text="environment variable" if value is not None else "not set in this shell")
    return Explained(key=f"${name}", value=readable(f"env.{name}", value), place=place)
