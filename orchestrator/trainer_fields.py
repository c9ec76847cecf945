"""The legal `trainer.args` of the installed TRL and transformers, read from their sources without importing them."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class TrainerKind:
    """Where a trainer's config class lives, and what it calls the facts that `limits` states."""

    config: str | None
    """module:class; None = this version has no such trainer, so its arguments are not known"""
    completion_length: str = "max_completion_length"
    generations: str | None = "num_generations"
    """None = the trainer draws a fixed number of completions per prompt, or one"""
    default_generations: int = 8
    needs_group: bool = True
    """Advantages compare completions of one prompt, so a group of one teaches nothing."""
    whole_groups: bool = True
    """A generation batch must hold whole groups (trl's GRPOConfig and RLOOConfig demand it)."""


TRAINER_KINDS: Mapping[str, TrainerKind] = {
    "grpo": TrainerKind(config="trl.trainer.grpo_config:GRPOConfig"),
    "rloo": TrainerKind(config="trl.trainer.rloo_config:RLOOConfig", default_generations=2),
    "online_dpo": TrainerKind(
        config="trl.experimental.online_dpo.online_dpo_config:OnlineDPOConfig",
        completion_length="max_new_tokens",
        generations=None,
        default_generations=2,
        needs_group=False,
        whole_groups=False,
    ),
    "async_grpo": TrainerKind(
        config="trl.experimental.async_grpo.async_grpo_config:AsyncGRPOConfig", whole_groups=False
    ),
    "ppo": TrainerKind(config=None, generations=None, default_generations=1, needs_group=False, whole_groups=False),
    "ebft": TrainerKind(config=None),
    "command": TrainerKind(config="orchestrator.foreign:ForeignArgs", default_generations=1, needs_group=False),
}


@dataclass(frozen=True, kw_only=True)
class FieldFact:
    """One field of a config dataclass: its annotation as text, and its default as source text ('' = none seen)."""

    annotation: str
    default: str
    choices: tuple[str, ...] = ()
    """The words that a field takes, where it takes a few: those of its enum, or of the code that reads it."""


class SourceUnreadableError(Exception):
    """The sources of a config class are not on this machine, or not of a shape that is understood."""


@cache
def trainer_fields(kind: str) -> Mapping[str, FieldFact]:
    """Fields of the config class of trainer `kind`, base classes included. Raises SourceUnreadableError."""
    config = TRAINER_KINDS[kind].config
    if config is None:
        raise SourceUnreadableError(f"this version of orchestrate has no trainer {kind}")
    module, name = config.split(":")
    fields = _class_fields(module, name)
    fields |= {key: replace(fields[key], choices=words) for key, words in _WORDS.items() if key in fields}
    return fields | {key: replace(fields[key], annotation=wider) for key, wider in _WIDER.items() if key in fields}


# Annotated more narrowly than the class accepts: TRL maps the booleans of older recipes itself.
_WIDER = {"scale_rewards": "str | bool"}

# Words that trl 1.16's GRPOTrainer compares with, and raises for others only once it trains.
_WORDS = {
    "loss_type": ("grpo", "dapo", "dr_grpo", "bnpo", "cispo", "sapo", "luspo", "vespo"),
    "importance_sampling_level": ("token", "sequence"),
    "multi_objective_aggregation": ("sum_then_normalize", "normalize_then_sum"),
    "scale_rewards": ("group", "batch", "none"),
}


def _class_fields(module: str, name: str) -> dict[str, FieldFact]:
    path = _module_path(module)
    tree = _parsed(module)
    node = next((n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name), None)
    if node is None:
        target = _imports(tree, module, is_package=path.name == "__init__.py").get(name)
        if target is None:
            raise SourceUnreadableError(f"no class {name} in {path}")
        return _class_fields(*target)
    homes = _imports(tree, module, path.name == "__init__.py")
    homes |= {n.name: (module, n.name) for n in tree.body if isinstance(n, ast.ClassDef)}
    fields: dict[str, FieldFact] = {}
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id not in ("object",):
            if base.id not in homes:
                raise SourceUnreadableError(f"cannot follow base class {base.id} of {name} in {path}")
            fields |= _class_fields(*homes[base.id])
    return fields | dict(_own_fields(node, homes))


def _own_fields(node: ast.ClassDef, homes: Mapping[str, tuple[str, str]]) -> Iterator[tuple[str, FieldFact]]:
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and not item.target.id.startswith("_"):
            annotation = ast.unparse(item.annotation)
            if not annotation.startswith("ClassVar"):
                choices = _enum_words(item.annotation, homes)
                yield item.target.id, FieldFact(annotation=annotation, default=_default(item.value), choices=choices)


def _enum_words(annotation: ast.expr, homes: Mapping[str, tuple[str, str]]) -> tuple[str, ...]:
    """The values of the enum in an annotation such as `SchedulerType | str`; () where there is none to be read."""
    match annotation:
        case ast.BinOp(op=ast.BitOr(), left=ast.Name(id=name), right=ast.Name(id="str")) if name in homes:
            module, class_name = homes[name]
        case _:
            return ()
    try:
        tree = _parsed(module)
    except SourceUnreadableError:
        return ()
    node = next((n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == class_name), None)
    values = (item.value for item in (node.body if node else []) if isinstance(item, ast.Assign))
    return tuple(v.value for v in values if isinstance(v, ast.Constant) and isinstance(v.value, str))


@cache
def _parsed(module: str) -> ast.Module:
    return ast.parse(_module_path(module).read_text(encoding="utf-8"))


def _default(value: ast.expr | None) -> str:
    if isinstance(value, ast.Call):
        return next((ast.unparse(k.value) for k in value.keywords if k.arg == "default"), "")
    return "" if value is None else ast.unparse(value)


def _imports(tree: ast.Module, module: str, is_package: bool) -> dict[str, tuple[str, str]]:
    """Imported name -> (module, name) for the `from` imports of a module's top level."""
    package = module.split(".") if is_package else module.split(".")[:-1]
    found: dict[str, tuple[str, str]] = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *(node.module or "").split(".")]).strip(".")
            # `from transformers import TrainingArguments` goes through a lazy package: its real home is known.
            for alias in node.names:
                home = _LAZY.get((source, alias.name), source)
                found[alias.asname or alias.name] = (home, alias.name)
    return found


_LAZY = {("transformers", "TrainingArguments"): "transformers.training_args"}


def _module_path(module: str) -> Path:
    """File of a dotted module, found without importing its packages."""
    top, *rest = module.split(".")
    spec = PathFinder.find_spec(top)
    if spec is None or not spec.submodule_search_locations:
        raise SourceUnreadableError(f"package {top} is not installed")
    path = Path(next(iter(spec.submodule_search_locations)), *rest)
    candidates = (path.with_suffix(".py"), path / "__init__.py")
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise SourceUnreadableError(f"no source file for {module} beside {candidates[0].parent}")
