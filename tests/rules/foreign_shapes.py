"""Reward functions written for other frameworks, as rules read them."""


async def of_a_sample(args, sample, **kwargs):
    return float(sample.response == sample.label)


def of_a_batch(prompts, responses, golden_responses=None):
    return [float(len(response)) for response in responses]
