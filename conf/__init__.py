"""Recipes and their Hydra groups. A package, so that they ship in the wheel."""
