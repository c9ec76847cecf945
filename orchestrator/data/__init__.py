"""Where prompts come from. Standard library only, so that `check` stays instant; reasoning_gym has its own process."""

from orchestrator.data.errors import DataError
from orchestrator.data.facts import DataFacts, describe
from orchestrator.data.loading import load_rows

__all__ = ["DataError", "DataFacts", "describe", "load_rows"]
