"""Weight files: where they may lie, and whether one holds exactly the model's tensors."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from safetensors import safe_open

NAMED = 5
"""Tensors that an error names before it counts the rest."""

Shapes = Mapping[str, tuple[int, ...]]


class WeightsRefused(ValueError):  # noqa: N818
    """A weight file is not where it may be, or not what the model needs. The model is as before."""


def inside(path: str, folder: Path) -> Path:
    """The real path of a file or folder below `folder`; relative paths start there. Raises WeightsRefused."""
    real = (folder / path).resolve()
    if not real.is_relative_to(folder):
        raise WeightsRefused(f"{path} is outside {folder}, the only folder that this server reads weights from")
    return real


def shapes_of(paths: Iterable[Path]) -> dict[str, tuple[int, ...]]:
    """Name -> shape of the tensors in these files, without reading them."""
    shapes: dict[str, tuple[int, ...]] = {}
    for path in paths:
        with safe_open(str(path), framework="pt") as file:
            shapes.update({name: tuple(file.get_slice(name).get_shape()) for name in file.keys()})  # noqa: SIM118
    return shapes


def problems(sent: Shapes, expected: Shapes, tied: Mapping[str, str]) -> Iterator[str]:
    """What is unknown, missing or of another shape. `tied`: name -> the name of the same tensor."""
    for name, shape in sent.items():
        wanted = expected.get(name) or expected.get(tied.get(name, ""))
        if wanted is None:
            yield f"{name} is no tensor of the served model"
        elif shape != wanted:
            yield f"{name} has shape {list(shape)}, the served model's has {list(wanted)}"
    for name, shape in expected.items():
        if name not in sent and tied.get(name) not in sent:
            yield f"{name} {list(shape)} is missing"


def raise_for(found: Iterable[str]) -> None:
    """Raise WeightsRefused where there is a problem."""
    listed = list(found)
    if listed:
        more = f"; and {len(listed) - NAMED} more" if len(listed) > NAMED else ""
        raise WeightsRefused("weights refused, model unchanged: " + "; ".join(listed[:NAMED]) + more)
