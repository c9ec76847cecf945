"""LEN: budgets beyond one request: several turns, judges, environments, engines, and answers that need their room."""

import re
from collections.abc import Iterator

from orchestrator.facts import ModelFacts
from orchestrator.findings import Finding
from orchestrator.kinds import generation_kind
from orchestrator.ledgers.tokens import COMPLETION, prompts
from orchestrator.rules.case import Case
from rewards.calling.signature import Signature

ANSWER = re.compile(r"answer|solution|gold|response|completion|target|reference|output", re.IGNORECASE)
CHARS_PER_TOKEN = 4
"""English text in a large vocabulary; a smaller vocabulary needs more tokens for the same text."""


def batched_tokens_below_context(case: Case) -> Iterator[Finding]:
    """The engine can take in its longest request.

    ## What it checks
    vLLM's `max_num_batched_tokens` against `generation.max_model_len` with `enable_chunked_prefill: false`.
    ## Why it matters
    Without chunked prefill a prompt is computed in one go; vLLM refuses to start with a smaller batch than its context.
    ## Bad
        generation=colocate 'generation.args={max_num_batched_tokens: 16, enable_chunked_prefill: false}'
    ## Good
        generation=colocate 'generation.args={max_num_batched_tokens: 24, enable_chunked_prefill: false}'
        generation=colocate 'generation.args={max_num_batched_tokens: 16}'
    """
    generation = case.run.generation
    batched = generation.args.get("max_num_batched_tokens")
    if not isinstance(batched, int) or generation.args.get("enable_chunked_prefill") is not False:
        return
    if generation_kind(generation).vllm and batched < generation.max_model_len:
        yield Finding(
            values={
                "generation.args.max_num_batched_tokens": batched,
                "generation.args.enable_chunked_prefill": False,
                "generation.max_model_len": generation.max_model_len,
            },
            problem=f"{batched} tokens a batch cannot hold a context of {generation.max_model_len} in one piece",
            why="vLLM refuses to start.",
            fix=f"set generation.args.max_num_batched_tokens={generation.max_model_len}, or leave chunked prefill on",
        )


def judge_context_too_small(case: Case) -> Iterator[Finding]:
    """A judge can read what it is to judge.

    ## What it checks
    Prompt + completion + `reward.judge.template_length` (its own prompt and verdict) against
    `reward.judge.max_model_len`. An error where counted prompts, or completion and template alone, do not fit; a
    warning where only the declared caps reach the limit.
    ## Why it matters
    The judge answers 400 for long completions, and the reward function makes an error or a zero of it.
    ## Bad
        reward.judge.max_model_len=20 reward.judge.template_length=4
        reward.judge.max_model_len=24
    ## Good
        reward.judge.max_model_len=64 reward.judge.template_length=16
    """
    judge, known = case.run.reward.judge, prompts(case.run, case.facts)
    if judge.max_model_len is None:
        return
    completion = case.run.limits.completion_length
    need = known.longest + completion + judge.template_length
    certain = known.counted is not None or completion + judge.template_length >= judge.max_model_len
    if need > judge.max_model_len or (need == judge.max_model_len and known.counted is None):
        over = "exceed" if need > judge.max_model_len else "fill"
        yield Finding(
            severity="error" if certain and need > judge.max_model_len else "warning",
            values={
                "prompt": known.longest,
                COMPLETION: completion,
                "reward.judge.template_length": judge.template_length,
                "reward.judge.max_model_len": judge.max_model_len,
            },
            problem=f"{known.longest} prompt + {completion} completion + {judge.template_length} template tokens = "
            f"{need} {over} the judge's context of {judge.max_model_len}",
            why="The judge refuses long completions or has no room for its verdict: errors or zeros as rewards.",
            fix=f"serve the judge with max_model_len above {need}, or lower limits.completion_length",
        )


def environment_output_limit(case: Case) -> Iterator[Finding]:
    """An environment that asks the policy itself uses the recipe's completion length.

    ## What it checks
    With `reward.environment.calls_model`: `reward.environment.max_output_tokens` against the completion length.
    ## Why it matters
    The trainer's limit does not reach requests that it does not make: rollouts grow to the server's context.
    ## Bad
        generation=vllm reward.environment.calls_model=true
        generation=vllm reward.environment.calls_model=true reward.environment.max_output_tokens=64
    ## Good
        generation=vllm reward.environment.calls_model=true reward.environment.max_output_tokens=8
    """
    environment = case.run.reward.environment
    completion = case.run.limits.completion_length
    if environment.calls_model and environment.max_output_tokens != completion:
        own = environment.max_output_tokens
        room = case.run.generation.max_model_len
        yield Finding(
            severity="warning",
            values={
                "reward.environment.max_output_tokens": own,
                COMPLETION: completion,
                "generation.max_model_len": room,
            },
            problem=f"the environment asks for {'as many tokens as fit' if own is None else own} "
            f"(context {room}), the trainer means {completion}",
            why="The trainer's limit is not in requests that the environment makes.",
            fix="set reward.environment.max_output_tokens=${limits.completion_length}",
        )


def turns_exceed_context(case: Case) -> Iterator[Finding]:
    """All turns of a rollout fit the context.

    ## What it checks
    Prompt + `reward.environment.max_turns` x completion (or `max_input_length` + completion, where the history is
    capped) against the smallest of `generation.max_model_len` and `trainer.args.max_total_length`. A warning: turns are
    mostly shorter than their cap.
    ## Why it matters
    The last turns of long rollouts are refused or cut, and their reward with them.
    ## Bad
        generation=vllm reward.environment.max_turns=5
        generation=vllm reward.environment.max_turns=5 reward.environment.max_input_length=20
    ## Good
        generation=vllm reward.environment.max_turns=5 generation.max_model_len=128
    """
    run, environment = case.run, case.run.reward.environment
    if not environment.max_turns or environment.max_turns < 2:
        return
    completion = run.limits.completion_length
    total = run.trainer.args.get("max_total_length")
    rooms = {"generation.max_model_len": run.generation.max_model_len}
    if isinstance(total, int):
        rooms["trainer.args.max_total_length"] = total
    room_path = min(rooms, key=lambda key: rooms[key])
    if environment.max_input_length is not None:
        need, how = environment.max_input_length + completion, f"{environment.max_input_length} + {completion}"
    else:
        longest = prompts(run, case.facts).longest
        need = longest + environment.max_turns * completion
        how = f"{longest} + {environment.max_turns} turns x {completion}"
    if need > rooms[room_path]:
        yield Finding(
            severity="warning",
            values={
                "reward.environment.max_turns": environment.max_turns,
                COMPLETION: completion,
                room_path: rooms[room_path],
            },
            problem=f"{how} = {need} tokens may pass the {rooms[room_path]} of {room_path}",
            why="The last turns of a long rollout would be refused or cut.",
            fix=f"raise {room_path} to {need}, or lower max_turns or limits.completion_length",
        )


def answers_need_more_room(case: Case) -> Iterator[Finding]:
    """A completion may be as long as the data's own answers.

    ## What it checks
    Every text column that a reward function reads and that is called like an answer (answer, solution, gold, response,
    completion, target, reference, output): half of its values are longer than a completion may be (four
    characters a token). A warning.
    ## Why it matters
    Completions are cut before their answer; a verifier that needs the end gives 0 to each, and nothing is learned for
    hours.
    ## Bad
        facts: {"data": {"text_chars": {"answer": 400}}}
    ## Good
        facts: {"data": {"text_chars": {"answer": 16}}}
    """
    data = case.facts.data
    if isinstance(data, str):
        return
    completion = case.run.limits.completion_length
    read = {
        column
        for signature in case.facts.signatures.values()
        if isinstance(signature, Signature)
        for column in (*signature.required, *signature.optional)
    }
    for column in sorted(name for name in read & data.text_chars.keys() if ANSWER.search(name)):
        chars = data.text_chars[column]
        if chars > completion * CHARS_PER_TOKEN:
            yield Finding(
                severity="warning",
                values={COMPLETION: completion, f"data column {column}": f"{chars} characters (median)"},
                problem=f"half of the values of {column} have more than {chars} characters, about "
                f"{chars // CHARS_PER_TOKEN} tokens; a completion has {completion}",
                why="Completions would be cut before the answer that the reward looks for: all rewards equal, loss 0.",
                fix=f"raise limits.completion_length to {2 * chars // CHARS_PER_TOKEN} or so",
            )


def total_length_beyond_positions(case: Case) -> Iterator[Finding]:
    """A foreign trainer's total length is one that the model has positions for.

    ## What it checks
    `trainer.args.max_total_length` (or OnlineDPO's `max_length`) against the model's positions and, as a warning, the
    completion length.
    ## Why it matters
    Beyond its positions a model produces noise; a completion that fills the total leaves no room for a prompt.
    ## Bad
        trainer=command trainer.args.max_total_length=4096
        trainer=command trainer.args.max_total_length=8
    ## Good
        trainer=command trainer.args.max_total_length=128
    """
    run, model = case.run, case.facts.models.get(case.run.model.name)
    completion = run.limits.completion_length
    for key in ("max_total_length", "max_length"):
        total = run.trainer.args.get(key)
        if not isinstance(total, int):
            continue
        if isinstance(model, ModelFacts) and model.max_positions is not None and total > model.max_positions:
            yield Finding(
                values={f"trainer.args.{key}": total, "model.name": run.model.name},
                problem=f"{total} tokens exceed the model's {model.max_positions} positions",
                why="Beyond its positions a model produces noise.",
                fix=f"lower trainer.args.{key} to {model.max_positions}",
            )
        elif completion >= total:
            yield Finding(
                severity="warning",
                values={COMPLETION: completion, f"trainer.args.{key}": total},
                problem=f"a completion of {completion} tokens leaves no room for a prompt in a total of {total}",
                why="Long completions are cut by as much as the prompt has.",
                fix=f"raise trainer.args.{key} to {completion + run.limits.prompt_length}",
            )
