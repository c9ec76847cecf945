"""Arguments of the vLLM engine, read from a small tree that is written the way vLLM is."""

from pathlib import Path

import pytest

from orchestrator.fields.engine import engine_fields
from orchestrator.fields.source import FieldFact, SearchPath, SourceUnreadableError
from orchestrator.fields.types import accepts

TREE = {
    "vllm/__init__.py": "raise RuntimeError('imported')",
    "vllm/engine/__init__.py": "",
    "vllm/config/__init__.py": "from vllm.config.model import ModelConfig\nfrom vllm.config.cache import CacheConfig",
    "vllm/config/model.py": """
from typing import Any, Literal
from enum import IntEnum
ModelDType = Literal["auto", "half", "bfloat16"]
Ranks = Literal[8, 16]
HfOverrides = dict[str, Any] | Callable[[Any], Any]
class Level(IntEnum):
    O0 = 0
@config
class ModelConfig:
    dtype: ModelDType | torch.dtype = "auto"
    max_model_len: int = Field(default=None, ge=-1)
    hf_overrides: HfOverrides = field(default_factory=dict)
    max_logprobs: int = 20
    task: str
""",
    "vllm/config/cache.py": """
class CacheConfig:
    gpu_memory_utilization: float = Field(default=0.92, gt=0, le=1)
""",
    "vllm/engine/arg_utils.py": """
from vllm.config import ModelConfig, CacheConfig
from vllm.config.model import HfOverrides, Level, ModelDType, Ranks
from vllm.config.gone import Missing
if TYPE_CHECKING:
    from vllm.config.quantization import Quantization
@dataclass
class EngineArgs:
    model: str = ModelConfig.model
    dtype: ModelDType = ModelConfig.dtype
    maybe_dtype: ModelDType | None = None
    max_model_len: int = ModelConfig.max_model_len
    gpu_memory_utilization: float = CacheConfig.gpu_memory_utilization
    hf_overrides: HfOverrides = get_field(ModelConfig, "hf_overrides")
    max_logprobs: int = get_field(ModelConfig, "max_logprobs")
    rank: Ranks = 16
    level: Level = Level.O0
    parsed: ModelConfig | None = None
    missing: Missing = None
    quantization: "dict[str, Any] | Quantization | None" = None
    lora_dtype: str | torch.dtype | None = 'auto'
    executor: str | type[Executor] | None = None
    _private: int = 0
    def __post_init__(self):
        pass
@dataclass
class AsyncEngineArgs(EngineArgs):
    enable_log_requests: bool = False
""",
}


@pytest.fixture
def path(tmp_path: Path) -> SearchPath:
    for name, text in TREE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return (str(tmp_path),)


def test_the_server_takes_one_more_than_the_engine(path: SearchPath) -> None:
    server, engine = engine_fields("vllm", path), engine_fields("colocate", path)
    assert set(server) - set(engine) == {"enable_log_requests"}
    assert "_private" not in server


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("dtype", FieldFact(annotation="Literal['auto', 'half', 'bfloat16']", default="'auto'")),
        ("maybe_dtype", FieldFact(annotation="Literal['auto', 'half', 'bfloat16'] | None", default="None")),
        ("gpu_memory_utilization", FieldFact(annotation="float", default="0.92")),
        ("hf_overrides", FieldFact(annotation="dict[str, Any] | Any", default="")),
        ("max_logprobs", FieldFact(annotation="int", default="20")),
        ("level", FieldFact(annotation="int | str", default="Level.O0")),
        ("parsed", FieldFact(annotation="ModelConfig | None", default="None")),
        ("missing", FieldFact(annotation="Any", default="None")),
        ("quantization", FieldFact(annotation="dict[str, Any] | Any | None", default="None")),
        # A default that leads nowhere stays as it is written.
        ("model", FieldFact(annotation="str", default="ModelConfig.model")),
    ],
)
def test_aliases_and_defaults_are_followed(path: SearchPath, name: str, expected: FieldFact) -> None:
    found = engine_fields("colocate", path)[name]
    assert (found.annotation, found.default) == (expected.annotation, expected.default)


def test_the_words_of_an_alias_are_choices(path: SearchPath) -> None:
    fields = engine_fields("vllm", path)
    assert fields["dtype"].choices == fields["maybe_dtype"].choices == ("auto", "half", "bfloat16")
    assert fields["rank"].choices == ()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("dtype", "auto"),
        ("max_model_len", "32k"),
        ("max_model_len", None),
        ("rank", 8),
        ("level", 2),
        ("parsed", {"dtype": "half"}),
        ("missing", [1]),
        ("quantization", {"linear": "fp8"}),
        ("lora_dtype", "bfloat16"),
        ("executor", "ray"),
    ],
)
def test_what_cannot_be_judged_is_never_a_wrong_type(path: SearchPath, name: str, value: object) -> None:
    assert accepts(engine_fields("vllm", path)[name].annotation, value)


def test_what_can_be_judged_is(path: SearchPath) -> None:
    assert not accepts(engine_fields("vllm", path)["gpu_memory_utilization"].annotation, "much")
    # Only a command line reads 32k: a colocated engine takes the number itself.
    assert not accepts(engine_fields("colocate", path)["max_model_len"].annotation, "32k")


def test_an_environment_without_vllm(tmp_path: Path) -> None:
    with pytest.raises(SourceUnreadableError, match="package vllm is not installed"):
        engine_fields("vllm", (str(tmp_path),))


def test_sources_of_a_newer_python(path: SearchPath, tmp_path: Path) -> None:
    (tmp_path / "vllm/engine/arg_utils.py").write_text("type X[T: int = 3] = list[T]\ndef f[*Ts = ](): pass\n")
    with pytest.raises(SourceUnreadableError, match=r"arg_utils\.py cannot be read"):
        engine_fields("vllm", path)
