"""Weights that arrive as a safetensors file: checked as a whole, then copied, never half of it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from orchestrator.generation.errors import ApiError

# How many tensors an error names before it counts the rest.
NAMED = 5
FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def inside(path: str, folder: Path) -> Path:
    """The real path of a file (or folder) below `folder`; relative paths start there.

    Raises ApiError 403 where the path leads out of the folder, by `..` or by a link, and 400 where it has no meaning.
    """
    try:
        real = (folder / path).resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise ApiError(f"path {path!r} cannot be resolved: {error}", param="path") from error
    if not real.is_relative_to(folder.resolve()):
        raise ApiError(f"path {path!r} is outside --weights-dir {folder}", status=403, param="path")
    return real


def targets_by_name(model: nn.Module) -> dict[str, Tensor]:
    """Every name a file may use and the tensor behind it; tied weights appear under each of their names."""
    named = dict(model.named_parameters(remove_duplicate=False))
    persistent = model.state_dict(keep_vars=True).keys()
    return {**named, **{name: buffer for name, buffer in model.named_buffers() if name in persistent}}


def load_checked(path: Path, model: nn.Module) -> dict[str, Tensor]:
    """Read a file that holds exactly the weights of `model`; the model is left alone.

    Raises ApiError 400 naming the tensors that are unknown, missing, of another shape, or not finite.
    """
    targets = targets_by_name(model)
    try:
        if not path.is_file():  # opening a pipe would wait for ever
            raise ApiError(f"no weights at {path}", param="path")
        with safe_open(str(path), framework="pt") as file:
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
            _raise_for([*_shape_problems(shapes, targets), *_missing(shapes, targets)])
            tensors = {name: file.get_tensor(name) for name in shapes}
    except (SafetensorError, OSError) as error:
        raise ApiError(f"{path} is not a readable safetensors file: {error}", param="path") from error
    _raise_for([*_value_problems(tensors, targets)])
    return tensors


def copy_into(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copy checked tensors into the model, converting to its dtype."""
    targets = targets_by_name(model)
    with torch.no_grad():
        for name, tensor in tensors.items():
            targets[name].copy_(tensor)


def _raise_for(problems: list[str]) -> None:
    if problems:
        rest = f"; and {len(problems) - NAMED} more" if len(problems) > NAMED else ""
        raise ApiError("weights refused, model unchanged: " + "; ".join(problems[:NAMED]) + rest, param="path")


def _shape_problems(shapes: Mapping[str, tuple[int, ...]], targets: Mapping[str, Tensor]) -> Iterator[str]:
    for name, shape in shapes.items():
        if name not in targets:
            yield f"{name} is not a tensor of the model"
        elif shape != tuple(targets[name].shape):
            yield f"{name} has shape {list(shape)}, the model's has {list(targets[name].shape)}"


def _missing(shapes: Mapping[str, tuple[int, ...]], targets: Mapping[str, Tensor]) -> Iterator[str]:
    covered = {id(targets[name]) for name in shapes if name in targets}
    reported: set[int] = set()
    for name, tensor in targets.items():
        if isinstance(tensor, nn.Parameter) and id(tensor) not in covered | reported:
            reported.add(id(tensor))
            yield f"{name} is missing, the model's has shape {list(tensor.shape)}"


def _value_problems(tensors: Mapping[str, Tensor], targets: Mapping[str, Tensor]) -> Iterator[str]:
    first_name: dict[int, str] = {}
    for name, tensor in tensors.items():
        if tensor.is_floating_point() != targets[name].is_floating_point():
            yield f"{name} has dtype {tensor.dtype}, the model's has {targets[name].dtype}"
        elif tensor.dtype not in FLOATS and tensor.is_floating_point():
            yield f"{name} has dtype {tensor.dtype}; known are {', '.join(map(str, FLOATS))}"
        elif not _is_finite(tensor.to(targets[name].dtype)):
            yield f"{name} holds NaN or infinity, or what is infinite as {targets[name].dtype}"
        twin = first_name.setdefault(id(targets[name]), name)
        if twin != name and not torch.equal(tensors[twin], tensor):
            yield f"{name} differs from {twin}, but the model ties them"


def _is_finite(tensor: Tensor) -> bool:
    """NaN and infinity both reach the extremes, which are found in one pass (isfinite writes a second tensor)."""
    if not tensor.numel() or not tensor.is_floating_point():
        return True
    least, greatest = tensor.aminmax()
    return bool(torch.isfinite(least)) and bool(torch.isfinite(greatest))


@dataclass
class WeightSession:
    """The protocol of vLLM 0.32: start, update, finish. All methods run while nothing is being generated."""

    model: Any
    folder: Path | None
    version: str = "default"
    """Last version a finished update named; vLLM starts with the same word."""
    syncs: int = 0
    """Finished updates."""
    stage: str = "idle"
    """idle, started (nothing loaded yet) or loaded."""

    def init(self, init_info: Mapping[str, Any]) -> None:
        """Check that both sides mean the same folder: `folder`, optional, must lie in --weights-dir."""
        folder = self._folder()
        unknown = sorted(set(init_info) - {"folder"})
        if unknown:
            raise ApiError(f"init_info has unknown keys: {', '.join(unknown)}", param="init_info")
        if "folder" in init_info:
            inside(str(init_info["folder"]), folder)

    def start(self) -> None:
        """Open an update. Raises ApiError 409 when one is open."""
        self._folder()
        if self.stage != "idle":
            why = "a weight update is already open; where its trainer has died, POST /finish_weight_update closes it"
            raise ApiError(why, status=409)
        self.stage = "started"

    def update(self, update_info: Any) -> None:
        """Load the file `update_info["path"]`. A refused file closes the update and leaves the model as it was."""
        folder = self._folder()
        if self.stage == "idle":
            raise ApiError("no weight update is open: start one first", status=409)
        self.stage = "idle"
        if not isinstance(update_info, dict) or set(update_info) != {"path"}:
            raise ApiError('update_info must be {"path": "<file>.safetensors"}', param="update_info")
        copy_into(self.model, load_checked(inside(str(update_info["path"]), folder), self.model))
        self.stage = "loaded"

    def finish(self, version: str | None) -> None:
        """Close the update and take its version. Raises ApiError 409 when nothing was loaded; it is closed then too."""
        self._folder()
        stage, self.stage = self.stage, "idle"
        if stage != "loaded":
            raise ApiError("no weights were loaded since the last start_weight_update", status=409)
        self.syncs += 1
        self.version = self.version if version is None else version

    def _folder(self) -> Path:
        if self.folder is None:
            raise ApiError("this server takes no weights: start it with --weights-dir")
        return self.folder
