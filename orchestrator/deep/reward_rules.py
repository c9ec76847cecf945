"""Deep rules about reward functions: what their contract test (rewards/checking) found, judged for this recipe."""

from collections.abc import Iterator

from orchestrator.deep.case import DeepCase
from orchestrator.deep.trials import spec_of
from orchestrator.findings import Finding, Severity, skipped
from rewards.calling.post_process import NAME as HOOK
from rewards.calling.signature import Signature
from rewards.checking.trial import LONGEST_WAIT_S, Issue, IssueKind
from rewards.contract import SpecError


def not_loaded(case: DeepCase) -> Iterator[Finding]:
    """Reward functions can be imported, with all that they import.

    ## What it checks
    Each function's file is imported in a process of its own, with the interpreter and the environment of the reward
    server, and its self-test is run, if it has one. Functions of somebody else's server are skipped.
    ## Why it matters
    A package that is missing shows only when the server starts.
    ## Bad
        reward.functions.0.target=tests/deep/missing_package.py:score
        'reward.functions=[{name: a/b, target: accuracy}]'
    ## Good
        reward.functions.0.target=tests/deep/functions.py:length
    """
    for index, function in enumerate(case.run.reward.functions):
        try:
            spec_of(function)
        except SpecError as error:
            yield Finding(
                values={f"reward.functions.{index}.name": function.name},
                problem=str(error),
                why="The reward server would not start.",
                fix=f"change reward.functions.{index}",
            )
    told = {
        function.name
        for index, function in enumerate(case.run.reward.functions)
        for finding in case.offline
        if finding.code == "RWD003" and any(path.startswith(f"reward.functions.{index}.") for path in finding.values)
    }
    for issue in _issues(case, "load"):
        if issue.function in told:
            continue
        yield _finding(case, issue, why="The reward server would not start.", fix="correct what the message names")
    if case.run.reward.kind == "external" and case.run.reward.functions:
        yield skipped("somebody else runs the reward functions: they are not called here", "test them where they run")


def contract_broken(case: DeepCase) -> Iterator[Finding]:
    """Reward functions return one finite number per completion.

    ## What it checks
    Each function is called as a run calls it (its granularity, key and params), with made-up completions of real rows
    in groups of `limits.generations`: right, wrong, empty, long, boxed, tagged, non-ASCII. It must return a list with
    one item per completion: a finite number, None ("not mine"), or a dict with the configured `key`, for held-out rows
    with its `eval_key`. The post-process hook gets what they gave, and must return (raw, processed).
    ## Why it matters
    One value for a whole group is broadcast by some trainers, and trains on wrong rewards without a word; NaN, strings
    and empty lists stop a run in its first step.
    ## Bad
        reward.functions.0.target=tests/deep/functions.py:one_for_all
        reward.functions.0.target=tests/deep/functions.py:nothing_without_gold
        reward.functions.0.target=tests/deep/functions.py:not_a_number
        reward.functions.0.target=tests/deep/functions.py:scored_dict
        'reward.functions=[{name: a, target: "tests/deep/functions.py:scored_dict", key: score, eval_key: scoer}]'
        reward.post_process.target=tests/deep/hooks.py:list_only
    ## Good
        reward.post_process.target=tests/deep/hooks.py:minus_mean
        reward.functions.0.target=tests/deep/functions.py:length
        reward.functions.0.target=tests/deep/functions.py:scored_dict reward.functions.0.key=score
    """
    for issue in _issues(case, "contract"):
        yield _finding(
            case,
            issue,
            why="The first batch of the run would fail, or with reward.on_error=mask, have no reward.",
            fix=_contract_fix(case, issue),
        )


def call_fails(case: DeepCase) -> Iterator[Finding]:
    """Reward functions take what models write.

    ## What it checks
    That no call of the contract test (RWD102) raises, asks for something that the data lack, or ends its process: also
    not on an empty, a very long or a non-ASCII completion. An exception is a warning where the run would go on
    (`reward.on_error: mask`) or where the recipe names a judge or an environment, which need not be there yet.
    ## Why it matters
    Sooner or later the policy writes an empty completion, hours into the run.
    ## Bad
        reward.functions.0.target=tests/deep/functions.py:divides_by_length
        reward.functions.0.target=tests/deep/functions.py:kills_itself
        reward.post_process.target=tests/deep/hooks.py:raises
    ## Good
        reward.functions.0.target=tests/deep/functions.py:length
    """
    for issue in _issues(case, "exception", "input", "crash", "unavailable"):
        if issue.kind == "input" and _readable(case, issue):
            continue  # RWD004 has compared the columns
        yield _finding(
            case,
            issue,
            severity="warning" if _goes_on(case) and issue.kind == "exception" else "error",
            why=_consequence(case),
            fix="make the function give such a completion a number, or None",
        )


def call_too_slow(case: DeepCase) -> Iterator[Finding]:
    """Reward functions keep their time limit.

    ## What it checks
    Each call of the contract test (RWD102) against `reward.timeout_s`, in a worker that is ended at the limit. It is a
    warning where the limit is above 60 s (no call is waited for longer), where the run would go on (`reward.on_error:
    mask`), or where a judge or an environment is asked, which need not be there yet.
    ## Why it matters
    A verifier that hangs on one completion holds up its group, and every process that waits for the group.
    ## Bad
        reward.functions.0.target=tests/deep/functions.py:sleeps_on_empty reward.timeout_s=0.5
    ## Good
        reward.functions.0.target=tests/deep/functions.py:length reward.timeout_s=0.5
    """
    limit_s = case.run.reward.timeout_s
    for issue in _issues(case, "timeout"):
        yield _finding(
            case,
            issue,
            severity="warning" if limit_s > LONGEST_WAIT_S or _goes_on(case) else "error",
            values={"reward.timeout_s": limit_s},
            why="Inside the trainer there is no limit: the run would hang there."
            if case.run.reward.kind == "inprocess"
            else _consequence(case),
            fix="make the function quicker on such a completion, or raise reward.timeout_s",
        )


def nothing_scored(case: DeepCase) -> Iterator[Finding]:
    """Some function scores every completion.

    ## What it checks
    In the contract test (RWD102), that each completion has a number from at least one function. None means "not mine":
    fine where another function gives a number. A warning, and an error where no completion at all has one.
    ## Why it matters
    A completion without any reward ends the run (`reward.on_error: fail`) or is not trained on (`mask`).
    ## Bad
        reward.functions.0.target=tests/deep/functions.py:nothing
    ## Good
        'reward.functions=[{name: a, target: "tests/deep/functions.py:nothing"}, {name: b, target: accuracy}]'
    """
    for issue in _issues(case, "unscored"):
        yield _finding(
            case,
            issue,
            severity="error" if issue.every_sample and case.run.reward.on_error == "fail" else "warning",
            values={"reward.on_error": case.run.reward.on_error},
            why=_consequence(case),
            fix="give 0.0 where a completion is wrong; None only where another function scores it",
        )


def not_repeatable(case: DeepCase) -> Iterator[Finding]:
    """Reward functions say the same twice.

    ## What it checks
    In the contract test (RWD102), that a second call with the same batch gives the same numbers.
    ## Why it matters
    A reward with noise of its own, or one that counts its calls, cannot be told from a policy that changes.
    ## Bad
        reward.functions.0.target=tests/deep/functions.py:rolls_dice
    ## Good
        reward.functions.0.target=tests/deep/functions.py:length
    """
    for issue in _issues(case, "unsteady"):
        yield _finding(
            case,
            issue,
            severity="warning",
            why="The same completion would be rewarded differently from step to step.",
            fix="seed what is random by the sample, and keep no state between calls",
        )


def all_equal(case: DeepCase) -> Iterator[Finding]:
    """Reward functions tell right from wrong.

    ## What it checks
    In the contract test (RWD102), that not every completion gets the same reward. A note where the data have no column
    that is known to hold the right answer (answer, solution, ground_truth, ...): then none was meant to be right.
    ## Why it matters
    Advantages are differences within a group: equal rewards teach nothing.
    ## Bad
        reward.functions.0.target=tests/deep/functions.py:always_zero
    ## Good
        reward.functions.0.target=accuracy
    """
    for issue in _issues(case, "flat"):
        yield _finding(
            case,
            issue,
            severity="warning" if issue.has_gold else "note",
            why="Right and wrong answers were among them: a policy would learn nothing from it."
            if issue.has_gold
            else "No column is known to hold the right answer, so perhaps none of them was right.",
            fix="look at how the function reads the answer: the form of the completion"
            + (" (a list of messages here: completion[-1]['content'], or data.chat=false)" if _chats(case) else "")
            + ", the column, the key",
        )


def _contract_fix(case: DeepCase, issue: Issue) -> str:
    if issue.function == HOOK:
        return "return (raw, processed), two lists with one finite number per sample"
    index = next((i for i, f in enumerate(case.run.reward.functions) if f.name == issue.function), None)
    if index is not None and "`key`" in issue.message:
        return f"reward.functions.{index}.key= the entry that is the reward"
    if index is not None and "eval_key" in issue.message:
        return f"reward.functions.{index}.eval_key= an entry that it returns"
    if index is not None and "configured key" in issue.message:
        return f"reward.functions.{index}.key= an entry that it returns"
    if index is not None and "is configured, so a dict was expected" in issue.message:
        return f"~reward.functions.{index}.key (or return a dict that has it)"
    return "return a list with one finite number (or None, or a dict with the configured key) per completion"


def _issues(case: DeepCase, *kinds: IssueKind) -> list[Issue]:
    found = case.answers.rewards
    return [issue for issue in found if issue.kind in kinds] if isinstance(found, tuple) else []


def _finding(
    case: DeepCase,
    issue: Issue,
    *,
    why: str,
    fix: str,
    severity: Severity = "error",
    values: dict[str, object] | None = None,
) -> Finding:
    targets = {
        f"reward.functions.{index}.target": function.target
        for index, function in enumerate(case.run.reward.functions)
        if issue.function in (None, function.name)
    }
    if issue.function == HOOK:
        targets = {"reward.post_process.target": case.run.reward.post_process.target}
    told = {"sample": issue.sample, "returned": issue.value}
    return Finding(
        severity=severity,
        values={**targets, **(values or {}), **{key: text for key, text in told.items() if text}},
        problem=issue.message,
        why=why,
        fix=fix,
    )


def _goes_on(case: DeepCase) -> bool:
    """Whether a failed call need not end the run: failures are masked, or a service that it asks is not there yet."""
    reward = case.run.reward
    return reward.on_error == "mask" or bool(reward.judge.url or reward.environment.urls)


def _consequence(case: DeepCase) -> str:
    if case.run.reward.on_error == "mask":
        return "Such a completion would have no reward, and would not be trained on."
    return "The run would end at the first such completion."


def _chats(case: DeepCase) -> bool:
    data = case.facts.data
    return not isinstance(data, str) and any(isinstance(row.get("prompt"), list) for row in data.first_rows)


def _readable(case: DeepCase, issue: Issue) -> bool:
    """Whether the function's columns could be read from its source."""
    target = next((f.target for f in case.run.reward.functions if f.name == issue.function), "")
    signature = case.facts.signatures.get(target)
    return isinstance(signature, Signature) and signature.exact
