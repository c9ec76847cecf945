"""CFG: keys, types and values of the recipe itself."""

import math
from collections.abc import Iterator, Sequence
from difflib import get_close_matches

from orchestrator.fieldtypes import accepts, readable
from orchestrator.findings import Finding, skipped
from orchestrator.kinds import STARTABLE, not_startable
from orchestrator.rules.case import Case


def unknown_key(case: Case) -> Iterator[Finding]:
    """Every key of the recipe is one that something reads.

    ## What it checks
    Each key against the schema, and each key of `trainer.args` against the fields of the installed TRL's config class
    (read from its sources, base classes included), wherever it was set: command line, recipe or group file.
    ## Why it matters
    A key that nothing reads changes nothing: the run trains with the default, and hours later the figures are puzzling.
    ## Bad
        generaton.port=1
        trainer.learning_rate=1e-4
        trainer.args.learning_rte=1e-4
        +trainer.args.max_prompt_length=128
    ## Good
        generation.port=8001
        trainer.args.beta=0.01
    """
    fields = case.facts.trainer_fields
    known_args = () if isinstance(fields, str) else tuple(f"trainer.args.{name}" for name in fields)
    for problem in case.problems:
        if problem.kind == "unknown":
            yield _unknown(problem.path, problem.value, problem.unknown, problem.near, known_args)
    if isinstance(fields, str):
        yield skipped(f"the legal names of trainer.args are not known: {fields}", "install trl in this environment")
        return
    for key, value in case.run.trainer.args.items():
        if key not in fields:
            yield _unknown(f"trainer.args.{key}", value, f"trainer.args.{key}", known_args, ())
    for text in case.rejected:
        yield Finding(
            problem=f"the override cannot be applied: {text}",
            why="The setting that it was meant for keeps its old value.",
            fix="write the whole list: reward.functions=[{name: ..., target: ...}, ...]",
        )


def _unknown(path: str, value: object, unknown: str, near: tuple[str, ...], elsewhere: tuple[str, ...]) -> Finding:
    if unknown == "experiment":
        return Finding(
            values={path: value},
            problem="the experiment file has no `# @package _global_` line, so its keys land below `experiment`",
            why="Nothing reads them there, so the run would go on with the defaults.",
            fix="make `# @package _global_` the first line of the file",
        )
    # First a key of the same last name (trainer.learning_rate, learning_rate), then a similar spelling.
    last = unknown.rpartition(".")[2]
    same = [key for key in (*near, *elsewhere) if key.rpartition(".")[2] == last]
    match = same[:1] or get_close_matches(unknown, near, n=1, cutoff=0.6)
    suggestion = match[0] + path.removeprefix(unknown) if match else ""
    return Finding(
        values={path: value},
        problem=f"{unknown} is not a setting" + (f"; the nearest one is {suggestion}" if suggestion else ""),
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
    ## Good
        trainer.args.learning_rate=1
        trainer.args.scale_rewards=false
    """
    for problem in case.problems:
        if problem.kind == "type":
            yield _wrong(problem.path, problem.value, problem.expected)
    fields = case.facts.trainer_fields
    flagged = {problem.path for problem in case.problems}
    if isinstance(fields, str) or flagged & {"limits.completion_length", "limits.generations", "seed"}:
        return  # what trainer.args repeats by interpolation was reported where it is written
    for key, value in case.run.trainer.args.items():
        if isinstance(value, float) and not math.isfinite(value):
            yield _wrong(f"trainer.args.{key}", value, "a finite number")
        elif key in fields and not accepts(fields[key].annotation, value):
            yield _wrong(f"trainer.args.{key}", value, readable(fields[key].annotation))
    if not isinstance(case.run.generation.port, int) and case.run.generation.port != "auto":
        yield _wrong("generation.port", case.run.generation.port, "int or auto")
    if not isinstance(case.run.reward.port, int) and case.run.reward.port != "auto":
        yield _wrong("reward.port", case.run.reward.port, "int or auto")


def _wrong(path: str, value: object, expected: str) -> Finding:
    return Finding(
        values={path: value},
        problem=f"{path} = {value!r} is not of type {expected}",
        why="The part that reads it would fail when it starts, after the others have loaded.",
        fix=f"give {path} a value of type {expected}",
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
    if not case.run.model.name and not any(problem.path == "model.name" for problem in case.problems):
        yield _missing("model.name", "")


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
    ## Why it matters
    A part of a kind that does not exist cannot be started.
    ## Bad
        trainer.kind=gpro
        trainer.args.lr_scheduler_type=cosin
        trainer.args.loss_type=dr-grpo
        model.dtype=float8
    ## Good
        generation.dtype=float32
        trainer.args.loss_type=dr_grpo trainer.args.lr_scheduler_type=cosine trainer.args.optim=adafactor
    """
    for problem in case.problems:
        if problem.kind == "choice":
            yield _no_choice(problem.path, problem.value, problem.expected.split(", "))
    fields = case.facts.trainer_fields
    for key, value in case.run.trainer.args.items():
        words = () if isinstance(fields, str) or key not in fields else fields[key].choices
        if words and isinstance(value, str) and value not in words:
            yield _no_choice(f"trainer.args.{key}", value, words)


def _no_choice(path: str, value: object, words: Sequence[str]) -> Finding:
    match = get_close_matches(str(value), words, n=1)
    return Finding(
        values={path: value},
        problem=f"{path} = {value} is none of: {', '.join(words)}",
        why="The part that reads it would fail, after the others have started.",
        fix=f"write {path}={match[0]}" if match else "choose one of them",
    )


def launcher_processes(case: Case) -> Iterator[Finding]:
    """The launcher can start the number of processes that the recipe asks for.

    ## What it checks
    `launcher.num_processes` and `launcher.num_machines` against `launcher.kind`: `python` starts one process.
    ## Why it matters
    All batch arithmetic counts processes; with fewer than stated, a step would see fewer completions than planned.
    ## Bad
        launcher.num_processes=2
        launcher=torchrun launcher.num_processes=0
    ## Good
        launcher.num_processes=1
        launcher=torchrun launcher.num_processes=2
    """
    launcher = case.run.launcher
    for key in ("num_processes", "num_machines"):
        count = getattr(launcher, key)
        if count < 1 or (launcher.kind == "python" and count != 1):
            yield Finding(
                values={"launcher.kind": launcher.kind, f"launcher.{key}": count},
                problem=f"launcher.kind = {launcher.kind} cannot start launcher.{key} = {count}",
                why="The batch arithmetic counts processes that would never start.",
                fix=f"set launcher.{key}=1, or launcher=torchrun for several",
            )


def run_name(case: Case) -> Iterator[Finding]:
    """The run has a name that is a folder, and a seed that every library takes.

    ## What it checks
    `name` is one path component (and not `latest`); `seed` and `data.seed` lie between 0 and 2**32 - 1.
    ## Why it matters
    The run directory is runs_dir/name/time. numpy refuses other seeds, after everything has started.
    ## Bad
        name=a/b
        name=''
        seed=-1
        trainer.args.seed=-1
    ## Good
        name=my-run seed=4294967295
    """
    name = case.run.name
    if name in ("", ".", "..", "latest") or "/" in name or "\0" in name:
        yield Finding(
            values={"name": name},
            problem=f"name = {name!r} is not the name of a folder",
            why="The run directory is made below runs_dir under this name.",
            fix="choose a name without a slash",
        )
    seeds = {
        "seed": case.run.seed,
        "data.seed": case.run.data.seed,
        "trainer.args.seed": case.run.trainer.args.get("seed"),
    }
    for path, seed in seeds.items():
        if isinstance(seed, int) and not 0 <= seed < 2**32 and (path == "seed" or seed != case.run.seed):
            yield Finding(
                values={path: seed},
                problem=f"{path} = {seed} is outside 0..{2**32 - 1}",
                why="numpy and torch take no other seeds; the trainer would fail when it starts.",
                fix=f"set {path} to a number in that range",
            )


def managed_field(case: Case) -> Iterator[Finding]:
    """`trainer.args` leaves alone what the run decides.

    ## What it checks
    Fields that the run directory, `orchestrate resume`, `evaluation` and `model` decide: `output_dir`,
    `resume_from_checkpoint`, `do_train`, `do_eval`, `eval_on_start`, `model_init_kwargs`, `remove_unused_columns`.
    `auto_find_batch_size` is off, as TRL demands.
    ## Why it matters
    Checkpoints outside the run directory are not found by `resume`, and two runs could write into one folder.
    ## Bad
        trainer.args.output_dir=/tmp/x
        trainer.args.auto_find_batch_size=true
    ## Good
        trainer.args.save_steps=10
    """
    managed = {
        "output_dir": "checkpoints belong to the run directory, where `orchestrate resume` finds them",
        "resume_from_checkpoint": "`orchestrate resume RUN` decides it",
        "do_train": "a run trains",
        "do_eval": "evaluation.rows decides it",
        "eval_on_start": "evaluation.rows above 0 measures before and after training",
        "remove_unused_columns": "reward functions read the data's columns",
        "model_init_kwargs": "model.name, model.revision and model.dtype say how the model is loaded",
    }
    args = case.run.trainer.args
    for key in managed.keys() & args.keys():
        yield Finding(
            values={f"trainer.args.{key}": args[key]},
            problem=f"trainer.args.{key} is decided by the run: {managed[key]}",
            why="Two places would decide one thing.",
            fix=f"remove trainer.args.{key}",
        )
    if args.get("auto_find_batch_size") is True:
        yield Finding(
            values={"trainer.args.auto_find_batch_size": True},
            problem="auto_find_batch_size shrinks the batch, and a smaller one no longer holds whole groups",
            why="TRL refuses it when the trainer is built.",
            fix="remove it and lower trainer.args.per_device_train_batch_size",
        )


def not_started_yet(case: Case) -> Iterator[Finding]:
    """Every part is of a kind that this version can start.

    ## What it checks
    `generation.kind`, `trainer.kind` and `launcher.kind` against what this version of orchestrate starts.
    ## Why it matters
    The recipe can be checked here, and its services could be started by hand, but `orchestrate` would refuse to run it.
    It is a warning for `check` and stops a run.
    ## Bad
        generation=vllm
        launcher=torchrun
    ## Good
        generation=embedded
    """
    for path, kind in not_startable(case.run):
        yield Finding(
            severity="warning",
            values={path: kind},
            problem=f"this version of orchestrate checks {path} = {kind} and cannot start it yet",
            why="A run of this recipe is refused.",
            fix=f"to run now, choose {path}=" + " or ".join(STARTABLE[path]),
        )
