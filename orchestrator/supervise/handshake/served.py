"""The model that a generation server serves: its name, its files, its context."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.facts import Facts, ModelFacts
from orchestrator.schema import RunConfig
from orchestrator.supervise.handshake.interview import Interview


def compare_model(talk: Interview, run: RunConfig, facts: Facts, served: Sequence[Mapping[str, Any]]) -> str:
    """The model that is served; returns a name that it can be asked under."""
    wanted, room = run.generation.model, run.generation.max_model_len
    card = next((card for card in served if card.get("id") == wanted), None)
    names = [card.get("id") for card in served]
    talk.compare(
        "served model",
        wanted,
        wanted if card else names,
        why="Requests name the model; another name is answered with 404, or by another policy.",
        fix=talk.either(f"--served-model-name {wanted}", f"generation.model={names[0] if names else '?'}"),
    )
    if card is None:
        return str(names[0]) if names else wanted
    _files(talk, run, facts, card.get("root"))
    said = card.get("max_model_len")
    if said is None:
        talk.skip("max_model_len", "its model card does not say", meant=room)
        return wanted
    talk.compare(
        "max_model_len",
        room if talk.started else f"at least {room}",
        said,
        agrees=said == room if talk.started else said >= room,
        why="Prompts or completions that the limits allow would be refused.",
        fix=talk.either(f"--max-model-len {room}", f"generation.max_model_len={said}"),
    )
    return wanted


def _files(talk: Interview, run: RunConfig, facts: Facts, root: Any) -> None:
    """The name that a model is served under proves nothing. Its folder does, where both sides see the same disk."""
    name, known = run.generation.model, facts.models.get(run.generation.model)
    ours = Path(known.path).resolve() if isinstance(known, ModelFacts) else None
    same = root == name or (ours is not None and root is not None and Path(root).resolve() == ours)
    if root is None or (not same and not talk.started):
        why = "a folder of another machine may have another name: vocabulary, tokenizer and the canary decide"
        talk.skip("model files", "its model card does not say" if root is None else why, meant=name, said=root)
        return
    talk.compare(
        "model files",
        name,
        name if same else root,
        why="It serves other weights under the same name.",
        fix=talk.either(f"--model {name}", f"generation.model={root}"),
    )
