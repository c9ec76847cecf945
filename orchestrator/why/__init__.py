"""Where a value of the recipe comes from (`orchestrate why`): read from the files and overrides that made it."""

from orchestrator.why.explain import Explained, Recipe, UnknownKeyError

__all__ = ["Explained", "Recipe", "UnknownKeyError"]
