"""What of a trainer follows from several neutral keys together, or from a default that the row leaves out."""

import re
from collections.abc import Callable, Iterator

from neutral_services import VLLM_KINDS, environment, generation, generation_kind, judge, rewards
from neutral_settings import OWN_KINDS, Recipe

BASE = (
    # The rows name their data only by what matters: a file that is never opened stands for them (case_facts.DATA).
    "data=jsonl",
    "data.path=the-rows-own-data.jsonl",
    "data.chat=false",
)
TRL_COMPLETION = 512
TRL_GROUP = 8
GROUP_RELATIVE = {
    "grpo": True,
    "rloo": True,
    "reinforce_baseline": True,
    "remax": False,
    "ppo": False,
    "opd": False,
}
"""Foreign trainers: do their advantages compare the completions of one prompt?"""
DTYPES = {"bf16": "bfloat16", "bfloat16": "bfloat16"}
DEFAULT_RANK = {"TRL": 16, "ms-swift": 8}
"""LoRA rank that a project takes for `t.lora=true`."""


def trainer(recipe: Recipe) -> Iterator[str]:
    kind = recipe.text("t.kind")
    if recipe.is_foreign:
        yield from ("trainer=command", "trainer.argv=[train]")
        yield f"trainer.args.group_relative={str(GROUP_RELATIVE[kind]).lower()}"
        return
    yield from (f"trainer={'rloo' if kind == 'rloo' else 'grpo'}", f"trainer.kind={OWN_KINDS[kind]}")
    if recipe.project == "ms-swift":  # its defaults differ from TRL's
        if not recipe.has("t.pdb"):
            yield "trainer.args.per_device_train_batch_size=1"
        if generation_kind(recipe) in VLLM_KINDS:
            yield "trainer.args.vllm_importance_sampling_correction=false"


def model(recipe: Recipe) -> Iterator[str]:
    yield from ("model=path", f"model.name={recipe.text('t.model', 'the-authors/choice')}")
    if recipe.has("t.dtype"):
        yield f"model.dtype={DTYPES[recipe.text('t.dtype')]}"


def loss(recipe: Recipe) -> Iterator[str]:
    # EBFT's `grpo` names the policy gradient that it shares; it has no field for it.
    if recipe.has("t.loss_type") and not recipe.is_foreign and recipe.text("t.kind") != "ebft":
        yield f"trainer.args.loss_type={recipe.text('t.loss_type')}"


def lora(recipe: Recipe) -> Iterator[str]:
    if recipe.has("t.lora", "t.lora.r"):
        yield f"trainer.lora.r={recipe.number('t.lora.r', DEFAULT_RANK.get(recipe.project, 16))}"
    if recipe.has("t.lora") and recipe.settings["t.lora"].is_list:
        yield f"trainer.lora.target_modules={recipe.text('t.lora')}"


def launcher(recipe: Recipe) -> Iterator[str]:
    machines, processes = recipe.number("t.machines", 1), _processes(recipe)
    stage = re.fullmatch(r"zero(\d)(_offload)?", recipe.text("t.deepspeed"))
    if stage:
        yield from ("launcher=deepspeed", f"launcher.zero_stage={stage[1]}")
        yield f"launcher.offload={'true' if stage[2] else 'false'}"
    else:
        yield f"launcher={'torchrun' if machines * processes > 1 else 'python'}"
    yield from (f"launcher.num_processes={processes}", f"launcher.num_machines={machines}")
    if recipe.has("t.master_addr") or machines > 1:
        yield f"launcher.main_address={recipe.text('t.master_addr', 'first-machine')}"
    if recipe.has("t.gpus") and recipe.settings["t.gpus"].is_list:
        yield f"launcher.gpus={recipe.indices('t.gpus')}"
    if recipe.has("t.fsdp") and not recipe.is_foreign:
        yield f"trainer.args.fsdp='{' '.join(recipe.settings['t.fsdp'].items)}'"


def _processes(recipe: Recipe) -> int:
    """Of one machine. A program that names GPUs only by number has a process on each."""
    if recipe.has("t.np"):
        return recipe.number("t.np", 1)
    counted = [key for key in ("t.actor+ref.gpus", "t.critic.gpus", "t.gpus") if recipe.has(key)]
    return sum(recipe.number(key, 0) for key in counted if not recipe.settings[key].is_list) or 1


def lengths(recipe: Recipe) -> Iterator[str]:
    """Tokens and groups. A length that the row leaves unsaid is the smallest there is: no budget is made up."""
    foreign = recipe.is_foreign
    prompt, total = recipe.number("t.max_prompt", 1), recipe.number("t.max_total", 0)
    unsaid = max(total - prompt, 1) if foreign else TRL_COMPLETION
    completion = recipe.number("t.mcl", recipe.number("t.generate_max_len", unsaid))
    group = {"rloo": 2}.get(recipe.text("t.kind"), TRL_GROUP) if not foreign else 1
    yield f"limits.prompt_length={prompt}"
    yield f"limits.completion_length={completion}"
    yield f"limits.generations={recipe.number('t.ng', recipe.number('t.n_samples_per_prompt', group))}"
    if total:
        yield f"trainer.args.max_total_length={total}"
    turn = recipe.number("t.max_input", prompt) + completion
    # What the server must take, where the row does not say what it takes: the longest turn, the longest rollout.
    yield f"generation.max_model_len={recipe.number('g.mml', max(turn, total))}"
    if recipe.has("t.max_input"):
        yield f"reward.environment.max_input_length={recipe.number('t.max_input', 0)}"
    if recipe.has("t.max_turns") and _turns_add_up(recipe):
        yield f"reward.environment.max_turns={recipe.number('t.max_turns', 1)}"


def _turns_add_up(recipe: Recipe) -> bool:
    """False where the completion length covers all turns (verl), or the server plays them and stops at its context."""
    in_server = recipe.settings["t.max_turns"].note == "server side" or recipe.text("r.kind") == "gym-in-server"
    return not in_server and recipe.project != "verl"


def evaluation(recipe: Recipe) -> Iterator[str]:
    """TRL-style trainers only. ms-swift evaluates as soon as `eval_steps` is set, if there are rows to do it with."""
    asked = recipe.has("t.eval_strategy") or (recipe.project == "ms-swift" and recipe.has("t.eval_steps"))
    is_on = asked and recipe.text("t.eval_strategy") != "no" and recipe.text("t.eval_dataset") != "none"
    if recipe.is_foreign or not is_on:
        yield "evaluation.rows=0"
        return
    yield from ("evaluation.rows=100", f"trainer.args.eval_strategy={recipe.text('t.eval_strategy', 'steps')}")
    yield f"trainer.args.eval_steps={recipe.number('t.eval_steps', 1)}"


def scheduler(recipe: Recipe) -> Iterator[str]:
    if recipe.has("ray.gpus"):
        yield "trainer.args.gpus_by_scheduler=true"


def hardware(recipe: Recipe) -> Iterator[str]:
    generating = recipe.number("g.machines", 1 if recipe.has("g.machine") else 0)
    machines = recipe.number("h.machines", recipe.number("t.machines", 1) + generating)
    if machines > 1:
        yield f"hardware.machines={machines}"


PARTS: tuple[Callable[[Recipe], Iterator[str]], ...] = (
    trainer,
    model,
    loss,
    lora,
    launcher,
    generation,
    lengths,
    rewards,
    environment,
    judge,
    evaluation,
    scheduler,
    hardware,
)
