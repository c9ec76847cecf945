"""Fields of a config dataclass, read from its source: nothing is imported, so any environment's class can be read."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path

SearchPath = tuple[str, ...] | None
"""Folders that packages are looked for in; None = those of this interpreter."""


@dataclass(frozen=True, kw_only=True)
class FieldFact:
    """One field of a config dataclass: its annotation as text, and its default as source text ('' = none seen)."""

    annotation: str
    default: str
    choices: tuple[str, ...] = ()
    """The words that a field takes, where it takes a few: those of its enum, or of the code that reads it."""


class SourceUnreadableError(Exception):
    """The sources of a config class are not on this machine, or not of a shape that is understood."""


def class_fields(module: str, name: str, path: SearchPath = None) -> dict[str, FieldFact]:
    """Public fields of class `name` of `module`, base classes included. Raises SourceUnreadableError."""
    found = definition(module, name, path)
    if found is None or not isinstance(found[1], ast.ClassDef):
        raise SourceUnreadableError(f"no class {name} in {_module_path(module, path)}")
    module, node = found[0], found[1]
    homes = homes_of(module, path)
    fields: dict[str, FieldFact] = {}
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id not in ("object",):
            if base.id not in homes:
                raise SourceUnreadableError(
                    f"cannot follow base class {base.id} of {name} in {_module_path(module, path)}"
                )
            fields |= class_fields(*homes[base.id], path)
    return fields | dict(_own_fields(node, homes, path))


def definition(module: str, name: str, path: SearchPath = None) -> tuple[str, ast.ClassDef | ast.expr] | None:
    """(module, node) of the class or the alias `name`, where it is written; None when the module has no such name."""
    for node in _parsed(module, path).body:
        match node:
            case ast.ClassDef(name=found) if found == name:
                return module, node
            case ast.Assign(targets=[ast.Name(id=found)], value=value) if found == name:
                return module, value
            case ast.AnnAssign(target=ast.Name(id=found), value=ast.expr() as value) if found == name:
                return module, value
    home = homes_of(module, path).get(name)
    return None if home is None else definition(*home, path)


@cache
def homes_of(module: str, path: SearchPath = None) -> Mapping[str, tuple[str, str]]:
    """Name that the module knows -> (module, name) where it comes from."""
    tree = _parsed(module, path)
    imported = _imports(tree, module, is_package=_module_path(module, path).name == "__init__.py")
    return imported | {node.name: (module, node.name) for node in tree.body if isinstance(node, ast.ClassDef)}


def _own_fields(
    node: ast.ClassDef, homes: Mapping[str, tuple[str, str]], path: SearchPath
) -> Iterator[tuple[str, FieldFact]]:
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and not item.target.id.startswith("_"):
            annotation = ast.unparse(item.annotation)
            if not annotation.startswith("ClassVar"):
                choices = _enum_words(item.annotation, homes, path)
                yield item.target.id, FieldFact(annotation=annotation, default=_default(item.value), choices=choices)


def _enum_words(annotation: ast.expr, homes: Mapping[str, tuple[str, str]], path: SearchPath) -> tuple[str, ...]:
    """The values of the enum in an annotation such as `SchedulerType | str`; () where there is none to be read."""
    match annotation:
        case ast.BinOp(op=ast.BitOr(), left=ast.Name(id=name), right=ast.Name(id="str")) if name in homes:
            module, class_name = homes[name]
        case _:
            return ()
    try:
        tree = _parsed(module, path)
    except SourceUnreadableError:
        return ()
    node = next((n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == class_name), None)
    values = (item.value for item in (node.body if node else []) if isinstance(item, ast.Assign))
    return tuple(v.value for v in values if isinstance(v, ast.Constant) and isinstance(v.value, str))


def _default(value: ast.expr | None) -> str:
    match value:
        case None:
            return ""
        # vLLM's way to name the default of another class's field.
        case ast.Call(func=ast.Name(id="get_field"), args=[ast.Name(id=owner), ast.Constant(value=str(name))]):
            return f"{owner}.{name}"
        case ast.Call(keywords=keywords):
            return next((ast.unparse(k.value) for k in keywords if k.arg == "default"), "")
    return ast.unparse(value)


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


@cache
def _parsed(module: str, path: SearchPath) -> ast.Module:
    file = _module_path(module, path)
    try:
        return ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError) as error:  # another interpreter's syntax may be newer than ours
        raise SourceUnreadableError(f"{file} cannot be read: {error}") from error


@cache
def _module_path(module: str, path: SearchPath) -> Path:
    """File of a dotted module, found without importing its packages."""
    top, *rest = module.split(".")
    spec = PathFinder.find_spec(top, None if path is None else list(path))
    if spec is None or not spec.submodule_search_locations:
        raise SourceUnreadableError(f"package {top} is not installed")
    base = Path(next(iter(spec.submodule_search_locations)), *rest)
    candidates = (base.with_suffix(".py"), base / "__init__.py")
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise SourceUnreadableError(f"no source file for {module} beside {candidates[0].parent}")
