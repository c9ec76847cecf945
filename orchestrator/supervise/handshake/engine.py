"""The engine behind a generation server: what it is, how it takes weights, how many tokens it knows."""

import re
from collections.abc import Mapping
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from orchestrator.facts import Facts
from orchestrator.generation import EMBEDDED
from orchestrator.generation.client import GenerationError
from orchestrator.generation.transport import Transport
from orchestrator.schema import RunConfig
from orchestrator.supervise.handshake.interview import Interview

UPDATE_ROUTES = (
    "/get_world_size",
    "/init_weight_transfer_engine",
    "/start_weight_update",
    "/update_weights",
    "/finish_weight_update",
)
NO_TOKEN = 2**31 - 1
"""An id that no vocabulary has."""


def compare_version(talk: Interview, run: RunConfig, facts: Facts, said: Mapping[str, Any] | None) -> None:
    """Which engine in which version. With NCCL it is TRL's client that speaks to it, and vLLM's code on both ends."""
    if said is None:
        return
    version, name = str(said.get("version")), said.get("engine", "vllm")
    if talk.kind in ("embedded", "vllm"):
        meant = EMBEDDED if talk.kind == "embedded" else "vllm"
        talk.compare("engine", meant, name, why="Another server answers.", fix="look at its log")
    else:
        talk.skip("engine", "the recipe does not say which it is", said=name)
    if name == EMBEDDED or run.generation.weight_sync.backend != "nccl":
        talk.skip("engine version", "recorded only: what the trainer needs of it is asked for by itself", said=version)
        return
    _compare_with_trainer(talk, facts, version)


def _compare_with_trainer(talk: Interview, facts: Facts, version: str) -> None:
    ours, range_ = facts.versions.get("vllm"), facts.requirements.get("vllm")
    if ours is None:
        talk.skip("vllm of the trainer", "vllm is not installed in the trainer's interpreter", said=version)
    else:
        talk.compare(
            "vllm of the trainer",
            _release(ours),
            _release(version),
            why="Both ends of the NCCL group are vLLM's code, and TRL chooses its protocol by the trainer's version.",
            fix=f"pip install vllm=={_release(version)} in the trainer's interpreter, or {_release(ours)} in the "
            "server's",
        )
    if range_ is None:
        talk.skip("engine version", "the installed TRL names no range of vLLM versions", said=version)
        return
    talk.compare(
        "engine version",
        f"vllm {range_}",
        version,
        agrees=_allows(range_, version),
        stops=False,
        why=f"trl {facts.versions.get('trl', '')} was tried with that range only.",
        fix=f"pip install 'vllm{range_}' in the server's interpreter",
    )


def compare_transfer(talk: Interview, run: RunConfig, config: Mapping[str, Any], http: Transport) -> None:
    """Whether it takes weights, and by which way."""
    backend = run.generation.weight_sync.backend
    settings = config.get("weight_transfer_config", {})
    said = settings.get("backend") if isinstance(settings, Mapping) else None
    talk.compare(
        "weight transfer",
        backend,
        said,
        why="It was started without a weight-transfer engine: it would never take the trained weights."
        if said is None
        else "The two ends would wait for each other on different ways.",
        fix=talk.either(
            f'--weight-transfer-config \'{{"backend": "{backend}"}}\' (the embedded server: --weights-dir FOLDER)',
            f"generation.weight_sync.backend={said or '(what it was started with)'}",
        ),
    )
    talk.asking = "weight routes"
    missing = [path for path in UPDATE_ROUTES if not _has_route(http, path)]
    # TRL names no version when it finishes an update; our sync proves each one by it.
    if backend == "safetensors" and not _reads(http, "/weight_info"):
        missing.append("/weight_info")
    talk.compare(
        "weight routes",
        [],
        missing,
        sentence=f"{talk.url} has no {', '.join(missing)} (404)." if missing else "",
        why="Weights cannot be sent, or cannot be proven to have arrived.",
        fix="use vLLM 0.22 or newer with TRL's client (backend nccl), 0.32 or newer with backend safetensors; "
        "TRL up to 1.10 needs its own `trl vllm-serve` instead of vLLM's server",
    )


def vocabulary(model: str | None, config: Mapping[str, Any] | None, http: Transport) -> int | None:
    """Rows of the served model's embedding; None where the server does not tell.

    vLLM's /server_info leaves the model's own config out, but its refusal of an unknown token names the number.
    """
    settings = (config or {}).get("model_config") or {}
    for where in (settings, settings.get("hf_text_config"), settings.get("hf_config")):
        if isinstance(where, Mapping) and isinstance(where.get("vocab_size"), int):
            return int(where["vocab_size"])
    body = {"model": model, "prompt": [0], "max_tokens": 1, "logit_bias": {str(NO_TOKEN): 0.0}}
    try:
        http.post("/v1/completions", body, repeatable=True)
    except GenerationError as error:
        if error.status is None:
            raise
        named = re.search(r"Vocabulary size: (\d+)", error.message)
        return int(named[1]) if named else None
    return None


def _has_route(http: Transport, path: str) -> bool:
    """A GET on a path that only takes POST is answered with 405 and does nothing; one that is not there with 404."""
    try:
        http.get(path)
    except GenerationError as error:
        if error.status is None:
            raise
        return error.status != 404
    return True


def _reads(http: Transport, path: str) -> bool:
    try:
        return http.get(path) is not None
    except GenerationError as error:
        if error.status is None:
            raise
        return False


def _release(version: str) -> str:
    """Without its local part: 0.31.0 of 0.31.0+cpu."""
    try:
        return Version(version).base_version
    except InvalidVersion:
        return version


def _allows(specifier: str, version: str) -> bool:
    try:
        return SpecifierSet(specifier).contains(_release(version), prereleases=True)
    except (InvalidSpecifier, InvalidVersion):
        return False
