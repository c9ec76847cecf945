"""From the target in a recipe to a function that is called in the shape it was written for."""
