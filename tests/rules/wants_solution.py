def score(prompts, completions, solution, **kwargs):
    return [float(completion == solution) for completion in completions]
