"""LEN: token budgets, from the prompt to the model's positions."""

from collections.abc import Iterator

from orchestrator.facts import ModelFacts
from orchestrator.fields.trainer import TRAINER_KINDS
from orchestrator.findings import Finding, skipped
from orchestrator.kinds import generation_kind
from orchestrator.ledgers.tokens import COMPLETION, prompts
from orchestrator.rules.case import Case


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
            problem=f"trainer.args.{key} is not set"
            if key not in case.run.trainer.args
            else f"trainer.args.{key} = null sets no limit",
            why="TRL would use its own default, or none, whatever limits.completion_length says.",
            fix=f"write trainer.args.{key}=${{limits.completion_length}}",
        )


def context_too_small(case: Case) -> Iterator[Finding]:
    """Prompt and completion fit the server's context.

    ## What it checks
    Prompt + completion against `generation.max_model_len`. Prompts are the counted ones where a run or `check --deep`
    has counted them (an error that says how many rows do not fit), else the promise `limits.prompt_length` (a warning:
    real prompts may be shorter). An error also where the completion alone fills the context; engines inside the trainer
    shorten a completion that just fills it, and so may a foreign trainer, so there it is a warning.
    ## Why it matters
    The server refuses a request whose prompt and completion exceed its context, in the middle of training.
    ## Bad
        generation.max_model_len=20
        generation.max_model_len=8
        generation.max_model_len=20
        facts: {"prompt_tokens": {"9": 100, "14": 3}}
    ## Good
        generation.max_model_len=32
        generation.max_model_len=20
        facts: {"prompt_tokens": {"9": 100, "12": 3}}
    """
    kind, room = generation_kind(case.run.generation), case.run.generation.max_model_len
    if case.run.generation.kind == "inprocess":
        return  # no engine with a context of its own
    completion = case.run.limits.completion_length
    clamps = kind.clamps or case.run.trainer.kind == "command"
    known = prompts(case.run, case.facts)
    too_long = known.beyond(room - completion)
    values = {
        "prompt" if known.counted is not None else "limits.prompt_length": known.longest,
        COMPLETION: completion,
        "generation.max_model_len": room,
    }
    sum_ = f"{known.longest} prompt + {completion} completion tokens = {known.longest + completion}"
    if completion >= room:
        yield Finding(
            severity="warning" if clamps and completion == room else "error",
            values=values,
            problem=f"a completion of {completion} tokens leaves no room for a prompt in a context of {room}",
            why="Long completions are cut by as much as the prompt has."
            if clamps
            else "The server answers every such request with 400.",
            fix=f"set generation.max_model_len={known.longest + completion}, or lower limits.completion_length",
        )
    elif too_long:
        yield Finding(
            values=values,
            problem=f"{sum_} exceed a context of {room}: {too_long} of {sum((known.counted or {}).values())} prompts "
            "do not fit",
            why="The server answers with 400, whenever the first of them comes.",
            fix=f"set generation.max_model_len={known.longest + completion}, or drop them: data.long_prompts=drop "
            f"limits.prompt_length={room - completion}",
        )
    elif known.counted is None and known.longest + completion > room:
        yield Finding(
            severity="warning",
            values=values,
            problem=f"{sum_} exceed a context of {room}",
            why="The server answers such a request with 400, whenever the first long prompt comes.",
            fix=f"set generation.max_model_len={known.longest + completion}, or lower one of the limits",
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
    if not isinstance(facts, ModelFacts) or case.run.generation.kind == "inprocess":
        return  # MOD004 says that nothing is known of the model
    if facts.max_positions is None:
        yield skipped(
            "config.json of the model does not say how many positions it has", "nothing: the server will tell"
        )
    elif case.run.generation.max_model_len > facts.max_positions and "hf_overrides" in case.run.generation.args:
        yield skipped(
            f"generation.args.hf_overrides may change the model's {facts.max_positions} positions", "start the server"
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


def prompts_too_long(case: Case) -> Iterator[Finding]:
    """Real prompts are within `limits.prompt_length`.

    ## What it checks
    The prompts' tokens, chat template included, as a run or `check --deep` has counted them with the model's tokenizer.
    With `data.long_prompts: error` longer ones are an error that counts rows; with `drop` a note. Uncounted prompts are
    skipped, unless none has as many characters as the limit has tokens.
    ## Why it matters
    A prompt that is cut loses its question, and the reward judges an answer to something else.
    ## Bad
        limits.prompt_length=3
        facts: {"prompt_tokens": {"9": 100, "17": 3}}
    ## Good
        limits.prompt_length=64
        facts: {"prompt_tokens": {"9": 100, "16": 3}}
    """
    data, counted, limit = case.facts.data, case.facts.prompt_tokens, case.run.limits.prompt_length
    if isinstance(counted, str):
        if not isinstance(data, str) and data.longest_prompt_chars > limit:
            yield skipped(
                f"the longest prompt has {data.longest_prompt_chars} characters; its tokens are not counted yet",
                "orchestrate check --deep counts them, as every run does before it trains",
                {"limits.prompt_length": limit, "data.long_prompts": case.run.data.long_prompts},
            )
        return
    beyond = sum(rows for length, rows in counted.items() if length > limit)
    if beyond:
        dropped = case.run.data.long_prompts == "drop"
        yield Finding(
            severity="note" if dropped else "error",
            values={"limits.prompt_length": limit, "longest prompt": max(counted)},
            problem=f"{beyond} of {sum(counted.values())} prompts have more than {limit} tokens, up to {max(counted)}"
            + ("; they are dropped" if dropped else ""),
            why="They are not trained on." if dropped else "The run would end before its first step.",
            fix=f"set limits.prompt_length={max(counted)}, where the context has room for it"
            + ("" if dropped or beyond == sum(counted.values()) else ", or data.long_prompts=drop"),
        )
