"""What is true of this machine, its packages, the model and the data: gathered once, passed to rules as data."""

from orchestrator.facts.gather import gather, installed_versions, model_facts
from orchestrator.facts.types import Facts, Gpu, ModelFacts

__all__ = ["Facts", "Gpu", "ModelFacts", "gather", "installed_versions", "model_facts"]
