"""What the generation server says, against what the recipe means."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from orchestrator.facts import Facts, ModelFacts
from orchestrator.generation.client import GenerationClient, GenerationError
from orchestrator.generation.transport import Transport
from orchestrator.schema import RunConfig
from orchestrator.supervise.handshake import engine, text
from orchestrator.supervise.handshake.identity import no_answer, who_answers
from orchestrator.supervise.handshake.interview import Interview
from orchestrator.supervise.handshake.served import compare_model

QUESTION_TIMEOUT_S = 20.0
SCORED_IDS = (0, 1)
"""A sequence that any model can score."""

Value = TypeVar("Value")


def ask_generation(talk: Interview, run: RunConfig, facts: Facts) -> None:
    """Every question, in an order that lets the first failure explain the others. Stops where nobody answers."""
    client = GenerationClient(run.generation.url, model=run.generation.model, timeout_s=QUESTION_TIMEOUT_S)
    http = Transport(run.generation.url, QUESTION_TIMEOUT_S, None)
    try:
        served = _served(talk, client)
        if served is None:
            return
        # Under a name that it serves, so that a wrong name does not hide what else differs.
        client.model = compare_model(talk, run, facts, served)
        engine.compare_version(talk, run, facts, asked(talk, "engine version", client.version))
        config = _config(talk, client)
        if config is not None:
            _settings(talk, run, config)
            engine.compare_transfer(talk, run, config, http)
            _world_size(talk, run, client)
        talk.asking = "vocabulary"
        _vocabulary(talk, run, facts, engine.vocabulary(client.model, config, http))
        text.compare_tokens(talk, run, facts, client)
        _scores(talk, client)
    except GenerationError as error:
        talk.fail("answers", f"{no_answer(str(error), talk.url)}, asked for {talk.asking}.", fix=_who_mends(talk))
    finally:
        client.close()
        http.close()


def asked(talk: Interview, what: str, question: Callable[[], Value]) -> Value | None:
    """The answer; None, and a fact less, where the server refuses the question. Raises where it does not answer."""
    talk.asking = what
    try:
        return question()
    except GenerationError as error:
        if error.status is None:
            raise
        talk.skip(what, f"the server does not say: {error}")
        return None


def _served(talk: Interview, client: GenerationClient) -> list[dict[str, Any]] | None:
    """The served models; None where this is no generation server."""
    talk.asking = "served model"
    try:
        return client.models()
    except GenerationError as error:
        if error.status is None:
            talk.fail("server", f"{no_answer(error.message, talk.url)}.", fix=_who_mends(talk))
        elif error.status in (401, 403):
            talk.fail(
                "server",
                f"{talk.url} asks for an API key ({error.status} on /v1/models).",
                said=error.status,
                why="The trainer sends none.",
                fix="start it without --api-key, on an address that only this run can reach",
            )
        else:
            talk.fail(
                "server",
                f"what answers at {talk.url} is {who_answers(talk.url)}.",
                said=str(error),
                why="It has no /v1/models, which every server that the trainer can use has.",
                fix="let generation.url name vLLM's own server (vllm serve) or the embedded one",
            )
        return None


def _who_mends(talk: Interview) -> str:
    if talk.started:
        return "look at its log"
    return (
        "start it first: with generation.kind=external somebody else runs the server and the run only asks it; "
        "or let the run start one: generation=embedded (or generation=vllm)"
    )


def _config(talk: Interview, client: GenerationClient) -> dict[str, Any] | None:
    """The server's configuration tree; None where it keeps it to itself, as vLLM does without its dev mode."""
    talk.asking = "server_info"
    try:
        return client.server_info()
    except GenerationError as error:
        if error.status is None:
            raise
        missing = error.status == 404
        talk.fail(
            "development endpoints",
            f"{who_answers(talk.url)} at {talk.url} has no /server_info (404)." if missing else f"{error}.",
            said=str(error),
            why="So it has no /update_weights either: it would sample from the weights that it started with."
            if missing
            else "What it runs with cannot be compared.",
            fix="VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --weight-transfer-config '{\"backend\": ...}' "
            "--logprobs-mode processed_logprobs (vLLM 0.22 or newer)",
        )
        return None


def _settings(talk: Interview, run: RunConfig, config: Mapping[str, Any]) -> None:
    model, dtype = config.get("model_config"), run.generation.dtype
    if not isinstance(model, Mapping):
        talk.skip("dtype", f"/server_info has no model_config, only {', '.join(sorted(config))}", meant=dtype)
        talk.skip("logprobs mode", "/server_info has no model_config", meant="processed_logprobs")
        return
    said = str(model.get("dtype")).removeprefix("torch.")
    talk.compare(
        "dtype",
        dtype,
        said,
        why="Its log-probs differ from the trainer's by rounding, and weights are converted on the way.",
        fix=talk.either(f"--dtype {dtype}", f"generation.dtype={said}"),
    )
    talk.compare(
        "logprobs mode",
        "processed_logprobs",
        model.get("logprobs_mode"),
        why="Log-probs must be those of the distribution that was sampled from, temperature included.",
        fix="restart it with --logprobs-mode processed_logprobs",
    )


def _world_size(talk: Interview, run: RunConfig, client: GenerationClient) -> None:
    generation = run.generation
    meant = generation.tensor_parallel_size * generation.data_parallel_size
    said = asked(talk, "world size", client.world_size)
    if said is None:
        return
    talk.compare(
        "world size",
        meant,
        said,
        why="The weights are sent to that many workers: one more, and the transfer waits for ever; one less, and a "
        "worker keeps old weights.",
        fix=talk.either(
            f"--tensor-parallel-size {generation.tensor_parallel_size} "
            f"--data-parallel-size {generation.data_parallel_size}",
            f"generation.tensor_parallel_size={said}",
        ),
    )


def _vocabulary(talk: Interview, run: RunConfig, facts: Facts, said: int | None) -> None:
    known = facts.models.get(run.model.name)
    if not isinstance(known, ModelFacts) or said is None:
        reason = "the server does not say" if said is None else f"the model's is not known here: {known}"
        talk.skip("vocabulary", reason, said=said)
        return
    tokens = (known.num_tokens or 0) + len(run.model.add_tokens)
    talk.compare(
        "vocabulary",
        max(known.vocab_size, tokens) if run.model.add_tokens else known.vocab_size,
        said,
        why="Embedding rows of the two models: weights of another shape do not fit.",
        fix="serve the files that the trainer loads"
        + (", with the added tokens and the resized embedding saved in them" if run.model.add_tokens else "")
        + f" ({run.model.name})",
    )


def _scores(talk: Interview, client: GenerationClient) -> None:
    """/health answers while an engine hangs: one short sequence goes all the way through the model."""
    talk.asking = "the log-probs of a short sequence"
    try:
        client.score([SCORED_IDS])
    except GenerationError as error:
        silent = error.status is None
        talk.fail(
            "scores a sequence",
            f"{talk.url} answers questions, but not a request for log-probs: {error}.",
            said="no answer" if silent else str(error),
            why="Its engine hangs or is paused." if silent else "The weight sync is proven by such requests.",
            fix="restart it; its log says what it waits for" if silent else "look at its log",
        )
        return
    talk.compare("scores a sequence", True, True, why="Liveness alone proves nothing.", fix="look at its log")
