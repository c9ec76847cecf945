"""Low-rank adapters: PEFT's config from the recipe's, an adapter's checkpoint, and adapters sent by themselves."""

import dataclasses
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from accelerate import PartialState
from peft import LoraConfig, PeftModel
from torch import Tensor, nn

from orchestrator.generation.client import GenerationClient, GenerationError
from orchestrator.generation.model_weights import Named, whole
from orchestrator.generation.transfer import WeightSyncError
from orchestrator.schema import LoraConfig as LoraSettings
from orchestrator.training.sending import once


def lora_config(settings: LoraSettings) -> LoraConfig | None:
    """What TRL gets as `peft_config`; None = all weights are trained. What the recipe leaves out is PEFT's choice."""
    if settings.r is None:
        return None
    said = {name: value for name, value in dataclasses.asdict(settings).items() if value is not None}
    return LoraConfig(task_type="CAUSAL_LM", **said)


def load_adapter(model: nn.Module, checkpoint: str) -> None:
    """Give the model a checkpoint's adapter now: transformers would at its first step, after the first weight sync."""
    assert isinstance(model, PeftModel)  # noqa: S101 - the recipe has a rank
    model.load_adapter(checkpoint, model.active_adapters[0], is_trainable=True)


class AdapterSender:
    """Sends the adapter alone, which vLLM loads beside the weights that it started with, and asks what it made of it.

    Each version is an adapter of its own name: vLLM's prefix cache tells them apart by it, and nothing else would.
    """

    def __init__(self, model: Callable[[], nn.Module], client: GenerationClient, folder: Path) -> None:
        """`client` names the newest adapter in its requests from the first `send` on."""
        self._model, self._client, self._folder = model, client, folder.resolve()
        self._loaded: Path | None = None

    def open(self) -> None:
        """vLLM needs no preparation."""

    def send(self, named_tensors: Iterable[Named], version: str) -> None:
        """Load the model's adapter as `version`; `named_tensors` are not looked at. Raises WeightSyncError."""
        model, tensors = self._model(), dict[str, Tensor]()
        assert isinstance(model, PeftModel)  # noqa: S101 - the recipe has a rank
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                with whole([parameter]) as (tensor,):
                    if PartialState().is_main_process:
                        tensors[name] = tensor.to("cpu", copy=True)
        once(lambda: self._load(model, tensors, version))

    def score(self, sequences: list[list[int]]) -> list[list[float]]:
        """As GenerationClient.score, under the newest adapter. Raises GenerationError."""
        return self._client.score_stepwise(sequences)

    def _load(self, model: PeftModel, tensors: Mapping[str, Tensor], version: str) -> None:
        path = self._folder / f"adapter-{version}"
        try:
            model.save_pretrained(str(path), state_dict=dict(tensors), save_embedding_layers=False)
            self._client.load_adapter(version, str(path))
            if {"id": version, "root": str(path)}.items() <= self._listed(version).items():
                self._drop_previous(path, version)
                return
        except (GenerationError, OSError) as error:
            shutil.rmtree(path, ignore_errors=True)
            raise WeightSyncError(f"adapter {version} was not taken: {error}") from error
        raise WeightSyncError(f"the server accepted adapter {version} but does not list it")

    def _listed(self, name: str) -> Mapping[str, object]:
        return next((model for model in self._client.models() if model["id"] == name), {})

    def _drop_previous(self, path: Path, version: str) -> None:
        """Only now: until a new one is there, vLLM may read the files of the old one again."""
        previous, self._loaded, self._client.model = self._loaded, path, version
        if previous is not None:
            self._client.unload_adapter(previous.name.removeprefix("adapter-"))
            shutil.rmtree(previous)
