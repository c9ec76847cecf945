"""Who says a value that no file and no override says: our schema, the trainer's config class, or the run itself."""

import ast
from collections.abc import Mapping
from dataclasses import is_dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, get_args, get_type_hints

from orchestrator.fields.docs import SOURCE, schema_docs
from orchestrator.fields.source import FieldFact, SourceUnreadableError
from orchestrator.fields.trainer import TRAINER_KINDS, trainer_fields
from orchestrator.schema import RunConfig
from orchestrator.why.places import Place

SET_BY_RUN = ("output_dir", "reward_weights", "disable_tqdm", "remove_unused_columns")
"""Fields of the trainer's config that the run sets where the recipe does not (orchestrator/training)."""


class TrainerDefaults:
    """What holds for `trainer.args.NAME` when nothing says it."""

    def __init__(self, kind: str) -> None:
        self._config = (TRAINER_KINDS[kind].config or "").rpartition(":")[2]
        self.fields: Mapping[str, FieldFact] = {}
        self.unreadable = ""
        try:
            self.fields = trainer_fields(kind)
        except SourceUnreadableError as error:
            self.unreadable = str(error)

    def value(self, name: str) -> Any:
        """The default as the class states it; source text where it is no literal."""
        if name in SET_BY_RUN:
            return "(set by the run)"
        text = self.fields[name].default
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError):
            return text or "(computed by the class)"

    def place(self, name: str) -> Place:
        if name in SET_BY_RUN:
            return Place(kind="run", text="the run sets it, as nothing else does")
        if self._config == "ForeignArgs":
            return Place(kind="trainer", text="not stated, so not compared (orchestrator/foreign.py)")
        return Place(kind="trainer", text=f"TRL's own default ({self._config} of trl {_installed('trl')})")


def schema_place(key: str) -> Place | None:
    """The line of orchestrator/schema.py that holds the default of `key`; None = the schema has no such field."""
    hint: Any = RunConfig
    place = None
    for name in key.split("."):
        if name.isdecimal() and place:
            hint = next(iter(get_args(hint)), None)
            continue
        field = schema_docs()[hint.__name__].fields.get(name) if isinstance(hint, type) and is_dataclass(hint) else None
        if field is None:
            return place
        hint = get_type_hints(hint)[name]
        place = Place(kind="schema", text="schema default", file=SOURCE, line=field.line)
    return place


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "of an unknown version"
