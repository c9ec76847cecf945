def score(prompts, completions, trainer_state, **kwargs):
    return [float(trainer_state.global_step) for _ in completions]
