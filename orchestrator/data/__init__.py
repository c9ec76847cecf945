"""Where prompts come from. Pure standard library, so that `check` stays instant."""

from orchestrator.data.errors import DataError
from orchestrator.data.facts import DataFacts, describe
from orchestrator.data.loading import load_rows

__all__ = ["DataError", "DataFacts", "describe", "load_rows"]
