"""Deep rules about the trainer's side: TRL's arguments, the tokenizer, the prompts' lengths."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.deep.answers import CountedPrompts, NoAnswer, TriedArguments
from orchestrator.deep.case import DeepCase
from orchestrator.facts.gpus import uses_gpus
from orchestrator.fields.trainer import TRAINER_KINDS
from orchestrator.findings import Finding, skipped

WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def arguments_refused(case: DeepCase) -> Iterator[Finding]:
    """TRL takes `trainer.args`.

    ## What it checks
    The trainer's own config object is built from `trainer.args`, as a run builds it, for as many processes as the
    launcher starts. What TRL or transformers refuse is shown in their words. On a machine without a GPU, arguments that
    are refused for want of one are skipped where the recipe is for GPUs, and an error where it is not.
    ## Why it matters
    The trainer would stop with the same sentence when the servers have started.
    ## Bad
        trainer.args.load_best_model_at_end=true
        trainer.args.dataloader_prefetch_factor=2
    ## Good
        trainer.args.dataloader_prefetch_factor=2 trainer.args.dataloader_num_workers=1
    """
    tried = case.answers.arguments
    if not isinstance(tried, TriedArguments) or tried.refusal is None:
        return
    sentence = " ".join(tried.refusal.split())
    named = _named_in(sentence, case.run.trainer.args)
    told = {path for finding in case.offline if finding.severity == "error" for path in finding.values}
    if told & named.keys():
        return  # an offline rule has told it with its fix
    config = (TRAINER_KINDS[case.run.trainer.kind].config or "").rpartition(":")[2]
    values = named or {"trainer.kind": case.run.trainer.kind}
    if tried.needs_gpu and (case.run.hardware.gpus or uses_gpus(case.run)):
        yield skipped(f"{config} misses a GPU on this machine: {sentence}", "check where the GPUs are", values)
        return
    yield Finding(
        values=values,
        problem=f"{config} refuses trainer.args: {sentence}",
        why="The trainer would stop with this sentence once the servers have started.",
        fix=f"change what it names; {config} in TRL's documentation says what each argument means",
    )


def _named_in(sentence: str, args: Mapping[str, Any]) -> dict[str, Any]:
    words = set(WORD.findall(sentence))
    return {f"trainer.args.{key}": value for key, value in args.items() if key in words}


def tokenizer_unusable(case: DeepCase) -> Iterator[Finding]:
    """The model's tokenizer can be loaded.

    ## What it checks
    `model.name`, with its revision, through transformers' AutoTokenizer, from this machine's files only.
    ## Why it matters
    Trainer and generation server both load it first.
    ## Bad
        model=path model.name=tests/deep/no_tokenizer
    ## Good
        model=tiny_math
    """
    prompts = case.answers.prompts
    if isinstance(prompts, CountedPrompts) and prompts.tokenizer_problem:
        yield Finding(
            values={"model.name": case.run.model.name, "model.revision": case.run.model.revision},
            problem=f"the tokenizer cannot be loaded: {_shortened(prompts.tokenizer_problem)}",
            why="Trainer and generation server would both stop with it.",
            fix="put the tokenizer's files beside the model's, or name a model that has them",
        )


def prompt_refused(case: DeepCase) -> Iterator[Finding]:
    """Every prompt can be turned into tokens.

    ## What it checks
    The prompt of every training and held-out row, through the model's chat template and tokenizer.
    ## Why it matters
    A template refuses roles or orders that it does not know, and the trainer reads every prompt before the first step.
    ## Bad
        data=jsonl data.path=tests/deep/system_role.jsonl data.rows=null evaluation.rows=0
    ## Good
        data=jsonl data.path=tests/deep/sums.jsonl data.rows=null evaluation.rows=0
    """
    prompts = case.answers.prompts
    told = any(finding.code == "MOD006" for finding in case.offline)  # without a template, no row can be rendered
    if isinstance(prompts, CountedPrompts) and prompts.row_problem and not told:
        yield Finding(
            values={"model.name": case.run.model.name, "data.source": case.run.data.source},
            problem=prompts.row_problem,
            why="The trainer would stop with it before the first step, once the servers have started.",
            fix="change the row, or take a model whose chat template knows such messages",
        )


def heldout_prompts_too_long(case: DeepCase) -> Iterator[Finding]:
    """Held-out prompts are within the same limits as the training ones.

    ## What it checks
    Tokens of each held-out prompt, chat template included, against `limits.prompt_length` and against what
    `generation.max_model_len` leaves beside a completion. (LEN003 and LEN006 judge the training prompts.)
    ## Why it matters
    The held-out evaluation runs before the first step: a prompt that is too long stops the run there, or is left out of
    the comparison with `data.long_prompts: drop`.
    ## Bad
        limits.prompt_length=7
        limits.prompt_length=6 data.long_prompts=drop
    ## Good
        limits.prompt_length=8
    """
    prompts = case.answers.prompts
    if not isinstance(prompts, CountedPrompts):
        return
    run = case.run
    room = run.generation.max_model_len - run.limits.completion_length
    limit = min(run.limits.prompt_length, room) if run.generation.kind != "inprocess" else run.limits.prompt_length
    rows, longest = sum(prompts.heldout.values()), max(prompts.heldout, default=0)
    beyond = sum(count for length, count in prompts.heldout.items() if length > limit)
    if not beyond:
        return
    dropped = run.data.long_prompts == "drop" and limit == run.limits.prompt_length
    yield Finding(
        severity="note" if dropped else "error",
        values={
            "limits.prompt_length": run.limits.prompt_length,
            "generation.max_model_len": run.generation.max_model_len,
            "data.long_prompts": run.data.long_prompts,
        },
        problem=f"{beyond} of {rows} held-out prompts have more than {limit} tokens; the longest has {longest}",
        why="They are left out of the evaluation." if dropped else "The evaluation before the first step would fail.",
        fix=f"set limits.prompt_length={longest}",
    )


def no_answer(case: DeepCase) -> Iterator[Finding]:
    """The deep check itself got its answers.

    ## What it checks
    That each process of `check --deep` ended by itself, within its deadline of 300 s, with an answer.
    ## Why it matters
    What could not be asked is not checked. A process that hangs or dies here would do so in a run.
    ## Bad
        facts: {"deadline_s": 0.01}
    ## Good
        seed=0
    """
    asked = {
        "whether TRL takes trainer.args": case.answers.arguments,
        "how long the prompts are": case.answers.prompts,
        "whether the reward functions keep their contract": case.answers.rewards,
    }
    problems: dict[str, list[str]] = {}
    for what, answer in asked.items():
        if isinstance(answer, NoAnswer):
            problems.setdefault(answer.problem, []).append(what)
    for problem, unknown in problems.items():
        yield Finding(
            problem=f"nobody knows {' and '.join(unknown)}: {problem}",
            why="The process that was asked hung or died; a run would start the same code.",
            fix="look at its last lines above; orchestrate check without --deep leaves this out",
        )
    if case.answers.not_kept:
        yield skipped(
            f"the lengths of the prompts were counted, but not kept for the LEN rules: {case.answers.not_kept}",
            "make the cache folder writable (docs/deep.md)",
        )


def _shortened(text: str) -> str:
    return " ".join(text.split())[:400]
