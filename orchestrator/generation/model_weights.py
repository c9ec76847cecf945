"""A policy's tensors under the names that a server knows: adapters merged, sharded parameters whole, one at a time."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from peft import PeftModel
from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils.other import AuxiliaryTrainingWrapper, ModulesToSaveWrapper
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.distributed.tensor import DTensor

Named = tuple[str, Tensor]

TRANSPARENT = ("_checkpoint_wrapped_module", "_orig_mod")
"""Children that torch's wrappers (activation checkpointing, compile) put a module into: no part of a tensor's name."""


class UnsendableModelError(TypeError):
    """The model is wrapped in a way whose weights cannot be read as a server needs them."""


class NamedWeights(Iterator[Named]):
    """What `named_weights` gives. It tells beforehand about how many there are (`operator.length_hint`)."""

    def __init__(self, tensors: Iterator[Named], most: int) -> None:
        self._tensors, self._most = tensors, most

    def __next__(self) -> Named:
        return next(self._tensors)

    def __length_hint__(self) -> int:
        return self._most


def named_weights(model: nn.Module) -> NamedWeights:
    """Every parameter of the base model under each of its names: a tied `lm_head.weight` too.

    vLLM on the CPU keeps a stale lm_head when a tied model sends the embedding alone. Adapters are merged by PEFT's own
    code into copies; the model is never changed. A tensor may be overwritten once the next is asked for.

    Where the model is sharded (ZeRO-3, FSDP2) this is collective: every rank must take all of them.
    Raises UnsendableModelError.
    """
    reshard(model)
    base = model.get_base_model() if isinstance(model, PeftModel) else model
    # With adapters an upper bound: theirs are merged into the others.
    most = sum(1 for _ in model.named_parameters(remove_duplicate=False))
    return NamedWeights(_below(base, ""), most)


def reshard(model: nn.Module) -> None:
    """Let go of what a forward has gathered and left in the place of the shards: changes to those would not show.

    FSDP2 leaves the root's parameters, ZeRO-3 the small ones (stage3_param_persistence_threshold).
    """
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()  # type: ignore[operator]  # mypy takes it for a tensor
    parameters: Iterator[Any] = model.parameters()  # DeepSpeed gives them methods of its own
    for parameter in parameters:
        if hasattr(parameter, "ds_id") and parameter.numel():  # nothing is there where this rank has a shard only
            parameter.partition()


def shard(parameter: nn.Parameter) -> Tensor:
    """What this rank holds of a parameter; changing it in place changes the parameter."""
    if isinstance(parameter, DTensor):
        return parameter.to_local()
    held: Tensor = getattr(parameter, "ds_tensor", parameter)
    return held


@contextmanager
def whole(parameters: Sequence[nn.Parameter]) -> Iterator[list[Tensor]]:
    """The parameters, unsharded, while the context lasts. Collective where they are sharded."""
    with _gathered(parameters):
        yield [_full(parameter.detach()) for parameter in parameters]


def _gathered(parameters: Sequence[nn.Parameter]) -> AbstractContextManager[object]:
    if not any(hasattr(parameter, "ds_id") for parameter in parameters):
        return nullcontext()
    import deepspeed  # type: ignore[import-not-found]  # where ZeRO-3 is, it is installed

    context: AbstractContextManager[object] = deepspeed.zero.GatheredParameters(list(parameters))
    return context


def _full(tensor: Tensor) -> Tensor:
    if not isinstance(tensor, DTensor):
        return tensor
    # Shards that are kept in the machine's memory are gathered by the GPUs' group.
    placed: DTensor = tensor.to(tensor.device_mesh.device_type)  # type: ignore[assignment]  # it stays a DTensor
    return placed.full_tensor()


def _below(module: nn.Module, prefix: str) -> Iterator[Named]:
    if isinstance(module, FullyShardedDataParallel):
        raise UnsendableModelError("FSDP1's parameters are not sent. fix: trainer.args.fsdp_config={version: 2}")
    if isinstance(module, AuxiliaryTrainingWrapper):
        module = _trained_copy(module)
    if isinstance(module, BaseTunerLayer):
        yield from ((prefix + name, tensor) for name, tensor in _merged(module))
        return
    for name, parameter in module._parameters.items():
        if parameter is not None:
            with whole([parameter]) as (tensor,):
                yield prefix + name, tensor
    for name, child in module._modules.items():
        if child is not None:
            yield from _below(child, prefix if name in TRANSPARENT else f"{prefix}{name}.")


def _trained_copy(wrapper: AuxiliaryTrainingWrapper) -> nn.Module:
    """PEFT's `modules_to_save`: the copy that is trained stands for the original."""
    if not isinstance(wrapper, ModulesToSaveWrapper):
        raise UnsendableModelError(f"PEFT's {type(wrapper).__name__} is not merged by this version")
    active = [name for name in wrapper.active_adapters if name in wrapper.modules_to_save]
    module: nn.Module = wrapper.modules_to_save[active[0]] if active else wrapper.original_module
    return module


def _merged(layer: BaseTunerLayer) -> list[Named]:
    """The base layer's parameters with the active adapters in them."""
    before = list(layer.merged_adapters)
    with _stand_ins(layer, layer.get_base_layer()):
        layer.merge()
        try:
            named = layer.get_base_layer()._parameters.items()
            return [(name, value.detach()) for name, value in named if value is not None]
        finally:
            layer.merged_adapters[:] = before


@contextmanager
def _stand_ins(layer: nn.Module, changed: nn.Module) -> Iterator[None]:
    """Whole, plain parameters in the place of the layer's own, which come back untouched, bit for bit.

    Those of its part `changed` are copies.
    """
    own = [(part, name, p) for part in layer.modules() for name, p in part._parameters.items() if p is not None]
    with whole([parameter for _, _, parameter in own]) as tensors:
        try:
            for (part, name, _), tensor in zip(own, tensors, strict=True):
                stand_in = tensor.clone() if part is changed else tensor
                part._parameters[name] = nn.Parameter(stand_in, requires_grad=False)
            yield
        finally:
            for part, name, parameter in own:
                part._parameters[name] = parameter
