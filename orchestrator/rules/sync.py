"""SYN and VER: how weights travel, and which versions are known to work together."""

from collections.abc import Iterator

from packaging.version import InvalidVersion, Version

from orchestrator.findings import Finding, skipped
from orchestrator.rules.case import Case

TESTED = {"trl": ("1.16", "1.17"), "transformers": ("5.0", "5.20")}
"""Package -> first version that is tested, first one that is not."""


def vllm_settings_ignored(case: Case) -> Iterator[Finding]:
    """TRL's own vLLM settings are not mixed with our rollouts.

    ## What it checks
    `trainer.args.use_vllm` (an error) and other `vllm_*` fields (a warning) beside a generation kind that generates
    through our client.
    ## Why it matters
    With `use_vllm` TRL opens a vLLM client of its own; the other fields change nothing without it, importance-sampling
    correction included.
    ## Bad
        trainer.args.use_vllm=true
        trainer.args.vllm_importance_sampling_correction=true
    ## Good
        trainer.args.use_vllm=false
    """
    args, kind = case.run.trainer.args, case.run.generation.kind
    if args.get("use_vllm") is True:
        yield Finding(
            values={"trainer.args.use_vllm": True, "generation.kind": kind},
            problem=f"use_vllm makes TRL connect to a vLLM server; generation.kind = {kind} is none that it can use",
            why="TRL would wait for a server of another protocol.",
            fix="remove trainer.args.use_vllm: completions come from the generation service of the recipe",
        )
    for key in sorted(key for key in args if key.startswith("vllm_") and args[key] is not None):
        yield Finding(
            severity="warning",
            values={f"trainer.args.{key}": args[key], "generation.kind": kind},
            problem=f"trainer.args.{key} changes nothing with generation.kind = {kind}",
            why="TRL reads it only with use_vllm=true.",
            fix=f"remove trainer.args.{key}; generation.* describes the server",
        )


def generation_fields_ignored(case: Case) -> Iterator[Finding]:
    """Sampling settings are ones that our client sends.

    ## What it checks
    `generation_kwargs`, `cache_implementation`, `use_transformers_continuous_batching` and chat-template arguments,
    which only TRL's own in-process generation reads.
    ## Why it matters
    Completions would be sampled without them.
    ## Bad
        'trainer.args.generation_kwargs={typical_p: 0.9}'
        trainer.args.cache_implementation=static
    ## Good
        trainer.args.top_p=0.9
    """
    for key in (
        "generation_kwargs",
        "cache_implementation",
        "use_transformers_continuous_batching",
        "use_transformers_paged",
    ):
        value = case.run.trainer.args.get(key)
        if value:
            yield Finding(
                values={f"trainer.args.{key}": value, "generation.kind": case.run.generation.kind},
                problem=f"trainer.args.{key} is read only by generation inside the trainer",
                why="Completions come from the generation server, which would not be told.",
                fix=f"remove trainer.args.{key}; temperature, top_p, top_k, min_p and repetition_penalty are sent",
            )


def untested_version(case: Case) -> Iterator[Finding]:
    """Installed versions are ones that were tried together.

    ## What it checks
    TRL and transformers against the range that this version of orchestrate is tested with.
    ## Why it matters
    TRL renames fields and changes its rollout interface between minor versions. A warning: most changes are harmless.
    ## Bad
        facts: {"versions": {"trl": "1.20.0", "transformers": "5.19.0"}}
    ## Good
        facts: {"versions": {"trl": "1.16.3", "transformers": "5.19.0"}}
    """
    for package, (first, beyond) in TESTED.items():
        installed = case.facts.versions.get(package)
        if installed is None:
            yield skipped(f"{package} is not installed here", f"install it: pip install {package}")
            continue
        try:
            fine = Version(first) <= Version(installed) < Version(beyond)
        except InvalidVersion:
            fine = False
        if not fine:
            yield Finding(
                severity="warning",
                values={package: installed},
                problem=f"{package} {installed} is outside what was tested: {first} up to, not including, {beyond}",
                why="Field names and the rollout interface change between versions.",
                fix=f"pip install '{package}>={first},<{beyond}'",
            )
