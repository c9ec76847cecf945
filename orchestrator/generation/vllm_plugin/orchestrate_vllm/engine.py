"""The worker's side of the `safetensors` backend: a file is checked as a whole, then loaded by vLLM's own reload.

The reload begins when the file has been found good, not at `start_weight_update`: a refused file leaves the model as
it was, and serving.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

from orchestrate_vllm import FOLDER_VARIABLE
from orchestrate_vllm.files import WeightsRefused, inside, problems, raise_for, shapes_of

FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


@dataclass
class InitInfo(WeightTransferInitInfo):
    """`folder`: where the trainer will write; it must lie in the server's."""

    folder: str | None = None


@dataclass
class UpdateInfo(WeightTransferUpdateInfo):
    """`path` of one file with every tensor of the model under its name in the checkpoint."""

    path: str


class SafetensorsEngine(WeightTransferEngine[InitInfo, UpdateInfo]):
    """One per worker; each reads the whole file and vLLM's loaders keep the worker's share."""

    init_info_cls = InitInfo
    update_info_cls = UpdateInfo
    supports_draft_weight_update = False

    def init_transfer_engine(self, init_info: InitInfo) -> None:
        """Raises WeightsRefused where the trainer's folder is another."""
        folder = self._folder()
        if init_info.folder is not None:
            inside(init_info.folder, folder)

    def start_weight_update(self) -> None:
        self._folder()

    def receive_weights(self, update_info: UpdateInfo) -> None:
        """Load the file. Raises WeightsRefused, and then has changed nothing."""
        path = inside(update_info.path, self._folder())
        try:
            if not path.is_file():  # opening a pipe would wait for ever
                raise WeightsRefused(f"there are no weights at {path}")
            sent, expected = shapes_of([path]), self._expected()
            if expected:
                raise_for(problems(sent, expected, self._tied()))
            with safe_open(str(path), framework="pt") as file:
                raise_for(problem for name in sent if (problem := self._value_problem(name, file.get_tensor(name))))
        except (SafetensorError, OSError) as error:
            raise WeightsRefused(f"{path} is no readable safetensors file: {error}") from error
        names = {name for name, _ in self.model.named_parameters()}
        initialize_layerwise_reload(self.model)
        try:
            loaded = self.model.load_weights(self._weights(path, list(sent)))
        finally:
            finalize_layerwise_reload(self.model, self.model_config)
        if not expected and loaded is not None:  # the checkpoint's own names were not to be had
            raise_for(f"{name} is missing" for name in sorted(names - loaded))

    def finish_weight_update(self) -> None:
        """Nothing is left to do."""

    def shutdown(self) -> None:
        """Nothing is held open."""

    def _folder(self) -> Path:
        named = os.environ.get(FOLDER_VARIABLE)
        if not named:
            raise WeightsRefused(f"this server takes no weights: start it with {FOLDER_VARIABLE}=FOLDER")
        return Path(named).resolve()

    def _expected(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the checkpoint that the server was started from; empty where it is no local folder."""
        folder = Path(self.model_config.model)
        return shapes_of(sorted(folder.glob("*.safetensors"))) if folder.is_dir() else {}

    def _tied(self) -> dict[str, str]:
        tied = getattr(self.model_config.hf_config, "tie_word_embeddings", False)
        return {HEAD: EMBEDDING, EMBEDDING: HEAD} if tied else {}

    def _weights(self, path: Path, names: list[str]) -> Iterator[tuple[str, torch.Tensor]]:
        """Tied weights twice on a CPU, where lm_head keeps a packed copy of its own; once elsewhere."""
        tied = self._tied()
        with safe_open(str(path), framework="pt") as file:
            for name in names:
                if name != HEAD or not tied:
                    yield name, file.get_tensor(name)
            if tied and (self.device.type == "cpu" or EMBEDDING not in names):
                yield HEAD, file.get_tensor(HEAD if HEAD in names else EMBEDDING)

    def _value_problem(self, name: str, tensor: torch.Tensor) -> str:
        """In the dtype that is served: 1e30 is a number in float32, and none in float16. "" where there is none."""
        if tensor.is_floating_point() and tensor.dtype not in FLOATS:
            return f"{name} has dtype {tensor.dtype}"
        return "" if _is_finite(tensor.to(self.model_config.dtype)) else f"{name} holds NaN or infinity"


def _is_finite(tensor: torch.Tensor) -> bool:
    """By the extremes, which NaN wins: one pass, many times as fast as looking at each number."""
    if not tensor.is_floating_point() or not tensor.numel():
        return True
    least, greatest = torch.aminmax(tensor)
    return bool(torch.isfinite(least) and torch.isfinite(greatest))
