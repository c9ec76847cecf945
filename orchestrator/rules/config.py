"""CFG: keys, types and values of the recipe itself."""

import math
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher, get_close_matches
from typing import Any

from orchestrator.alarms import ALARMS
from orchestrator.fields.source import FieldFact
from orchestrator.fields.trainer import TRAINER_KINDS
from orchestrator.fields.types import accepts, readable
from orchestrator.findings import Finding, skipped
from orchestrator.kinds import generation_kind
from orchestrator.rules.case import Case
from orchestrator.rules.modes import ENGINE_ARGS
from orchestrator.schema import AUTO


def unknown_key(case: Case) -> Iterator[Finding]:
    """Every key of the recipe is one that something reads.

    ## What it checks
    Each key against the schema, each key of `trainer.args` against the fields of the installed TRL's config class (read
    from its sources, base classes included), and each key of `generation.args` against the engine arguments of the vLLM
    that would run, wherever it was set: command line, recipe or group file.
    ## Why it matters
    A key that nothing reads changes nothing: the run trains with the default, and hours later the figures are puzzling.
    ## Bad
        generaton.port=1
        trainer.learning_rate=1e-4
        trainer.args.learning_rte=1e-4
        +trainer.args.max_prompt_length=128
        trainer.val_generations_to_log_to_wandb=1
        generation.args.max_num_seqs=8
        trainer.kind=ppo '~no.such.key'
        generation=vllm generation.args.max_num_sequences=8
        facts: {"generation_fields": {"max_num_seqs": "int"}}
    ## Good
        generation=vllm generation.args.port=9000
        facts: {"generation_fields": {"max_num_seqs": "int"}}
        generation=vllm generation.args.max_num_seqs=8
        facts: {"generation_fields": {"max_num_seqs": "int"}}
        generation.port=8001
        trainer.args.beta=0.01
    """
    fields = case.facts.trainer_fields
    known_args = () if isinstance(fields, str) else tuple(f"trainer.args.{name}" for name in fields)
    for problem in case.problems:
        if problem.kind == "unknown":
            yield _unknown(problem.path, problem.value, problem.unknown, problem.near, known_args)
    yield from _unknown_engine_args(case)
    if isinstance(fields, str):
        known = TRAINER_KINDS[case.run.trainer.kind].config is not None
        yield skipped(
            f"the legal names of trainer.args are not known: {fields}",
            "install trl in this environment" if known else "a version of orchestrate that has this trainer",
        )
    else:
        for key, value in case.run.trainer.args.items():
            if key not in fields:
                yield _unknown(f"trainer.args.{key}", value, f"trainer.args.{key}", known_args, ())
    for text in case.rejected:
        yield Finding(
            problem=f"the override cannot be applied: {text}",
            why="The setting that it was meant for keeps its old value.",
            fix="leave it out; to change the setting, give it a value"
            if text.startswith("~")
            else "give a mapping a mapping and a list a list, e.g. reward.functions=[{name: ..., target: ...}, ...]",
        )


def _unknown_engine_args(case: Case) -> Iterator[Finding]:
    args, fields = case.run.generation.args, case.facts.generation_fields
    if not args:
        return
    if not generation_kind(case.run.generation).vllm:
        kind = case.run.generation.kind
        yield Finding(
            severity="warning",
            values={"generation.kind": kind, "generation.args": args},
            problem=f"generation.args are vLLM's, and generation.kind = {kind} is another server",
            why="Nothing reads them.",
            fix="remove generation.args, or choose generation=vllm",
        )
    elif isinstance(fields, str):
        yield skipped(f"vLLM's arguments are not known: {fields}", "set generation.python to the interpreter with vLLM")
    else:
        known = tuple(f"generation.args.{name}" for name in fields)
        for key, value in args.items():
            if key not in fields and key not in ENGINE_ARGS:  # SYN008 says that those are generation's own
                yield _unknown(f"generation.args.{key}", value, f"generation.args.{key}", known, ())


def _similar(unknown: str, near: Sequence[str]) -> list[str]:
    """The key of the most similar spelling; only what differs counts, or a long common path would make all alike."""
    path, _, last = unknown.rpartition(".")
    names = {key.removeprefix(f"{path}."): key for key in near if key.startswith(f"{path}.") or not path}
    inside = [key for name, key in names.items() if len(name) > 5 and (name in last or last in name)]
    # Of two that are as near, the first of the alphabet: args before argv.
    close = sorted(get_close_matches(last, names, n=3, cutoff=0.6), key=lambda n: (-_likeness(last, n), n))
    return inside[:1] or [names[name] for name in close[:1]]


def _likeness(one: str, other: str) -> float:
    return SequenceMatcher(None, one, other).ratio()


RENAMED = {
    "max_prompt_length": "limits.prompt_length",
    "max_response_length": "limits.completion_length",
    "max_new_tokens": "limits.completion_length",
    "num_return_sequences": "limits.generations",
    "rollout_n": "limits.generations",
    "torch_dtype": "model.dtype",
    "model_name_or_path": "model.name",
    "bsz": "trainer.args.per_device_train_batch_size",
    "batch_size": "trainer.args.per_device_train_batch_size",
    "rank": "trainer.lora.r",
    "lr": "trainer.args.learning_rate",
    "kl_coef": "trainer.args.beta",
    "tp": "generation.tensor_parallel_size",
    "dp": "generation.data_parallel_size",
    "nnodes": "launcher.num_machines",
    "nproc_per_node": "launcher.num_processes",
    "master_port": "launcher.main_port",
    "master_addr": "launcher.main_address",
    "lora_rank": "trainer.lora.r",
    "lora_r": "trainer.lora.r",
    "max_tokens": "limits.completion_length",
    "evaluation_strategy": "trainer.args.eval_strategy",
    "no_cuda": "trainer.args.use_cpu",
    "use_liger_loss": "trainer.args.use_liger_kernel",
    "wandb_log_unique_prompts": "trainer.args.log_unique_prompts",
    "vllm_guided_decoding_regex": "trainer.args.vllm_structured_outputs_regex",
    "vllm_device": "generation.gpus",
    "vllm_dtype": "generation.dtype",
    "vllm_max_model_len": "generation.max_model_len",
    "val_generations_to_log_to_wandb": "trainer.args.num_completions_to_print",
    "log_val_generations": "trainer.args.num_completions_to_print",
}
"""Names of older TRL and transformers versions and of other trainers -> where the setting is here."""


def _unknown(path: str, value: object, unknown: str, near: tuple[str, ...], elsewhere: tuple[str, ...]) -> Finding:
    if unknown == "experiment":
        return Finding(
            values={path: value},
            problem="the experiment file has no `# @package _global_` line, so its keys land below `experiment`",
            why="Nothing reads them there, so the run would go on with the defaults.",
            fix="make `# @package _global_` the first line of the file",
        )
    # First a key of the same last name (trainer.learning_rate, learning_rate), then a new name, then the spelling.
    last = unknown.rpartition(".")[2]
    same = [key for key in (*near, *elsewhere) if key.rpartition(".")[2] == last]
    renamed = [RENAMED[last]] if last in RENAMED else []
    sibling = _similar(unknown, near)
    match = same[:1] if not (sibling and unknown.startswith("limits.")) else sibling
    match = match or renamed or sibling
    suggestion = match[0] + path.removeprefix(unknown) if match else ""
    return Finding(
        values={path: value},
        problem=f"{unknown} is not a setting"
        + (f"; {'it is now' if match == renamed else 'the nearest one is'} {suggestion}" if suggestion else ""),
        why="Nothing reads it, so the run would go on with the default.",
        fix=f"write {suggestion}={value}" if suggestion else f"remove it; known here: {', '.join(sorted(near)[:20])}",
    )


def wrong_type(case: Case) -> Iterator[Finding]:
    """Each value has the type of its field.

    ## What it checks
    Each value against the schema's type, and each value of `trainer.args` against the annotation in the installed TRL.
    ## Why it matters
    The trainer would fail after the model has loaded, or, worse, convert the value to something else.
    ## Bad
        trainer.args.learning_rate=abc
        limits.generations=2.5
        generation.port=http
        trainer.args.max_steps=true
        generation=vllm generation.args.max_num_seqs=many
        facts: {"generation_fields": {"max_num_seqs": "int"}}
        trainer.kind=ppo generation.port=http
    ## Good
        trainer.args.learning_rate=1
        trainer.args.scale_rewards=false
    """
    for problem in case.problems:
        if problem.kind == "type":
            yield _wrong(problem.path, problem.value, problem.expected)
    fields = case.facts.trainer_fields
    flagged = {problem.path for problem in case.problems}
    # What trainer.args repeats by interpolation was reported where it is written.
    repeated = flagged & {"limits.completion_length", "limits.generations", "seed"}
    if not isinstance(fields, str) and not repeated:
        yield from _wrong_args("trainer.args", case.run.trainer.args, fields)
    if not isinstance(case.facts.generation_fields, str):
        yield from _wrong_args("generation.args", case.run.generation.args, case.facts.generation_fields)
    ports = {
        "generation.port": case.run.generation.port,
        "generation.weight_sync.port": case.run.generation.weight_sync.port,
        "reward.port": case.run.reward.port,
        "launcher.main_port": case.run.launcher.main_port,
    }
    for path, port in ports.items():
        if not isinstance(port, int) and port != AUTO:
            yield _wrong(path, port, "int or auto")


def _wrong_args(path: str, args: Mapping[str, Any], fields: Mapping[str, FieldFact]) -> Iterator[Finding]:
    for key, value in args.items():
        if isinstance(value, float) and not math.isfinite(value):
            yield _wrong(f"{path}.{key}", value, "a finite number")
        elif key in fields and not accepts(fields[key].annotation, value):
            yield _wrong(f"{path}.{key}", value, readable(fields[key].annotation))


def _wrong(path: str, value: object, expected: str) -> Finding:
    return Finding(
        values={path: value},
        problem=f"{path} = {value!r} is not of type {expected}",
        why="The part that reads it would fail when it starts, after the others have loaded.",
        fix=f"give {path} a value of type {expected}"
        + (f'; YAML reads a bare no, off, yes or on as a boolean: write {path}: "no"' if value is False else ""),
    )


def missing_value(case: Case) -> Iterator[Finding]:
    """Every setting that a part cannot do without is there.

    ## What it checks
    Values left as `???` by the chosen group, an empty model name, interpolations that lead nowhere.
    ## Why it matters
    The part that needs the value would fail on its own, with a message about something else.
    ## Bad
        data=jsonl evaluation.rows=0
        model.name=''
        generation.model=''
        generation.model='${modle.name}'
    ## Good
        generation.model='${model.name}'
    """
    for problem in case.problems:
        if problem.kind == "missing":
            yield _missing(problem.path, problem.value)
        elif problem.kind == "interpolation":
            yield Finding(
                values={problem.path: problem.value},
                problem=f"{problem.path} cannot be computed: {problem.expected}",
                why="The value comes from another setting, and that one is not there or not of the right kind.",
                fix="correct the name inside ${...}, or write the value itself",
            )
    for path, name in {"model.name": case.run.model.name, "generation.model": case.run.generation.model}.items():
        if not name and case.is_sound(path) and not any(problem.path == path for problem in case.problems):
            yield _missing(path, "")


def _missing(path: str, value: object) -> Finding:
    return Finding(
        values={path: value},
        problem=f"{path} is not set",
        why="The chosen group leaves it to the recipe.",
        fix=f"add {path}=... to the command line or the recipe",
    )


def unknown_choice(case: Case) -> Iterator[Finding]:
    """A setting with a few legal words has one of them.

    ## What it checks
    `kind`, `source`, `dtype`, `on_error` and the other settings that take one of a few words; in `trainer.args`, the
    fields whose words the installed TRL and transformers list (`lr_scheduler_type`, `optim`, `save_strategy`,
    `loss_type`, ...).
    Likewise codes and actions of alarms.
    ## Why it matters
    A part of a kind that does not exist cannot be started.
    ## Bad
        trainer.kind=gpro
        trainer.args.lr_scheduler_type=cosin
        trainer.args.loss_type=dr-grpo
        model.dtype=float8
        supervision.alarms.actions.RUN002=stpo
        supervision.alarms.actions.RUN099=stop
    ## Good
        generation.dtype=float32
        supervision.alarms.actions.RUN002=stop
        trainer.args.loss_type=dr_grpo trainer.args.lr_scheduler_type=cosine trainer.args.optim=adafactor
    """
    for problem in case.problems:
        if problem.kind == "choice":
            yield _no_choice(problem.path, problem.value, problem.expected.split(", "))
    for path, args, fields in (
        ("trainer.args", case.run.trainer.args, case.facts.trainer_fields),
        ("generation.args", case.run.generation.args, case.facts.generation_fields),
    ):
        for key, value in args.items():
            words = () if isinstance(fields, str) or key not in fields else fields[key].choices
            if words and isinstance(value, str) and value not in words:
                yield _no_choice(f"{path}.{key}", value, words)

    for code, action in case.run.supervision.alarms.actions.items():
        if code not in ALARM_CODES:
            yield _no_choice("an alarm in supervision.alarms.actions", code, ALARM_CODES)
        elif action not in ALARM_ACTIONS:
            yield _no_choice(f"supervision.alarms.actions.{code}", action, ALARM_ACTIONS)


ALARM_CODES = tuple(alarm.code for alarm in ALARMS)
ALARM_ACTIONS = ("warn", "stop", "off")


def _no_choice(path: str, value: object, words: Sequence[str]) -> Finding:
    match = [word for word in words if word.startswith(f"{value}_")] or get_close_matches(str(value), words, n=1)
    return Finding(
        values={path: value},
        problem=f"{path} = {value} is none of: {', '.join(words)}",
        why="The part that reads it would fail, after the others have started.",
        fix=f"write {path}={match[0]}" if match else "choose one of them",
    )
