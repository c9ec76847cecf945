"""What is true of this machine, its packages, the model and the data: gathered once, passed to rules as data."""

from orchestrator.facts.cache import FactsCache
from orchestrator.facts.gather import gather
from orchestrator.facts.models import model_facts
from orchestrator.facts.types import Facts, Gpu, ModelFacts

__all__ = ["Facts", "FactsCache", "Gpu", "ModelFacts", "gather", "model_facts"]
