"""LEN: token budgets, from the prompt to the model's positions."""

from collections.abc import Iterator

from orchestrator.facts import ModelFacts
from orchestrator.findings import Finding, skipped
from orchestrator.rules.case import Case
from orchestrator.trainer_fields import TRAINER_KINDS


def completion_length_disagrees(case: Case) -> Iterator[Finding]:
    """The trainer asks for completions of the length that the limits promise.

    ## What it checks
    The trainer's own field (`max_completion_length` for GRPO) against `limits.completion_length`.
    ## Why it matters
    The context of the server is derived from the limits: a longer completion is refused there, a shorter one is cut
    before the answer and every reward is zero.
    ## Bad
        trainer.args.max_completion_length=64
    ## Good
        limits.completion_length=64
    """
    key = TRAINER_KINDS[case.run.trainer.kind].completion_length
    asked, promised = case.run.trainer.args.get(key), case.run.limits.completion_length
    if isinstance(asked, int) and asked != promised:
        yield Finding(
            values={f"trainer.args.{key}": asked, "limits.completion_length": promised},
            problem=f"the trainer asks for {asked} tokens a completion, the limits say {promised}",
            why="The server's context follows the limits; completions would be refused or cut before the answer.",
            fix=f"leave trainer.args.{key} at ${{limits.completion_length}} and set limits.completion_length={asked}",
        )


def completion_length_missing(case: Case) -> Iterator[Finding]:
    """The trainer is told a completion length.

    ## What it checks
    That `trainer.args` holds the trainer's field for the completion length.
    ## Why it matters
    TRL's own default (512) would be used, whatever the limits say.
    ## Bad
        '~trainer.args.max_completion_length'
        trainer.args.max_completion_length=null
    ## Good
        limits.completion_length=4
    """
    key = TRAINER_KINDS[case.run.trainer.kind].completion_length
    if case.run.trainer.args.get(key) is None and case.is_sound("trainer.args"):
        yield Finding(
            values={f"trainer.args.{key}": None, "limits.completion_length": case.run.limits.completion_length},
            problem=f"trainer.args.{key} is not set",
            why="TRL would use its own default, whatever limits.completion_length says.",
            fix=f"write trainer.args.{key}=${{limits.completion_length}}",
        )


def context_too_small(case: Case) -> Iterator[Finding]:
    """Prompt and completion fit the server's context.

    ## What it checks
    `limits.prompt_length + limits.completion_length` against `generation.max_model_len`. An error when the completion
    alone fills the context; a warning when only the declared caps break the budget, as real prompts may be shorter.
    ## Why it matters
    The server refuses a request whose prompt and completion exceed its context, in the middle of training.
    ## Bad
        generation.max_model_len=20
        generation.max_model_len=8
    ## Good
        generation.max_model_len=32
    """
    limits, room = case.run.limits, case.run.generation.max_model_len
    need = limits.prompt_length + limits.completion_length
    if need <= room:
        return
    values = {
        "limits.prompt_length": limits.prompt_length,
        "limits.completion_length": limits.completion_length,
        "generation.max_model_len": room,
    }
    if limits.completion_length >= room:
        problem = (
            f"a completion of {limits.completion_length} tokens leaves no room for a prompt in a context of {room}"
        )
    else:
        sum_ = f"{limits.prompt_length} prompt + {limits.completion_length} completion tokens = {need}"
        problem = f"{sum_} exceed a context of {room}"
    yield Finding(
        severity="error" if limits.completion_length >= room else "warning",
        values=values,
        problem=problem,
        why="The server answers such a request with 400, whenever the first long prompt comes.",
        fix=f"set generation.max_model_len={need}, or lower one of the limits",
    )


def context_beyond_positions(case: Case) -> Iterator[Finding]:
    """The server's context is one that the model has positions for.

    ## What it checks
    `generation.max_model_len` against `max_position_embeddings` in the model's config.json.
    ## Why it matters
    The server refuses to start, or the tokens beyond are noise.
    ## Bad
        generation.max_model_len=4096
    ## Good
        generation.max_model_len=128
    """
    facts = case.facts.models.get(case.run.generation.model)
    if not isinstance(facts, ModelFacts):
        return  # MOD004 says that nothing is known of the model
    if facts.max_positions is None:
        yield skipped(
            "config.json of the model does not say how many positions it has", "nothing: the server will tell"
        )
    elif case.run.generation.max_model_len > facts.max_positions:
        yield Finding(
            values={
                "generation.max_model_len": case.run.generation.max_model_len,
                "generation.model": case.run.generation.model,
            },
            problem=f"{case.run.generation.max_model_len} tokens exceed its {facts.max_positions} positions",
            why="Beyond its positions a model produces noise, and most servers refuse to start.",
            fix=f"lower limits.prompt_length or limits.completion_length: together at most {facts.max_positions}",
        )


def limit_not_positive(case: Case) -> Iterator[Finding]:
    """Limits are positive numbers of tokens.

    ## What it checks
    `limits.prompt_length`, `limits.completion_length` and `generation.max_model_len`.
    ## Why it matters
    With no room there is no completion, and nothing to score.
    ## Bad
        limits.completion_length=0
        limits.prompt_length=-1
    ## Good
        limits.completion_length=1
    """
    for path, value in (
        ("limits.prompt_length", case.run.limits.prompt_length),
        ("limits.completion_length", case.run.limits.completion_length),
    ):
        if value < 1:
            yield Finding(
                values={path: value},
                problem=f"{path} = {value} leaves room for no token",
                why="Nothing could be sent or generated.",
                fix=f"set {path} to at least 1",
            )


def prompts_not_counted(case: Case) -> Iterator[Finding]:
    """Real prompts are within `limits.prompt_length`.

    ## What it checks
    Nothing offline: tokens are counted with the model's tokenizer when the run starts, before the first step, where a
    longer prompt is an error that counts and names rows (or is dropped: `data.long_prompts`). A prompt of fewer
    characters than the limit cannot be too long, unless its chat template adds much.
    ## Why it matters
    A prompt that is cut loses its question, and the reward judges an answer to something else.
    ## Bad
        limits.prompt_length=3
    ## Good
        limits.prompt_length=64
    """
    data = case.facts.data
    if not isinstance(data, str) and data.longest_prompt_chars > case.run.limits.prompt_length:
        yield skipped(
            f"the longest prompt has {data.longest_prompt_chars} characters; tokens are counted when the run starts",
            "orchestrate the run: it counts before it trains",
            {"limits.prompt_length": case.run.limits.prompt_length, "data.long_prompts": case.run.data.long_prompts},
        )
