"""RWD: how the rewards of several functions become the one that is trained on."""

from collections.abc import Iterator

from orchestrator.findings import Finding
from orchestrator.rules.case import Case

DECOUPLED = "normalize_then_sum"
"""TRL's name for advantages that are made per reward function (GDPO)."""


def weights_twice(case: Case) -> Iterator[Finding]:
    """Reward weights have one home.

    ## What it checks
    `trainer.args.reward_weights` against `reward.functions[].weight`.
    ## Why it matters
    The trainer's list would win in training and the functions' weights in the server's totals and the report.
    ## Bad
        trainer.args.reward_weights=[2.0]
        trainer.args.reward_weights=[1.0,1.0]
    ## Good
        trainer.args.reward_weights=[1.0]
    """
    given = case.run.trainer.args.get("reward_weights")
    weights = [function.weight for function in case.run.reward.functions]
    if isinstance(given, list) and given != weights:
        yield Finding(
            values={"trainer.args.reward_weights": given, "reward.functions weights": weights},
            problem=f"trainer.args.reward_weights has {len(given)} weights ({given}), and there are {len(weights)} "
            f"functions with weights {weights}",
            why="Training would optimise other weights than the reported total.",
            fix="remove trainer.args.reward_weights; weights stand beside their functions",
        )


def hook_beside_decoupled_rewards(case: Case) -> Iterator[Finding]:
    """A post-process hook and decoupled rewards exclude each other.

    ## What it checks
    `reward.post_process` beside `trainer.args.multi_objective_aggregation=normalize_then_sum` (GDPO).
    ## Why it matters
    GDPO normalises each function's rewards by themselves; a hook returns one reward for all of them, and only that one
    would be trained on.
    ## Bad
        reward.post_process.target=group_norm trainer.args.multi_objective_aggregation=normalize_then_sum
    ## Good
        reward.post_process.target=group_norm
        trainer.args.multi_objective_aggregation=normalize_then_sum
    """
    target, path = case.run.reward.post_process.target, "trainer.args.multi_objective_aggregation"
    if target and case.run.trainer.args.get("multi_objective_aggregation") == DECOUPLED:
        yield Finding(
            values={"reward.post_process.target": target, path: DECOUPLED},
            problem=f"the hook {target} makes one reward of all, and {DECOUPLED} needs the functions' own",
            why="The hook's rewards would be normalised alone, and the functions would count for nothing.",
            fix="remove reward.post_process, or trainer.args.multi_objective_aggregation",
        )


def eval_key_alone(case: Case) -> Iterator[Finding]:
    """An entry for held-out rows has one for training rows beside it.

    ## What it checks
    `reward.functions[].eval_key` without `key`.
    ## Why it matters
    A function that returns dicts needs a key in training too: the first batch would be an error.
    ## Bad
        reward.functions.0.eval_key=acc
    ## Good
        reward.functions.0.eval_key=acc reward.functions.0.key=score
    """
    for index, function in enumerate(case.run.reward.functions):
        if function.eval_key is not None and function.key is None:
            path = f"reward.functions.{index}"
            yield Finding(
                values={f"{path}.eval_key": function.eval_key, f"{path}.key": None},
                problem=f"{function.name} has an eval_key and no key",
                why="In an evaluation it is to return a dict, in training a number: one of the two fails.",
                fix=f"set {path}.key to the entry that is trained on",
            )
