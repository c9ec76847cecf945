"""VER: which versions are known to work together."""

from collections.abc import Iterator, Mapping

from packaging.requirements import InvalidRequirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from orchestrator.facts import ModelFacts
from orchestrator.findings import Finding, skipped
from orchestrator.kinds import generation_kind, through_our_client
from orchestrator.rules.case import Case

TESTED = {"trl": ("1.16", "1.17"), "transformers": ("5.0", "5.20")}
"""Package -> first version that is tested, first one that is not."""

FILES_SINCE = Version("0.32")
"""vLLM whose transfer engines our plugin is written for."""
PLAIN_SERVER = Version("1.11")
"""TRL speaks to vLLM's own server; up to 1.10 only to `trl vllm-serve`, which ran vLLM's offline LLM class."""


def version_of(versions: Mapping[str, str] | str, package: str) -> Version | None:
    """The release of an installed package without its local part; None where it is not installed or not a version."""
    text = None if isinstance(versions, str) else versions.get(package)
    try:
        return None if text is None else Version(Version(text).base_version)
    except InvalidVersion:
        return None


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
    if case.run.trainer.kind == "command":
        return  # it brings its own libraries
    for package, (first, beyond) in TESTED.items():
        installed = case.facts.versions.get(package)
        if installed is None:
            yield skipped(f"{package} is not installed here", f"install it: pip install {package}")
            continue
        release = version_of(case.facts.versions, package)
        if release is None or not Version(first) <= release < Version(beyond):
            yield Finding(
                severity="warning",
                values={package: installed},
                problem=f"{package} {installed} is outside what was tested: {first} up to, not including, {beyond}",
                why="Field names and the rollout interface change between versions.",
                fix=f"pip install '{package}>={first},<{beyond}'",
            )


def unsupported_pairing(case: Case) -> Iterator[Finding]:
    """Packages are of versions that the installed TRL says it works with.

    ## What it checks
    The requirements in TRL's own package metadata (vLLM, transformers, accelerate, peft, deepspeed) against what is
    installed: transformers and accelerate in the trainer's interpreter (an error), vLLM in the interpreter of the
    generation service (a warning: TRL itself only warns) where TRL's own client speaks to it.
    ## Why it matters
    A client and a server of two protocols meet as 404 answers, or as weights that never arrive.
    ## Bad
        generation=vllm_nccl
        facts: {"requirements": {"vllm": ">=0.22.0,<=0.31.0"}, "generation_versions": {"vllm": "0.33.0"}}
    ## Good
        generation=vllm_nccl
        facts: {"requirements": {"vllm": ">=0.22.0,<=0.31.0"}, "generation_versions": {"vllm": "0.31.0"}}
    """
    if case.run.trainer.kind == "command":
        return
    engine = generation_kind(case.run.generation).vllm and not through_our_client(case.run)
    homes: dict[str, Mapping[str, str] | str] = dict.fromkeys(case.facts.requirements, case.facts.versions)
    homes["vllm"] = case.facts.generation_versions if engine else {}
    for package, specifier in case.facts.requirements.items():
        installed = version_of(homes[package], package)
        if installed is None or _allows(specifier, installed):
            continue
        trl = case.facts.versions.get("trl", "")
        yield Finding(
            severity="warning" if package == "vllm" else "error",
            values={package: str(installed), "trl": trl},
            problem=f"{package} {installed} is not among what trl {trl} works with: {specifier}",
            why="Two protocols would meet: requests answered with 404, or weights that never arrive."
            if package == "vllm"
            else "TRL imports names that this version does not have, or lost.",
            fix=f"pip install '{package}{specifier}' in the interpreter of "
            + ("the generation service" if package == "vllm" else "the trainer"),
        )


def _allows(specifier: str, version: Version) -> bool:
    try:
        return SpecifierSet(specifier).contains(version, prereleases=True)
    except (InvalidSpecifier, InvalidRequirement):
        return True


def files_need_newer_vllm(case: Case) -> Iterator[Finding]:
    """The server's vLLM takes weights from files.

    ## What it checks
    With `generation.kind=vllm` and `weight_sync.backend=safetensors`: vLLM 0.32 or newer in `generation.python`'s
    interpreter.
    ## Why it matters
    Our plugin is written for the transfer engines of 0.32, and the proof of a sync asks for /weight_info, which came
    with it.
    ## Bad
        generation=vllm
        facts: {"generation_versions": {"vllm": "0.31.0"}}
    ## Good
        generation=vllm
        facts: {"generation_versions": {"vllm": "0.32.0"}}
        generation=vllm_nccl
        facts: {"generation_versions": {"vllm": "0.31.0"}}
    """
    generation = case.run.generation
    installed = version_of(case.facts.generation_versions, "vllm")
    if generation.kind != "vllm" or generation.weight_sync.backend != "safetensors" or installed is None:
        return
    if installed < FILES_SINCE:
        yield Finding(
            values={"vllm": str(installed), "generation.weight_sync.backend": "safetensors"},
            problem=f"vllm {installed} cannot take weights from files: that needs {FILES_SINCE} or newer",
            why="The server would start, and be refused by the handshake.",
            fix=f"pip install 'vllm>={FILES_SINCE}' in the interpreter of the generation service, or between GPUs "
            "generation.weight_sync.backend=nccl",
        )


def server_kind_unfit(case: Case) -> Iterator[Finding]:
    """The installed TRL speaks the protocol of the server that the recipe starts.

    ## What it checks
    With `generation.kind=vllm` (vLLM's own server) and TRL's client: TRL 1.11 or newer. Older ones need
    `trl vllm-serve`, whose routes (/get_world_size, /init_communicator) a plain server does not have.
    ## Why it matters
    The client gets 404 on /get_world_size, after the server has loaded its model.
    ## Bad
        generation=vllm
        facts: {"versions": {"trl": "0.19.1", "transformers": "4.53.0"}}
    ## Good
        generation=vllm
        facts: {"versions": {"trl": "1.16.0", "transformers": "5.19.0"}}
    """
    trl = version_of(case.facts.versions, "trl")
    if case.run.generation.kind != "vllm" or case.run.trainer.kind == "command" or trl is None:
        return
    if trl < PLAIN_SERVER:
        yield Finding(
            values={"generation.kind": "vllm", "trl": str(trl)},
            problem=f"trl {trl} cannot talk to vLLM's own server; that came with trl {PLAIN_SERVER}",
            why="Its client asks for /get_world_size, which a plain `vllm serve` answers with 404.",
            fix=f"pip install 'trl>={PLAIN_SERVER}' in the trainer's interpreter",
        )


def dense_data_parallel(case: Case) -> Iterator[Finding]:
    """Data parallel engines are of a kind that vLLM builds.

    ## What it checks
    `generation.data_parallel_size > 1` with a dense model, where vLLM 0.14 or newer runs through its offline class:
    colocated, or behind the `trl vllm-serve` of TRL before 1.11. vLLM's own server serves dense replicas.
    ## Why it matters
    vLLM refuses it when the engine is built (vllm-project/vllm pull request 30739).
    ## Bad
        generation=vllm generation.data_parallel_size=2
        facts: {"versions": {"trl": "0.28.0"}, "generation_versions": {"vllm": "0.14.0"}}
    ## Good
        generation=vllm generation.data_parallel_size=2
        facts: {"versions": {"trl": "1.16.0"}, "generation_versions": {"vllm": "0.22.0"}}
    """
    run = case.run
    vllm, trl = version_of(case.facts.generation_versions, "vllm"), version_of(case.facts.versions, "trl")
    offline = run.generation.kind == "colocate" or (
        run.generation.kind == "vllm" and trl is not None and trl < PLAIN_SERVER
    )
    model = case.facts.models.get(run.generation.model)
    dense = isinstance(model, ModelFacts) and not model.num_experts
    if run.generation.data_parallel_size > 1 and offline and dense and vllm is not None and vllm >= Version("0.14"):
        yield Finding(
            values={"generation.data_parallel_size": run.generation.data_parallel_size, "vllm": str(vllm)},
            problem=f"vllm {vllm} refuses offline data parallel {run.generation.data_parallel_size} for a dense model",
            why="The engine fails when it is built, after the others have loaded.",
            fix="use trl>=1.11 (vLLM's own server), more tensor parallel, or replicas",
        )


def engine_without_gpu_support(case: Case) -> Iterator[Finding]:
    """The vLLM version has an engine for this GPU that can take weights.

    ## What it checks
    vLLM before 0.11 on a GPU below compute capability 8.0: it falls back to the V0 engine.
    ## Why it matters
    The V0 engine does not implement the collective call that updates weights: NotImplementedError at the first sync.
    ## Bad
        generation=vllm
        facts: {"generation_versions": {"vllm": "0.8.5"}, "gpus": [{"index": 0, "name": "V100", "capability": 7.0}]}
    ## Good
        generation=vllm
        facts: {"generation_versions": {"vllm": "0.8.5"}, "gpus": [{"index": 0, "name": "A100", "capability": 8.0}]}
    """
    vllm = version_of(case.facts.generation_versions, "vllm")
    if vllm is None or vllm >= Version("0.11") or isinstance(case.facts.gpus, str):
        return
    if not generation_kind(case.run.generation).vllm:
        return
    for gpu in case.facts.gpus:
        if gpu.capability is not None and gpu.capability < 8.0:
            yield Finding(
                values={"vllm": str(vllm), gpu.name: f"compute capability {gpu.capability}"},
                problem=f"vllm {vllm} runs its old engine (V0) on {gpu.name}, which cannot take new weights",
                why="The first weight sync ends with NotImplementedError.",
                fix="take a GPU of compute capability 8.0 (A100) or newer, or a newer vllm",
            )
            return


def different_vllm(case: Case) -> Iterator[Finding]:
    """With NCCL, trainer and server have the same vLLM.

    ## What it checks
    vLLM in the trainer's interpreter against vLLM in `generation.python`'s, where weights travel by NCCL through TRL's
    client (which imports vLLM's communicator): an error where the trainer has none, a warning where they differ.
    ## Why it matters
    Without vLLM the client cannot open the group; with another version the two ends of the group may not understand
    each other, and the run hangs at the first sync.
    ## Bad
        generation=vllm_nccl
        facts: {"versions": {"trl": "1.16.0", "vllm": "0.30.0"}, "generation_versions": {"vllm": "0.31.0"}}
        generation=vllm_nccl
        facts: {"versions": {"trl": "1.16.0"}, "generation_versions": {"vllm": "0.31.0"}}
    ## Good
        generation=vllm_nccl
        facts: {"versions": {"trl": "1.16.0", "vllm": "0.31.0"}, "generation_versions": {"vllm": "0.31.0"}}
    """
    generation = case.run.generation
    if generation.kind != "vllm" or generation.weight_sync.backend != "nccl" or case.run.trainer.kind == "command":
        return
    if isinstance(case.facts.generation_versions, str) or not case.facts.versions:
        yield skipped(
            f"the server's vLLM is not known: {case.facts.generation_versions}",
            "check where generation.python is installed",
        )
        return
    ours, theirs = (version_of(known, "vllm") for known in (case.facts.versions, case.facts.generation_versions))
    if theirs is not None and ours != theirs:  # VER010 says that the server has none
        shown = [str(v) if v is not None else "not installed" for v in (ours, theirs)]
        yield Finding(
            severity="error" if ours is None else "warning",
            values={"vllm of the trainer": shown[0], "vllm of generation.python": shown[1]},
            problem=f"vLLM is {shown[0]} in the trainer's interpreter and {shown[1]} in the server's",
            why="Both ends of the NCCL group are vLLM's code: the run may hang or fail at the first sync.",
            fix=f"pip install vllm=={theirs} in both",
        )


TRACKERS = ("wandb", "tensorboard", "trackio", "mlflow", "swanlab")
"""Words of TrainingArguments' `report_to` that are the name of a package."""


def tracker_not_installed(case: Case) -> Iterator[Finding]:
    """What `report_to` names is installed.

    ## What it checks
    `trainer.args.report_to` (wandb, tensorboard, trackio, mlflow, swanlab) against the packages of the trainer's
    interpreter.
    ## Why it matters
    transformers refuses it when the trainer is built, after the services have started.
    ## Bad
        trainer.args.report_to=wandb
        facts: {"versions": {"trl": "1.16.0"}}
    ## Good
        trainer.args.report_to=wandb
        facts: {"versions": {"trl": "1.16.0", "wandb": "0.20.0"}}
    """
    asked = case.run.trainer.args.get("report_to")
    for name in asked if isinstance(asked, list) else [asked]:
        if name in TRACKERS and name not in case.facts.versions and case.run.trainer.kind != "command":
            yield Finding(
                values={"trainer.args.report_to": asked},
                problem=f"trainer.args.report_to names {name}, which is not installed here",
                why="The trainer could not be built.",
                fix=f"pip install {name}, or set trainer.args.report_to=none",
            )
