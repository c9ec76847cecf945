"""Which GPUs each process of a plan sees."""

from dataclasses import replace
from pathlib import Path

import pytest

from launchers.context import Context
from orchestrator.compose import Composer
from orchestrator.facts import Facts
from orchestrator.facts.types import Gpu
from orchestrator.jobs import CheckedJob, check_job
from orchestrator.plan import make_plan
from orchestrator.resolve import auto_ports
from orchestrator.steps import Step
from orchestrator.turns import devices

NCCL = ("generation=vllm_nccl", "generation.port=8123")


@pytest.fixture(scope="module")
def composer() -> Composer:
    return Composer()


def checked(composer: Composer, *overrides: str, seen: tuple[int, ...] = ()) -> CheckedJob:
    job = check_job(composer, ["+experiment=grpo_math", *overrides])
    facts: Facts = replace(job.facts, gpus=tuple(Gpu(index=i, name="GPU", memory_gib=80) for i in seen))
    return replace(job, facts=facts)


def steps(job: CheckedJob, visible: str | None = None, share: str | None = None) -> dict[str, Step]:
    context = Context(run_dir=Path("/run"), devices=devices(job.run, job.facts, visible, share))
    return {step.name: step for step in make_plan(job.run, context).steps}


def seen_by(made: dict[str, Step]) -> dict[str, str | None]:
    return {name: made[name].env.get("CUDA_VISIBLE_DEVICES") for name in ("generation", "trainer") if name in made}


def test_two_gpus_that_nobody_names_go_to_one_part_each(composer: Composer) -> None:
    made = steps(checked(composer, *NCCL, "hardware.gpus=2"))
    assert seen_by(made) == {"trainer": "0", "generation": "1"}
    assert made["trainer"].env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert made["reward"].env.get("CUDA_VISIBLE_DEVICES") is None


def test_a_part_that_names_none_leaves_the_others_theirs(composer: Composer) -> None:
    job = checked(composer, *NCCL, "generation.gpus=[0,2]", "generation.tensor_parallel_size=2", seen=(0, 1, 2, 3))
    assert seen_by(steps(job)) == {"trainer": "1", "generation": "0,2"}
    named = checked(composer, *NCCL, "launcher.gpus=[3]", "generation.gpus=[1]", seen=(0, 1, 2, 3))
    assert seen_by(steps(named)) == {"trainer": "3", "generation": "1"}


def test_only_what_is_visible_is_handed_out_under_the_names_that_it_has_there(composer: Composer) -> None:
    job = checked(composer, *NCCL, seen=(4, 6))
    assert seen_by(steps(job, visible="4,6")) == {"trainer": "4", "generation": "6"}
    assert seen_by(steps(job, visible="GPU-aa,GPU-bb")) == {"trainer": "GPU-aa", "generation": "GPU-bb"}


def test_a_job_of_a_sweep_stays_in_its_share(composer: Composer) -> None:
    job = checked(composer, *NCCL, seen=(0, 1, 2, 3))
    assert seen_by(steps(job, share="2,3")) == {"trainer": "2", "generation": "3"}


def test_a_colocated_engine_has_the_trainers_gpus(composer: Composer) -> None:
    made = steps(checked(composer, "generation=colocate", seen=(0, 1)))
    assert seen_by(made) == {"trainer": "0"}


def test_a_recipe_for_the_cpu_sees_what_the_run_sees(composer: Composer) -> None:
    assert seen_by(steps(checked(composer))) == {"generation": None, "trainer": None}


def test_vllm_on_the_cpu_gets_no_gpu_whatever_its_interpreter_holds(composer: Composer) -> None:
    job = checked(composer, "generation=vllm_cpu", "generation.port=8123", seen=(0, 1))
    assert seen_by(steps(job)) == {"generation": None, "trainer": None}


def test_the_embedded_server_goes_where_the_recipe_puts_it(composer: Composer) -> None:
    job = checked(composer, "launcher.gpus=[0]", "generation.gpus=[1]", seen=(0, 1))
    assert seen_by(steps(job)) == {"trainer": "0", "generation": "1"}


def test_the_nccl_group_meets_on_loopback_where_the_server_is_there(composer: Composer) -> None:
    """vLLM's code in the trainer would otherwise name the address of the way to the internet."""
    assert steps(checked(composer, *NCCL))["trainer"].env["VLLM_HOST_IP"] == "127.0.0.1"
    far = checked(composer, "generation=external", "generation.url=http://gpu7:8000")
    over_nccl = checked(
        composer, "generation=external", "generation.url=http://gpu7:8000", "generation.weight_sync.backend=nccl"
    )
    assert "VLLM_HOST_IP" not in steps(far)["trainer"].env
    assert "VLLM_HOST_IP" not in steps(over_nccl)["trainer"].env


def test_the_groups_port_is_picked_like_the_servers(composer: Composer) -> None:
    def picked(*overrides: str) -> set[str]:
        return set(auto_ports(composer.compose(["+experiment=grpo_math", *overrides]).raw))

    group = "generation.weight_sync.port"
    assert picked("generation=vllm_nccl") == {"generation.port", "reward.port", group}
    assert picked("generation=vllm") == {"generation.port", "reward.port"}
    assert picked("generation=vllm_nccl", f"{group}=20123") == {"generation.port", "reward.port"}
    assert picked("generation=inprocess") == {"reward.port"}
