"""vLLM plugin: a weight-transfer backend that reads safetensors files from one folder.

vLLM calls `register` in each of its processes, those without weights included: nothing is imported before it is needed.
"""

BACKEND = "safetensors"
FOLDER_VARIABLE = "ORCHESTRATE_WEIGHTS_DIR"
"""Names the folder that weight files may be read from; without it every transfer is refused."""


def register() -> None:
    """Make the backend known to vLLM; a second call changes nothing. Needs vLLM 0.32 or newer."""
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

    if BACKEND not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(BACKEND, "orchestrate_vllm.engine", "SafetensorsEngine")
