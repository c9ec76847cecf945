"""DEV: a DeepSpeed or accelerate file of the user's own, against the recipe."""

from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.findings import Finding, Severity
from orchestrator.ledgers.batches import DEFAULTS, world_size
from orchestrator.rules.case import Case

AUTO_WORD = "auto"
"""What the Trainer fills in by itself in a DeepSpeed file."""


def launcher_file_disagrees(case: Case) -> Iterator[Finding]:
    """A DeepSpeed or accelerate file says what the recipe says.

    ## What it checks
    DeepSpeed (`launcher.config`, or a mapping in `trainer.args.deepspeed`): train_batch_size, micro batch,
    accumulation, ZeRO stage, bf16 and fp16, clipping and learning rate are "auto" or equal. accelerate
    (`launcher.config`): ZeRO stage, accumulation and, as a warning, mixed_precision; its counts of processes and
    machines only as a note, for the launcher's command line wins over them. And that DeepSpeed is told a stage at all.
    ## Why it matters
    DeepSpeed asserts that train_batch_size = micro batch x accumulation x processes after the model has loaded; other
    values win silently over the trainer's.
    ## Bad
        launcher=deepspeed launcher.num_processes=7 launcher.config=ds.json
        facts: {"launcher_config": {"train_batch_size": 256}}
        launcher=accelerate launcher.config=acc.yaml launcher.zero_stage=3
        facts: {"launcher_config": {"distributed_type": "DEEPSPEED", "deepspeed_config": {"zero_stage": 2}}}
        launcher=deepspeed
        launcher=deepspeed launcher.config=/nowhere/ds.json
        facts: {"launcher_config": "/nowhere/ds.json cannot be read"}
    ## Good
        launcher=deepspeed launcher.num_processes=2 launcher.config=ds.json
        facts: {"launcher_config": {"train_batch_size": "auto", "zero_optimization": {"stage": 2}}}
    """
    path, content = case.run.launcher.config, case.facts.launcher_config
    if isinstance(content, str):
        yield Finding(
            values={"launcher.config": path},
            problem=f"launcher.config cannot be used: {content}",
            why="The launcher would fail when it starts.",
            fix="correct the path or the file, or leave launcher.config out",
        )
        return
    inline = case.run.trainer.args.get("deepspeed")
    if case.run.launcher.kind == "deepspeed" and case.run.launcher.zero_stage is None and not content and not inline:
        yield Finding(
            values={"launcher.kind": "deepspeed", "launcher.zero_stage": None, "launcher.config": None},
            problem="nothing says which ZeRO stage DeepSpeed is to use",
            why="DeepSpeed would not be set up at all.",
            fix="set launcher.zero_stage=2 (1, 2 or 3), or launcher.config=FILE.json",
        )
    yield from _wrong_file(case, path, content, inline)
    for name, said in (("launcher.config", content), ("trainer.args.deepspeed", inline)):
        if isinstance(said, Mapping):
            deepspeed = name == "trainer.args.deepspeed" or case.run.launcher.kind == "deepspeed"
            file = path if name == "launcher.config" else name
            compared = _deepspeed(case, said) if deepspeed else _accelerate(case, said)
            for key, value, setting, meant in compared:
                if value not in (None, AUTO_WORD) and not _equal(value, meant):
                    yield _differs(str(file), key, value, setting, meant, deepspeed)


def _wrong_file(case: Case, path: str | None, content: Mapping[str, Any] | None, inline: Any) -> Iterator[Finding]:
    kind = case.run.launcher.kind
    if content and inline:
        yield Finding(
            values={"launcher.config": path, "trainer.args.deepspeed": inline},
            problem="DeepSpeed is set up in two places",
            why="One of them wins without a word.",
            fix="keep launcher.config, and remove trainer.args.deepspeed",
        )
    for other, marks in FILE_MARKS.items():
        if content and kind != other and kind in FILE_MARKS and marks & content.keys():
            yield Finding(
                values={"launcher.kind": kind, "launcher.config": path},
                problem=f"{path} is a file for {other} ({', '.join(sorted(marks & content.keys()))}), not for {kind}",
                why="The launcher would not find what it looks for, or refuse the file.",
                fix=f"choose launcher={other}, or name a file for {kind}",
            )


FILE_MARKS = {
    "deepspeed": {"train_batch_size", "train_micro_batch_size_per_gpu", "zero_optimization"},
    "accelerate": {"compute_environment", "distributed_type", "num_machines", "machine_rank"},
}
"""Launcher -> keys that only its files have."""


def _equal(value: Any, meant: Any) -> bool:
    return bool(value == meant) or str(value) == str(meant)


def _differs(file: str, key: str, value: Any, setting: str, meant: Any, deepspeed: bool) -> Finding:
    severity: Severity = "error"
    why, fix = "DeepSpeed asserts the batch sizes after the model has loaded; others win without a word.", ""
    if key in COUNTS:
        severity, why = "note", "The launcher's command line wins over the file."
    elif key == "mixed_precision":
        severity, why = "warning", "The file decides what the trainer computes in; the rules read trainer.args."
        fix = f"set trainer.args.{value}=true" if value in ("bf16", "fp16") else 'write mixed_precision: "no" in it'
    elif key.endswith(("stage", "zero_stage")):
        why, fix = "The file decides, and memory and weight sync are planned for the other.", f"set {setting}={value}"
    elif deepspeed:
        *outer, inner = key.split(".")
        text = f'"{inner}": "auto"'
        for name in reversed(outer):
            text = f'"{name}": {{{text}}}'
        fix = f"write {text} in {file}"
    return Finding(
        severity=severity,
        values={f"{file}: {key}": value, setting: meant},
        problem=f"{key} = {value} in {file}, and the recipe makes it {meant} ({setting})",
        why=why,
        fix=fix or f"write {key}: {meant} in {file}, or set {setting}",
    )


COUNTS = ("num_processes", "num_machines")

Compared = Iterator[tuple[str, Any, str, Any]]


def _deepspeed(case: Case, said: Mapping[str, Any]) -> Compared:
    """(key in the file, its value, our setting, our value)"""
    args, run = case.run.trainer.args, case.run
    micro, steps = _arg(args, "per_device_train_batch_size"), _arg(args, "gradient_accumulation_steps")
    if isinstance(micro, int) and isinstance(steps, int):
        formula = f"per_device {micro} x accumulation {steps} x {world_size(run)} processes"
        yield "train_batch_size", said.get("train_batch_size"), formula, micro * steps * world_size(run)
    yield (
        "train_micro_batch_size_per_gpu",
        said.get("train_micro_batch_size_per_gpu"),
        _of("per_device_train_batch_size"),
        micro,
    )
    yield (
        "gradient_accumulation_steps",
        said.get("gradient_accumulation_steps"),
        _of("gradient_accumulation_steps"),
        steps,
    )
    if run.launcher.zero_stage is not None and run.launcher.kind == "deepspeed":
        stage = _inner(said, "zero_optimization", "stage")
        yield "zero_optimization.stage", stage, "launcher.zero_stage", run.launcher.zero_stage
    for key in ("bf16", "fp16"):
        if key in args:
            yield f"{key}.enabled", _inner(said, key, "enabled"), _of(key), args[key]
    if "max_grad_norm" in args:
        yield "gradient_clipping", said.get("gradient_clipping"), _of("max_grad_norm"), args["max_grad_norm"]
    if "learning_rate" in args:
        rate = _inner(said, "optimizer", "params", "lr")
        yield "optimizer.params.lr", rate, _of("learning_rate"), args["learning_rate"]


def _accelerate(case: Case, said: Mapping[str, Any]) -> Compared:
    args, launcher = case.run.trainer.args, case.run.launcher
    if str(said.get("distributed_type", "")).upper() != "NO":
        yield "num_processes", said.get("num_processes"), "launcher.num_processes x num_machines", world_size(case.run)
        yield "num_machines", said.get("num_machines"), "launcher.num_machines", launcher.num_machines
    if "bf16" in args or "fp16" in args:
        meant = "bf16" if args.get("bf16") is True else "fp16" if args.get("fp16") is True else "no"
        given = said.get("mixed_precision")
        yield "mixed_precision", "no" if given is False else given, "trainer.args.bf16 and fp16", meant
    if launcher.zero_stage is not None:
        stage = _inner(said, "deepspeed_config", "zero_stage")
        yield "deepspeed_config.zero_stage", stage, "launcher.zero_stage", launcher.zero_stage
    steps = _inner(said, "deepspeed_config", "gradient_accumulation_steps")
    yield (
        "deepspeed_config.gradient_accumulation_steps",
        steps,
        _of("gradient_accumulation_steps"),
        _arg(args, "gradient_accumulation_steps"),
    )


def _of(key: str) -> str:
    return f"trainer.args.{key}"


def _arg(args: Mapping[str, Any], key: str) -> Any:
    return DEFAULTS.get(key) if args.get(key) is None else args[key]


def _inner(said: Mapping[str, Any], *keys: str) -> Any:
    node: Any = said
    for key in keys:
        node = node.get(key) if isinstance(node, Mapping) else None
    return node
