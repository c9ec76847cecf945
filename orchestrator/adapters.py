"""Facts about low-rank adapters (LoRA) that rules, launchers and the trainer share."""

from orchestrator.schema import RunConfig

LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""vLLM's legal values of max_lora_rank."""
DEFAULT_LORA_RANK = 16
"""vLLM's default of max_lora_rank."""


def sends_adapters(run: RunConfig) -> bool:
    """The server gets the adapter alone, not the weights with the adapter in them."""
    return run.generation.weight_sync.lora == "adapter"


def legal_rank(rank: int) -> int:
    """The least max_lora_rank that takes adapters of `rank`; the greatest there is where none does."""
    return next((legal for legal in LORA_RANKS if legal >= rank), LORA_RANKS[-1])
