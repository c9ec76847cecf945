"""What the trainer does before it loads a model, done without one: in this process, as the child does it."""

from dataclasses import asdict, dataclass
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from orchestrator.compose import Composer
from orchestrator.deep.asking import _arguments_recipe, _prompts_recipe
from orchestrator.resolve import resolve
from orchestrator.schema import RunConfig
from orchestrator.training.grpo import trainer_config
from orchestrator.training.rehearsal import count_prompts, try_arguments


@pytest.fixture(scope="module")
def composer() -> Composer:
    return Composer()


def run_of(composer: Composer, *overrides: str) -> RunConfig:
    run, problems = resolve(composer.compose(["+experiment=grpo_math", *overrides]).raw)
    assert problems == ()
    return run


REFUSED = {
    "trainer.args.num_generations=7": ("num_generations (7)",),
    "trainer.args.num_generations=1": ("at least 2 generations",),
    "trainer.args.warmup_steps=-1": ("warmup_steps",),
    "trainer.args.generation_batch_size=128 trainer.args.steps_per_generation=1": ("can not be both configured",),
    "trainer.args.generation_batch_size=128 launcher=torchrun launcher.num_processes=3": ("(128)", "(384)"),
    "trainer.args.per_device_train_batch_size=1 launcher=torchrun launcher.num_processes=2 launcher.num_machines=3": (
        "generation_batch_size (6)",
    ),
    "trainer=rloo trainer.args.num_generations=7": ("num_generations (7)",),
    "trainer.args.bf16=true trainer.args.fp16=true": ("At most one of fp16 and bf16",),
}


@pytest.mark.parametrize("overrides", REFUSED)
def test_refusals_are_in_the_words_of_trl(composer: Composer, overrides: str) -> None:
    tried = try_arguments(run_of(composer, *overrides.split()))
    assert not tried["needs_gpu"]
    assert all(word in tried["refusal"] for word in REFUSED[overrides])


@pytest.mark.parametrize(
    "overrides",
    [
        "seed=0",
        "trainer.args.per_device_train_batch_size=4 launcher=torchrun launcher.num_processes=2",
        "trainer=rloo trainer.args.num_generations=2",
        "trainer.kind=online_dpo ~trainer.args.max_completion_length ~trainer.args.num_generations",
    ],
)
def test_arguments_that_are_taken(composer: Composer, overrides: str) -> None:
    assert try_arguments(run_of(composer, *overrides.split())) == {"refusal": None, "needs_gpu": False}


@pytest.mark.parametrize("argument", ["bf16", "tf32"])
def test_want_of_a_gpu_is_told_apart(composer: Composer, argument: str) -> None:
    tried = try_arguments(run_of(composer, f"trainer.args.{argument}=true"))
    assert tried["needs_gpu"] == (not torch.cuda.is_available())


def test_prompts_are_counted_as_a_run_counts_them(composer: Composer) -> None:
    counted = count_prompts(run_of(composer, "data.rows=50", "evaluation.rows=10"))
    assert (sum(counted["train"].values()), sum(counted["heldout"].values())) == (50, 10)
    assert set(counted["train"]) <= {6, 7, 8}  # "<|user|>1+1=<|assistant|>" and one or two digits more


def test_what_cannot_be_counted_is_named(composer: Composer) -> None:
    file = "tests/deep/system_role.jsonl"
    data = ("data=jsonl", f"data.path={file}", "data.rows=null", "evaluation.rows=0")
    assert "training row 1 cannot be tokenized" in count_prompts(run_of(composer, *data))["row"]
    missing = count_prompts(run_of(composer, "model=path", "model.name=tests/deep/no_tokenizer"))
    assert missing["tokenizer"]


def trainer_kwargs(run: RunConfig) -> dict[str, object]:
    """What `trainer_config` hands to the config class."""

    @dataclass
    class Recorder:
        reward_weights: object = None
        disable_tqdm: object = None
        remove_unused_columns: object = None
        eval_strategy: object = None
        output_dir: object = None
        rest: object = None

        def __init__(self, **kwargs: object) -> None:
            self.rest = kwargs

    rest = trainer_config(Recorder, run, Path("checkpoints")).rest
    assert isinstance(rest, dict)
    return rest


def test_a_recipe_cut_down_to_what_is_asked_gives_the_same_answer(composer: Composer) -> None:
    """The child gets no more than the parts that the key of a question is made of."""
    run = run_of(composer, "data.rows=50", "evaluation.rows=0", "trainer.args.num_generations=7")
    small, problems = resolve(OmegaConf.create(_arguments_recipe(run, set())))
    assert (try_arguments(small), problems) == (try_arguments(run), ())
    assert trainer_kwargs(small) == trainer_kwargs(run)
    small, problems = resolve(OmegaConf.create(_prompts_recipe(run)))
    assert (count_prompts(small), problems) == (count_prompts(run), ())
    assert asdict(small.data) == asdict(run.data)
