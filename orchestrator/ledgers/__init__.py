"""Who takes how much: completions, tokens, GPUs, memory, ports. Pure arithmetic over a recipe, for the rules."""
