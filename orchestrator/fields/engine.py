"""The legal `generation.args`: arguments of the vLLM engine, read from its sources without importing them."""

import ast
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from orchestrator.fields.source import (
    FieldFact,
    SearchPath,
    SourceUnreadableError,
    class_fields,
    definition,
)
from orchestrator.fields.types import accepts

MODULE = "vllm.engine.arg_utils"
CLASSES = {"vllm": "AsyncEngineArgs", "colocate": "EngineArgs"}
"""Kind of generation -> the class of vLLM's whose fields it takes: those of the server, or of an engine in-process."""

# vLLM's command line takes these as text too: 32k, 1M, auto.
HUMAN_READABLE = (
    "max_model_len",
    "max_num_batched_tokens",
    "max_num_scheduled_tokens",
    "kv_cache_memory_bytes",
    "max_num_queued_tokens",
    "safetensors_prefetch_block_size",
)
_BUILT_IN = {
    *("str", "int", "float", "bool", "dict", "list", "set", "tuple", "type"),
    *("Any", "None", "Literal", "Optional", "Union"),
}


@cache
def engine_fields(kind: str, path: SearchPath = None) -> Mapping[str, FieldFact]:
    """Fields that `generation.args` may name, of the vLLM on `path`. Raises SourceUnreadableError.

    An alias in an annotation is written out, so that its words are known; a type that cannot be judged from here
    becomes Any. A default that names another class's field is that field's default.
    """
    fields = class_fields(MODULE, CLASSES[kind], path)
    return {name: _judgeable(name, fact, path, server=kind == "vllm") for name, fact in fields.items()}


def _judgeable(name: str, fact: FieldFact, path: SearchPath, *, server: bool) -> FieldFact:
    written_out = ast.unparse(_Aliases(MODULE, path).visit(ast.parse(fact.annotation, mode="eval").body))
    if server and name in HUMAN_READABLE:
        written_out += " | str"
    default = _followed(fact.default, path)
    if default == "None" and not accepts(written_out, None):
        written_out += " | None"  # vLLM annotates what it computes later as if it were always there
    return replace(fact, annotation=written_out, default=default, choices=fact.choices or _words(written_out))


def _followed(default: str, path: SearchPath) -> str:
    match ast.parse(default or "''", mode="eval").body:
        case ast.Attribute(value=ast.Name(id=owner), attr=name):
            try:
                return class_fields(MODULE, owner, path)[name].default
            except (SourceUnreadableError, KeyError):
                return default
    return default


def _words(annotation: str) -> tuple[str, ...]:
    """The words of `Literal['a', 'b'] | None`; () where anything else is accepted too."""
    node = ast.parse(annotation, mode="eval").body
    match node:
        case ast.BinOp(op=ast.BitOr(), left=left, right=ast.Constant(value=None)):
            node = left
    match node:
        case ast.Subscript(value=ast.Name(id="Literal"), slice=ast.Tuple(elts=members)):
            words = [m.value for m in members if isinstance(m, ast.Constant) and isinstance(m.value, str)]
            return tuple(words) if len(words) == len(members) else ()
    return ()


class _Aliases(ast.NodeTransformer):
    """Writes out the names in an annotation of `module`: aliases by what they stand for, strangers as Any."""

    def __init__(self, module: str, path: SearchPath) -> None:
        self.module, self.path = module, path

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        if isinstance(node.value, ast.Name) and node.value.id in ("Literal", "type"):
            return node  # what stands in the brackets is no annotation
        self.generic_visit(node)
        unknown = isinstance(node.value, ast.Name) and node.value.id == "Any"  # Callable[...], Annotated[...]
        return node.value if unknown else node

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        return self._of(ast.parse(node.value, mode="eval").body) if isinstance(node.value, str) else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        return ast.Name(id="Any")

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in _BUILT_IN:
            return node
        try:
            found = definition(self.module, node.id, self.path)
        except SourceUnreadableError:
            found = None
        match found:
            case None:
                return ast.Name(id="Any")
            case (module, ast.expr() as alias):
                return _Aliases(module, self.path)._of(alias)
            case (_, ast.ClassDef(bases=bases)) if any(isinstance(b, ast.Name) and b.id == "IntEnum" for b in bases):
                return ast.parse("int | str", mode="eval").body
        return node

    def _of(self, node: ast.expr) -> ast.expr:
        written_out: ast.expr = self.visit(node)
        return written_out
