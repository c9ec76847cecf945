"""CFG and ORD: settings that the run decides, must have, or cannot start."""

from collections.abc import Iterator
from difflib import get_close_matches

from orchestrator.findings import Finding
from orchestrator.kinds import STARTABLE, not_startable
from orchestrator.rules.case import Case


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
        by_itself = case.run.trainer.kind == "command"  # a foreign program may start its own workers
        if count < 1 or (launcher.kind == "python" and count != 1 and not by_itself):
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


def seeds_differ(case: Case) -> Iterator[Finding]:
    """One seed makes a run repeatable.

    ## What it checks
    `trainer.args.seed` against `seed` (a warning), and `data.seed` (a note: fixed data under several seeds is common).
    ## Why it matters
    The result and the lock file name `seed`; whoever repeats the run with it gets another one.
    ## Bad
        trainer.args.seed=7
        data.seed=7
    ## Good
        seed=7
    """
    run = case.run
    for path, seed in {"trainer.args.seed": run.trainer.args.get("seed"), "data.seed": run.data.seed}.items():
        if isinstance(seed, int) and seed != run.seed:
            yield Finding(
                severity="note" if path == "data.seed" else "warning",
                values={path: seed, "seed": run.seed},
                problem=f"{path} = {seed}, and seed = {run.seed}",
                why="The report names one seed; the run has two.",
                fix=f"leave {path} at ${{seed}} and set seed={seed}",
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
        "model_init_kwargs": "model.name, revision, dtype and attn_implementation say how the model is loaded",
    }
    args = case.run.trainer.args
    harmless = {"do_train": True, "do_eval": False, "eval_on_start": False, "remove_unused_columns": False}
    for key in sorted(managed.keys() & args.keys()):
        if key in harmless and args[key] is harmless[key]:
            continue
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
    `trainer.kind`, `launcher.kind` and the like against what this version of orchestrate starts.
    ## Why it matters
    The recipe can be checked here, and its services could be started by hand, but `orchestrate` would refuse to run it.
    It is a warning for `check` and stops a run.
    ## Bad
        trainer.kind=async_grpo
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
            fix=f"to run now, choose {path}="
            + " or ".join("null" if value is None else str(value) for value in STARTABLE[path]),
        )


def ignored_without_reason(case: Case) -> Iterator[Finding]:
    """What a recipe ignores is a rule that exists, and has a reason.

    ## What it checks
    Each code in `ignore` against the rules, and its text.
    ## Why it matters
    A misspelt code hides nothing; a code without a reason hides something from the next reader.
    ## Bad
        ignore.NUM999=why-not
        ignore.SEC002=""
    ## Good
        ignore.SEC002="the checkpoint is our own"
    """
    from orchestrator.deep.rules import DEEP_RULES  # here: the tables hold this very rule, or what imports it
    from orchestrator.rules import RULES

    codes = [*(rule.code for rule in RULES), *(rule.code for rule in DEEP_RULES)]
    for code, reason in case.run.ignore.items():
        if code not in codes:
            near = get_close_matches(code.upper(), codes, n=1)
            yield Finding(
                severity="warning",
                values={f"ignore.{code}": reason},
                problem=f"ignore names {code}, which is no rule" + (f"; the nearest one is {near[0]}" if near else ""),
                why="Nothing is ignored by it.",
                fix="see: orchestrate rules",
            )
        elif not reason.strip():
            yield Finding(
                values={f"ignore.{code}": reason},
                problem=f"{code} is ignored without a reason",
                why="The next reader of the recipe cannot know whether it still holds.",
                fix=f"write ignore.{code}='why it is accepted here'",
            )


def command_missing(case: Case) -> Iterator[Finding]:
    """A foreign trainer has a command, and only a foreign trainer has one.

    ## What it checks
    `trainer.argv` with `trainer.kind: command`: present, its program can be run; empty with the other kinds.
    ## Why it matters
    Nothing could be started; with another kind the command would be ignored.
    ## Bad
        trainer=command
        trainer=command 'trainer.argv=[no-such-program, train]'
        'trainer.argv=[axolotl, train]'
    ## Good
        trainer=command 'trainer.argv=[python3, train.py]'
        facts: {"programs": ["python3"]}
    """
    trainer = case.run.trainer
    if trainer.kind == "command" and not trainer.argv:
        problem, fix = "trainer.kind = command, and trainer.argv is empty", "set trainer.argv=[program, argument, ...]"
    elif trainer.kind == "command" and trainer.argv[0] not in case.facts.programs:
        problem, fix = f"{trainer.argv[0]} is no program that can be run", "give its path, or install it"
    elif trainer.kind != "command" and trainer.argv:
        problem, fix = f"trainer.kind = {trainer.kind} starts no trainer.argv", "set trainer=command, or remove it"
    else:
        return
    yield Finding(
        values={"trainer.kind": trainer.kind, "trainer.argv": trainer.argv},
        problem=problem,
        why="The trainer could not be started, or would not be the one that the recipe names.",
        fix=fix,
    )
