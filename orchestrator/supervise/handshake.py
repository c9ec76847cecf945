"""What the services say about themselves against what the recipe means, before any training step.

Each comparison is a Fact: what was meant, what was said, by whom. All are recorded in handshake.json; if any
differs, the run ends before the trainer starts.
"""

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from orchestrator.facts import ModelFacts, model_facts
from orchestrator.generation.client import GenerationClient, GenerationError
from orchestrator.paths import RunPaths
from orchestrator.schema import RunConfig
from orchestrator.supervise.record import read_record
from orchestrator.supervise.rundir import write_json
from rewards.client import RewardClient, RewardError
from rewards.loading import LoadError
from rewards.signature import read_signature

TOKENIZER_PROBE = "12+7=19 The quick brown fox; \\boxed{x_1} <answer>é</answer>\n"
"""Digits, words, LaTeX, tags, a letter beyond ASCII, a newline: tokenizers that agree here agree on most text."""
QUESTION_TIMEOUT_S = 20.0
REWARD_PROCESS = "reward: process"
STALE = "The process that answers is not the one that was started: a stale server of another run?"


@dataclass(frozen=True, kw_only=True)
class Fact:
    """One thing that both sides must agree on."""

    name: str
    meant: Any
    said: Any
    by: str
    """Who said it: the address."""
    why: str

    @property
    def agrees(self) -> bool:
        return bool(self.meant == self.said)


def handshake(run: RunConfig, run_dir: Path) -> str | None:
    """Ask every service, write handshake.json; the text of what disagrees, or None when all is well."""
    facts: list[Fact] = []
    problems: list[str] = []
    record = read_record(run_dir)
    pids = {process.name: process.pid for process in record.processes} if record else {}
    for ask in (_ask_reward, _ask_generation):
        try:
            facts.extend(ask(run, pids))
        except (GenerationError, RewardError) as error:
            problems.append(str(error))
    write_json(
        RunPaths(run_dir=run_dir).handshake,
        {"problems": problems, "facts": [asdict(f) | {"agrees": f.agrees} for f in facts]},
    )
    problems += [
        f"{fact.name}: the recipe means {fact.meant!r}, {fact.by} says {fact.said!r}. {fact.why}"
        for fact in facts
        if not fact.agrees
    ]
    return "\n".join(problems) or None


def _ask_generation(run: RunConfig, pids: Mapping[str, int]) -> Iterator[Fact]:
    generation = run.generation
    client = GenerationClient(generation.url, model=generation.model, timeout_s=QUESTION_TIMEOUT_S)
    compare = _comparer(generation.url)
    served = client.models()
    yield compare(
        "generation: served model",
        generation.model,
        _among(generation.model, [m["id"] for m in served]),
        "It would sample from another policy.",
    )
    room = next((m.get("max_model_len") for m in served if m["id"] == generation.model), None)
    yield compare(
        "generation: max_model_len",
        generation.max_model_len,
        room,
        "Prompts or completions that the limits allow would be refused.",
    )
    config = client.server_info()["model_config"]
    yield compare(
        "generation: dtype",
        generation.dtype,
        str(config["dtype"]).removeprefix("torch."),
        "Log-probs would differ by rounding.",
    )
    yield compare(
        "generation: logprobs mode",
        "processed_logprobs",
        config.get("logprobs_mode"),
        "Log-probs must be those of the distribution that was sampled from.",
    )
    yield compare("generation: world size", 1, client.world_size(), "Weights are sent to one worker.")
    known = model_facts(run.model.name, run.model.revision)
    if isinstance(known, ModelFacts):
        yield compare(
            "generation: vocabulary", known.vocab_size, _vocab_size(config), "Weights of another shape do not fit."
        )
        yield compare(
            "generation: tokenizer (a probe text)",
            _tokenize(known.path),
            client.tokenize(TOKENIZER_PROBE, add_special_tokens=False),
            "The same text would be other tokens.",
        )
    client.close()


def _vocab_size(config: dict[str, Any]) -> Any:
    return config.get("vocab_size", (config.get("hf_config") or {}).get("vocab_size"))


def _tokenize(folder: str) -> list[int]:
    tokenizer = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
    ids: list[int] = tokenizer.encode(TOKENIZER_PROBE, add_special_tokens=False).ids
    return ids


def _ask_reward(run: RunConfig, pids: Mapping[str, int]) -> Iterator[Fact]:
    reward = run.reward
    if reward.kind == "inprocess":
        return
    token = os.environ.get(reward.token_env) if reward.token_env else None
    client = RewardClient(reward.url, token=token, timeout_s=QUESTION_TIMEOUT_S)
    compare = _comparer(reward.url)
    said = client.info()
    functions = {f["name"]: f for f in said["functions"]}
    names = [f.name for f in reward.functions]
    if reward.kind == "local":
        yield compare(REWARD_PROCESS, pids.get("reward"), said.get("pid"), STALE)
    yield compare(
        "reward: functions", sorted(names), sorted(functions), "Rewards of other functions would be trained on."
    )
    yield compare(
        "reward: on_error",
        reward.on_error,
        said.get("on_error"),
        "Errors would end the run, or not, against the recipe.",
    )
    for function in reward.functions:
        answer = functions.get(function.name)
        if answer is None:
            continue
        yield compare(
            f"reward: {function.name}: weight",
            function.weight,
            answer.get("weight"),
            "The totals would differ from the trainer's.",
        )
        if reward.kind == "local":
            yield compare(
                f"reward: {function.name}: source",
                _source_hash(function.target),
                answer.get("source_sha256"),
                "It runs other code than this file.",
            )
        test = answer.get("self_test") or {}
        yield compare(
            f"reward: {function.name}: self-test failed",
            False,
            test.get("passed") is False,
            str(test.get("detail", "")),
        )
    # Liveness is not enough: a wedged scorer answers /health and hangs on work. An empty batch goes all the way.
    yield compare(
        "reward: scores an empty batch",
        [],
        client.score([], [], _no_rows(functions), group_ids=[]).rewards,
        "It does not score.",
    )


def _no_rows(functions: Mapping[str, dict[str, Any]]) -> dict[str, list[Any]]:
    return {column: [] for function in functions.values() for column in function.get("required_columns", [])}


def _source_hash(target: str) -> str | None:
    try:
        path = read_signature(target).path
    except LoadError as error:
        return str(error)
    return None if path is None else hashlib.sha256(path.read_bytes()).hexdigest()


def _among(wanted: str, offered: list[str]) -> Any:
    return wanted if wanted in offered else offered


def _comparer(by: str) -> Callable[[str, Any, Any, str], Fact]:
    return lambda name, meant, said, why: Fact(name=name, meant=meant, said=said, by=by, why=why)
