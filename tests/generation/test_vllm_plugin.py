"""The plugin without vLLM: how it is found, and what it refuses. tests/vllm has it inside the real one."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from orchestrator.assets import VLLM_PLUGIN

FIND = (
    "import sys; from importlib.metadata import entry_points\n"
    "(one,) = entry_points(group='vllm.general_plugins', name='orchestrate_safetensors')\n"
    "print(one.load().__module__, 'torch' in sys.modules, 'safetensors' in sys.modules)"
)
SHAPES = {"model.embed_tokens.weight": (4, 2), "model.norm.weight": (2,)}
TIED = {"lm_head.weight": "model.embed_tokens.weight", "model.embed_tokens.weight": "lm_head.weight"}


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(VLLM_PLUGIN))
    import orchestrate_vllm.files

    return orchestrate_vllm.files


def test_it_is_found_on_the_path_alone_and_imports_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", FIND],
        env={"PYTHONPATH": str(VLLM_PLUGIN)},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.stdout.split(), done.stderr) == (["orchestrate_vllm", "False", "False"], "")


def test_both_ways_to_install_it_name_the_same_version_and_entry_point() -> None:
    project, installed = (VLLM_PLUGIN / "pyproject.toml").read_text(), VLLM_PLUGIN / "orchestrate_vllm-1.0.dist-info"
    assert 'version = "1.0"' in project
    assert "Version: 1.0" in (installed / "METADATA").read_text()
    assert 'orchestrate_safetensors = "orchestrate_vllm:register"' in project
    assert "orchestrate_safetensors = orchestrate_vllm:register" in (installed / "entry_points.txt").read_text()


@pytest.mark.parametrize(
    ("sent", "tied", "says"),
    [
        (SHAPES, {}, []),
        ({**SHAPES, "lm_head.weight": (4, 2)}, TIED, []),
        ({"lm_head.weight": (4, 2), "model.norm.weight": (2,)}, TIED, []),
        ({**SHAPES, "lm_head.weight": (4, 2)}, {}, ["lm_head.weight is no tensor of the served model"]),
        (
            {**SHAPES, "lm_head.weight": (5, 2)},
            TIED,
            ["lm_head.weight has shape [5, 2], the served model's has [4, 2]"],
        ),
        ({**SHAPES, "model.norm.weight": (3,)}, {}, ["model.norm.weight has shape [3], the served model's has [2]"]),
        ({"model.norm.weight": (2,)}, TIED, ["model.embed_tokens.weight [4, 2] is missing"]),
    ],
)
def test_a_file_holds_exactly_the_models_tensors(files: Any, sent: Any, tied: Any, says: list[str]) -> None:
    assert list(files.problems(sent, SHAPES, tied)) == says


def test_an_error_names_five_tensors_and_counts_the_rest(files: Any) -> None:
    with pytest.raises(files.WeightsRefused, match=r"model unchanged: 0; 1; 2; 3; 4; and 3 more$"):
        files.raise_for(map(str, range(8)))
    files.raise_for([])


def test_only_the_servers_own_folder_is_read(files: Any, tmp_path: Path) -> None:
    folder = tmp_path / "weights"
    folder.mkdir()
    (folder / "way_out").symlink_to(tmp_path)
    assert files.inside("a.safetensors", folder) == folder / "a.safetensors"
    for path in ("../secret", "/etc/passwd", "way_out/secret"):
        with pytest.raises(files.WeightsRefused, match="outside"):
            files.inside(path, folder)


def test_shapes_are_read_from_all_shards(files: Any, tmp_path: Path) -> None:
    save_file({"a": torch.zeros(3, 2)}, tmp_path / "1.safetensors")
    save_file({"b": torch.zeros(5)}, tmp_path / "2.safetensors")
    assert files.shapes_of(sorted(tmp_path.glob("*.safetensors"))) == {"a": (3, 2), "b": (5,)}
