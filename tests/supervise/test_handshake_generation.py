"""Generation servers that say something else than the recipe means, each a real process.

What answers like vLLM is tests/supervise/programs/vllm_shaped.py; the embedded server is the real one.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from talking import (
    MODEL,
    ROOM,
    differing,
    embedded,
    facts_of,
    odd_server,
    recipe,
    record_child,
    shake,
    skipped,
    vllm_shaped,
)

from orchestrator.facts import model_facts
from orchestrator.schema import WeightSyncConfig
from orchestrator.supervise.handshake import handshake
from orchestrator.supervise.leases import lease_ports

EVERY_FACT = [
    "generation: chat template (a probe message)", "generation: dtype", "generation: logprobs mode",
    "generation: max_model_len", "generation: model files", "generation: scores a sequence",
    "generation: served model", "generation: tokenizer (a probe text)", "generation: vocabulary",
    "generation: weight routes", "generation: weight transfer",
    "generation: who listens (before and after the questions)", "generation: world size",
]  # fmt: skip


@pytest.fixture(scope="module")
def embedded_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("weights")
    with lease_ports(1)[0] as lease:
        flags = ("--dtype", "float32", "--max-model-len", str(ROOM), "--weights-dir", str(folder))
        with embedded(lease.port, *flags):
            yield f"http://127.0.0.1:{lease.port}"


def external(port: int, **more: object) -> dict[str, object]:
    return {"kind": "external", "url": f"http://127.0.0.1:{port}", "port": port, **more}


def test_the_embedded_server_agrees_in_every_fact(tmp_path: Path, embedded_url: str) -> None:
    verdict, written = shake(recipe(external(int(embedded_url.rpartition(":")[2]))), tmp_path)
    assert verdict.problem is None, verdict.problem
    assert verdict.warning is None
    assert sorted(fact["name"] for fact in written["facts"]) == EVERY_FACT
    assert skipped(written) == ["generation: engine", "generation: engine version"]
    assert written["agreed"] is True
    assert written["services"]["generation"]["pid"] > 0
    fact = written["facts"][0]
    assert set(fact) == {"name", "meant", "said", "by", "pid", "agrees", "stops", "why", "fix", "sentence"}


def test_localhost_is_the_same_server(tmp_path: Path, embedded_url: str) -> None:
    url = embedded_url.replace("127.0.0.1", "localhost")
    verdict, written = shake(recipe({"kind": "external", "url": url}), tmp_path)
    assert verdict.problem is None, verdict.problem
    assert written["services"]["generation"]["pid"] > 0


def test_everything_that_differs_is_said_at_once(tmp_path: Path, ports: list[int]) -> None:
    with embedded(ports[0], "--dtype", "bfloat16", "--max-model-len", "16", "--served-model-name", MODEL):
        verdict, written = shake(recipe(external(ports[0])), tmp_path)
    assert differing(written) == [
        "generation: max_model_len",
        "generation: dtype",
        "generation: weight transfer",
    ]
    assert verdict.problem is not None
    assert "generation: max_model_len: the recipe means 'at least 24'" in verdict.problem
    assert "fix: restart it with --max-model-len 24, or tell the recipe: generation.max_model_len=16" in verdict.problem
    assert "the recipe means 'float32'" in verdict.problem
    assert "says 'bfloat16'" in verdict.problem
    assert "--weights-dir FOLDER" in verdict.problem
    assert str(tmp_path / "handshake.json") in verdict.problem


def test_what_answers_like_vllm_agrees(tmp_path: Path, ports: list[int]) -> None:
    with vllm_shaped(ports[0], "--max-model-len", "32768"):
        verdict, written = shake(recipe(external(ports[0])), tmp_path)
    assert verdict.problem is None, verdict.problem
    assert sorted(fact["name"] for fact in written["facts"]) == EVERY_FACT
    vocabulary = next(fact for fact in written["facts"] if fact["name"] == "generation: vocabulary")
    assert vocabulary["said"] == json.loads(Path(MODEL, "config.json").read_text())["vocab_size"]


@pytest.mark.parametrize(
    ("flags", "name", "words"),
    [
        (("--served-model-name", "other/model"), "served model", "says ['other/model']"),
        (("--dtype", "bfloat16"), "dtype", "--dtype float32"),
        (("--max-model-len", "23"), "max_model_len", "says 23"),
        (("--tensor-parallel-size", "2"), "world size", "the recipe means 1"),
        (("--logprobs-mode", "raw_logprobs"), "logprobs mode", "--logprobs-mode processed_logprobs"),
        (("--backend", ""), "weight transfer", "would never take the trained weights"),
        (("--backend", "nccl"), "weight transfer", "generation.weight_sync.backend=nccl"),
        (("--without", "/update_weights"), "weight routes", "has no /update_weights (404)"),
        (("--without", "/get_world_size"), "weight routes", "has no /get_world_size (404)"),
        (("--without", "/weight_info"), "weight routes", "0.32 or newer with backend safetensors"),
        (("--vocab-size", "104"), "vocabulary", "says 104"),
        (("--chat-prefix", "user: "), "chat template (a probe message)", "Token 0 of the probe is"),
    ],
)
def test_one_difference(tmp_path: Path, ports: list[int], flags: tuple[str, ...], name: str, words: str) -> None:
    with vllm_shaped(ports[0], *flags):
        verdict, written = shake(recipe(external(ports[0])), tmp_path)
    assert differing(written) == [f"generation: {name}"]
    assert verdict.problem is not None
    assert words in verdict.problem


def copied_model(folder: Path, **config: object) -> str:
    """The shipped model's files with other settings in config.json."""
    shutil.copytree(MODEL, folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    assert not isinstance(model_facts(str(folder), None), str)
    return str(folder)


@pytest.mark.parametrize(("served", "differ"), [("151936", []), ("152064", ["generation: vocabulary"])])
def test_an_embedding_padded_beyond_the_tokenizer(
    tmp_path: Path, ports: list[int], served: str, differ: list[str]
) -> None:
    model = copied_model(tmp_path / "model", vocab_size=151936)
    with vllm_shaped(ports[0], "--vocab-size", served, model=model):
        verdict, written = shake(recipe(external(ports[0]), model=model), tmp_path)
    assert differing(written) == differ
    assert ("the recipe means 151936" in str(verdict.problem)) is bool(differ)


def test_added_tokens_need_a_larger_embedding(tmp_path: Path, ports: list[int]) -> None:
    run = recipe(external(ports[0]))
    run.model.add_tokens = [f"<extra{n}>" for n in range(200)]
    with vllm_shaped(ports[0]):
        _, written = shake(run, tmp_path)
    assert differing(written) == ["generation: vocabulary"]


def swapped_tokenizer(folder: Path) -> str:
    """A tokenizer of the same size, two of whose ids have changed places."""
    folder.mkdir()
    tokenizer = json.loads(Path(MODEL, "tokenizer.json").read_text())
    vocab = tokenizer["model"]["vocab"]
    first, second = [token for token in vocab if len(token) == 1 and token.isdigit()][:2]
    vocab[first], vocab[second] = vocab[second], vocab[first]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return str(folder)


def test_another_tokenizer_of_the_same_size(tmp_path: Path, ports: list[int]) -> None:
    with vllm_shaped(ports[0], "--tokenizer", swapped_tokenizer(tmp_path / "other")):
        verdict, written = shake(recipe(external(ports[0])), tmp_path)
    assert differing(written)[0] == "generation: tokenizer (a probe text)"
    assert "of the probe is" in str(verdict.problem)


def test_an_equal_id_proves_nothing(tmp_path: Path, ports: list[int]) -> None:
    """A server of ours under the right name, with another model's files behind it."""
    other = copied_model(tmp_path / "other")
    with vllm_shaped(ports[0], "--served-model-name", MODEL, "--root", other) as server:
        mine = recipe({"kind": "vllm", "url": f"http://127.0.0.1:{ports[0]}", "port": ports[0]})
        record_child(tmp_path, "generation", server.pid, ports[0])
        _, written = shake(mine, tmp_path)
        assert differing(written) == ["generation: model files"]
        _, foreign = shake(recipe(external(ports[0])), tmp_path)
    assert differing(foreign) == []
    assert "generation: model files" in skipped(foreign)


def test_with_nccl_the_versions_of_vllm_count(tmp_path: Path, ports: list[int]) -> None:
    run = recipe(external(ports[0], weight_sync=WeightSyncConfig(backend="nccl")))
    with vllm_shaped(ports[0], "--backend", "nccl", "--version", "0.32.0+cu130", "--without", "/weight_info"):
        verdict, written = shake(run, tmp_path, versions={"trl": "1.16.0", "vllm": "0.32.0"})
        assert verdict.problem is None, verdict.problem
        assert "the recipe means 'vllm >=0.22.0,<=0.31.0'" in str(verdict.warning)
        assert differing(written) == ["generation: engine version"]
        assert written["agreed"] is True
        verdict, written = shake(run, tmp_path, versions={"trl": "1.16.0", "vllm": "0.31.0"})
        assert "generation: vllm of the trainer" in str(verdict.problem)
        _, written = shake(run, tmp_path)
        assert "generation: vllm of the trainer" in skipped(written)


def test_vllm_without_dev_mode(tmp_path: Path, ports: list[int]) -> None:
    with vllm_shaped(ports[0], "--no-dev-mode"):
        verdict, written = shake(recipe(external(ports[0])), tmp_path)
    assert differing(written) == ["generation: development endpoints"]
    assert "vLLM 0.32.0 at http" in str(verdict.problem)
    assert "VLLM_SERVER_DEV_MODE=1 vllm serve" in str(verdict.problem)


def test_a_server_that_wants_a_key(tmp_path: Path, ports: list[int]) -> None:
    with vllm_shaped(ports[0], "--api-key", "secret"):
        verdict, written = shake(recipe(external(ports[0])), tmp_path)
    assert differing(written) == ["generation: server"]
    assert "asks for an API key" in str(verdict.problem)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("trl", "the `trl vllm-serve` of an older TRL (TRL up to 1.10 needs that server"),
        ("web", "neither a generation server nor a reward server"),
        ("wedged-reward", "a reward server of orchestrate"),
    ],
)
def test_what_is_no_generation_server(tmp_path: Path, ports: list[int], kind: str, words: str) -> None:
    with odd_server(kind, ports[0]):
        verdict, written = shake(recipe(external(ports[0])), tmp_path)
    assert differing(written) == ["generation: server"]
    assert words in str(verdict.problem)


def test_nobody_is_there(tmp_path: Path, ports: list[int]) -> None:
    verdict, written = shake(recipe(external(ports[0])), tmp_path)
    assert differing(written) == ["generation: server"]
    assert f"nothing listens on http://127.0.0.1:{ports[0]} (connection refused)" in str(verdict.problem)
    assert "generation=embedded" in str(verdict.problem)
    unknown = recipe({"kind": "external", "url": "http://no-such-host.invalid:8000"})
    assert "cannot be resolved" in str(shake(unknown, tmp_path)[0].problem)


def test_an_engine_that_hangs_behind_a_live_address(
    tmp_path: Path, ports: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.supervise.handshake.generation.QUESTION_TIMEOUT_S", 1.0)
    with vllm_shaped(ports[0], "--hang", "/v1/completions"):
        verdict, written = shake(recipe(external(ports[0])), tmp_path)
    assert "nothing within 1 s, asked for vocabulary" in str(verdict.problem)
    assert differing(written) == ["generation: answers"]


def test_an_answer_that_never_ends(tmp_path: Path, ports: list[int]) -> None:
    run = recipe(external(ports[0]))
    with vllm_shaped(ports[0], "--trickle", "/server_info"):
        verdict = handshake(run, tmp_path, facts_of(run), deadline_s=3.0)
    assert "did not finish answering within 3 s; asked last: server_info" in str(verdict.problem)


def test_without_model_files_the_rest_is_compared(tmp_path: Path, ports: list[int]) -> None:
    with vllm_shaped(ports[0]):
        verdict, written = shake(recipe(external(ports[0])), tmp_path, models={MODEL: "not on this machine"})
    assert verdict.problem is None, verdict.problem
    assert {"generation: vocabulary", "generation: tokenizer (a probe text)"} <= set(skipped(written))


def test_the_trainer_decides_where_the_files_are_read_differently(
    tmp_path: Path, ports: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A template that our quick reading gets wrong: the trainer's own tokenizer is asked before anything is said."""
    monkeypatch.setattr("orchestrator.supervise.handshake.tokens.ModelTokens.render", lambda *_: [1])
    with vllm_shaped(ports[0]):
        verdict, _ = shake(recipe(external(ports[0])), tmp_path)
    assert verdict.problem is None, verdict.problem
