"""Post-process hooks for the deep rules."""


def list_only(rewards, group_ids):
    return list(rewards)


def raises(args, samples):
    raise ValueError("no groups here")


def minus_mean(args, samples):
    raw = [sample.reward for sample in samples]
    return raw, [reward - sum(raw) / len(raw) for reward in raw]
