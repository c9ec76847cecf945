"""Models on the hub, asked for through a real HTTP server. In a process of its own: the address is read at import."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hub_server import COMMIT, hub
from made_up_models import SHARDS, write_model

ASK = """
import json, sys
from dataclasses import asdict
from orchestrator.facts import model_facts
facts = model_facts("org/name", None, online=json.loads(sys.argv[1]))
heavy = [name for name in ("torch", "transformers") if name in sys.modules]
print(json.dumps([facts if isinstance(facts, str) else asdict(facts), heavy, "huggingface_hub" in sys.modules]))
"""


def ask(endpoint: str, cache: Path, *, online: bool, **env: str) -> Any:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    environment |= {"HF_ENDPOINT": endpoint, "HF_HOME": str(cache), "NO_PROXY": "127.0.0.1", **env}
    argv = (sys.executable, "-P", "-c", ASK, json.dumps(online))
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    facts, heavy, asked_hub = json.loads(done.stdout)
    assert heavy == []
    assert asked_hub is online or not online
    return facts


@pytest.mark.parametrize("shards", [False, True])
def test_small_files_are_fetched_and_weights_only_measured(tmp_path: Path, shards: bool) -> None:
    published = write_model(tmp_path / "published", shards=shards)
    files = SHARDS if shards else ("model.safetensors",)
    with hub("org/name", published) as (endpoint, asked):
        facts = ask(endpoint, tmp_path / "cache", online=True)
    snapshot = tmp_path / "cache/hub/models--org--name/snapshots" / COMMIT
    assert facts["path"] == str(snapshot)
    assert facts["weight_bytes"] == sum((published / name).stat().st_size for name in files)
    assert facts["weights_on_disk"] is False
    assert (facts["num_heads"], facts["num_tokens"], facts["generation_eos_ids"]) == (8, 8, [7, 6])
    assert not list(snapshot.glob("*.safetensors"))
    assert not [path for path in asked if path.endswith(".safetensors")]


def test_offline_nothing_is_asked(tmp_path: Path) -> None:
    nowhere = "org/name is neither a folder nor in the local hub cache"
    with hub("org/name", write_model(tmp_path / "published")) as (endpoint, asked):
        assert ask(endpoint, tmp_path / "cache", online=False) == nowhere
        assert asked == []
        ask(endpoint, tmp_path / "cache", online=True)
        # What was fetched is no model that could be loaded: a later check offline does not take it for one.
        assert ask(endpoint, tmp_path / "cache", online=False) == nowhere
        # And online again only the question which commit it is.
        asked.clear()
        ask(endpoint, tmp_path / "cache", online=True)
        assert [path for path in asked if "org/name" in path] == ["GET /api/models/org/name"]


def test_without_network(tmp_path: Path) -> None:
    facts = ask("http://127.0.0.1:9", tmp_path, online=True)
    assert facts.startswith("org/name cannot be had from the hub: ConnectError: ")


def test_the_hubs_own_offline_switch(tmp_path: Path) -> None:
    facts = ask("http://127.0.0.1:9", tmp_path, online=True, HF_HUB_OFFLINE="1")
    assert facts.startswith("org/name cannot be had from the hub: OfflineModeIsEnabled: ")


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    with hub("org/other", write_model(tmp_path / "published")) as (endpoint, _):
        facts = ask(endpoint, tmp_path / "cache", online=True)
    assert facts.startswith("org/name cannot be had from the hub: RepositoryNotFoundError: ")


def test_a_model_without_safetensors(tmp_path: Path) -> None:
    published = write_model(tmp_path / "published")
    (published / "model.safetensors").rename(published / "pytorch_model.bin")
    with hub("org/name", published) as (endpoint, _):
        assert ask(endpoint, tmp_path / "cache", online=True) == "org/name on the hub has no .safetensors weights"


def test_a_repository_that_is_no_model(tmp_path: Path) -> None:
    published = write_model(tmp_path / "published")
    (published / "config.json").unlink()
    with hub("org/name", published) as (endpoint, _):
        assert ask(endpoint, tmp_path / "cache", online=True) == "org/name on the hub has no config.json"


def test_an_index_that_is_none(tmp_path: Path) -> None:
    published = write_model(tmp_path / "published", shards=True)
    (published / "model.safetensors.index.json").write_text("{}")
    with hub("org/name", published) as (endpoint, _):
        facts = ask(endpoint, tmp_path / "cache", online=True)
    assert facts == "model.safetensors.index.json of org/name on the hub cannot be used: KeyError('weight_map')"


def test_check_online_lets_the_rules_see_the_model(tmp_path: Path) -> None:
    """The published model has 8 heads: what was skipped offline becomes an error about tensor parallel 3."""
    published = write_model(tmp_path / "published")
    recipe = ("+experiment=grpo_math", "generation=colocate", "model.name=org/name", "hardware.gpus=3")
    argv = (sys.executable, "-P", "-m", "orchestrator", "check", "--json", *recipe, "generation.tensor_parallel_size=3")
    with hub("org/name", published) as (endpoint, asked):
        env = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
        env |= {"HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path / "cache"), "NO_PROXY": "127.0.0.1"}
        offline = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=120)
        assert asked == []
        online = subprocess.run((*argv, "--online"), env=env, capture_output=True, text=True, timeout=120)
    codes = [{f["code"]: f["severity"] for f in json.loads(done.stdout)["findings"]} for done in (offline, online)]
    assert codes[0]["MOD004"] == "skipped"
    assert "MOD004" not in codes[1]
    assert any("8 attention heads" in f["problem"] for f in json.loads(online.stdout)["findings"])
