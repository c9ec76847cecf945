"""The words of recipes.yaml in the words of our recipe: a literal table, key by key.

An entry is the setting that means the same, the function that reads the key together with others, or
`Dropped` with the reason why our recipe has no place for it. A key that is in no table is an error.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import neutral_parts as parts
import neutral_services as services
from neutral_settings import Recipe


@dataclass(frozen=True)
class Dropped:
    """No exact counterpart."""

    why: str


Entry = str | Dropped | Callable[[Recipe], Iterator[str]]

SHARED: Mapping[str, Entry] = {
    "t.kind": parts.trainer,
    "t.model": parts.model,
    "t.dtype": parts.model,
    "t.np": parts.launcher,
    "t.gpus": parts.launcher,
    "t.machines": parts.launcher,
    "t.deepspeed": parts.launcher,
    "t.master_addr": parts.launcher,
    "t.master_port": "launcher.main_port",
    "t.pdb": "trainer.args.per_device_train_batch_size",
    "t.ga": "trainer.args.gradient_accumulation_steps",
    "t.generation_batch_size": "trainer.args.generation_batch_size",
    "t.ng": parts.lengths,
    "t.mcl": parts.lengths,
    "t.max_prompt": parts.lengths,
    "t.max_total": parts.lengths,
    "t.max_input": parts.lengths,
    "g.mml": parts.lengths,
    "t.temperature": "trainer.args.temperature",
    "t.top_p": "trainer.args.top_p",
    "t.beta": "trainer.args.beta",
    "t.lora": parts.lora,
    "t.lora.r": parts.lora,
    "t.lora.alpha": "trainer.lora.lora_alpha",
    "t.use_vllm": services.generation,
    "t.vllm_mode": services.generation,
    "g.mode": services.generation,
    "t.server_base_url": services.generation,
    "t.server_host": services.generation,
    "t.server_port": services.generation,
    "g.host": services.generation,
    "g.port": services.generation,
    "g.gpus": services.generation,
    "g.engines": services.generation,
    "g.dp": services.generation,
    "g.machine": services.generation,
    "g.machines": services.generation,
    "g.tp": "generation.tensor_parallel_size",
    "g.gpu_memory_utilization": "generation.args.gpu_memory_utilization",
    "g.sleep": services.generation,
    "g.max_num_batched_tokens": "generation.args.max_num_batched_tokens",
    "g.chunked_prefill": "generation.args.enable_chunked_prefill",
    "g.enforce_eager": "generation.args.enforce_eager",
    "g.enable_prefix_caching": "generation.args.enable_prefix_caching",
    "g.logprobs_mode": "generation.args.logprobs_mode",
    "g.weight_transfer": "generation.weight_sync.backend",
    "t.server_timeout": "supervision.ready_timeout_s",
    "g.ready_timeout": "supervision.ready_timeout_s",
    "g.command": Dropped("generation.kind says which server it is; `vllm-serve(plain)` is our kind vllm"),
    "g.serve_module": Dropped("the program that serves follows from generation.kind"),
    "g.engine": Dropped("the one engine that we start on GPUs is vLLM; its budgets are checked as vLLM's"),
    "g.deterministic": Dropped("how an engine orders its sums is no setting of ours"),
    "g.async": Dropped("whether the server queues requests in an event loop is its own affair; ours always do"),
    "t.reward_funcs": services.rewards,
    "t.reward_weights": services.rewards,
    "r.url": services.rewards,
    "r.timeout_s": "reward.timeout_s",
    "r.retries": Dropped("our client has no retries to set"),
    "r.overlong_buffer": Dropped("a parameter of the reward function"),
    "r.kind": Dropped("whose code turns a completion into a reward; lengths reads that it sits in the server"),
    "t.max_turns": parts.lengths,
    "t.max_env_steps": Dropped("steps of the environment; TRL's completion length covers all of them"),
    "r.env_port": services.environment,
    "r.env_url": services.environment,
    "r.env_urls": services.environment,
    "r.envs": Dropped("environments inside the foreign trainer, by name"),
    "t.reward_model": "reward.judge.model",
    "t.teacher": "reward.judge.model",
    "r.model": "reward.judge.model",
    "r.tp": "reward.judge.tensor_parallel_size",
    "r.gpus": services.judge,
    "r.mml": "reward.judge.max_model_len",
    "r.max_prompt": "reward.judge.max_model_len",
    "r.gpu_memory_utilization": "reward.judge.gpu_memory_utilization",
    "t.critic": Dropped("a value model lives in the trainer's own processes"),
    "t.reference": Dropped("a reference model lives in the trainer's own processes"),
    "t.eval_dataset": parts.evaluation,
    "h.gpus": "hardware.gpus",
    "h.machines": parts.hardware,
    "h.vllm": Dropped("a fact, not a setting: see case_facts.of_recipe"),
}
"""Keys that mean the same whoever trains."""

OWN: Mapping[str, Entry] = {
    "t.steps_per_generation": "trainer.args.steps_per_generation",
    "t.num_iterations": "trainer.args.num_iterations",
    "t.max_steps": "trainer.args.max_steps",
    "t.top_k": "trainer.args.top_k",
    "t.loss_type": parts.loss,
    "t.epsilon": "trainer.args.epsilon",
    "t.epsilon_high": "trainer.args.epsilon_high",
    "t.mask_truncated_completions": "trainer.args.mask_truncated_completions",
    "t.scale_rewards": "trainer.args.scale_rewards",
    "t.multi_objective_aggregation": "trainer.args.multi_objective_aggregation",
    "t.importance_sampling_level": "trainer.args.importance_sampling_level",
    "t.fsdp": parts.launcher,
    "t.per_device_eval_batch_size": "trainer.args.per_device_eval_batch_size",
    "t.eval_strategy": parts.evaluation,
    "t.eval_steps": parts.evaluation,
    "t.do_eval": Dropped("evaluation.rows decides whether held-out rows are measured (CFG006)"),
    "t.val_set_size": Dropped("0 in every row: evaluation.rows=0"),
    "t.ebft.mode": "trainer.args.mode",
    "t.n_samples_per_prompt": parts.lengths,
    "t.generate_max_len": parts.lengths,
    "t.stride": Dropped("where in a document strided EBFT samples; no other part knows of it"),
    "t.context_length": Dropped("tokens before each stride of EBFT; no other part knows of it"),
    "t.ddp": Dropped("one process: nothing is distributed"),
    "t.stop_token_ids": Dropped("the model's own generation_config.json names its stop tokens"),
    "t.sequence_len": Dropped("axolotl cuts its training texts there; completions are bounded by the limits"),
    "t.advantage_estimator": Dropped("TRL has one estimator a trainer"),
    "t.kl_in_reward": Dropped("TRL puts the KL term into the loss (beta)"),
    "t.local_rollout_forward_batch_size": Dropped("how the log-prob pass is cut up; no other part knows of it"),
}
"""Keys of TRL and of those who train with its names."""

FOREIGN: Mapping[str, Entry] = {
    "t.update_batch": "trainer.args.update_batch_size",
    "t.pack_length": "trainer.args.max_total_length",
    "t.tp": "trainer.args.tensor_parallel_size",
    "t.pp": "trainer.args.pipeline_parallel_size",
    "t.sequence_parallel": "trainer.args.sequence_parallel_size",
    "ray.gpus": parts.scheduler,
    "t.actor+ref.gpus": parts.launcher,
    "t.critic.gpus": parts.launcher,
    "t.ep": Dropped("how a foreign trainer spreads its experts"),
    "t.fsdp": Dropped("how a foreign trainer shards its weights"),
    "t.loss_type": Dropped("a foreign trainer's loss"),
    "t.kl_in_reward": Dropped("a foreign trainer's loss"),
    "t.ptx_coeff": Dropped("a foreign trainer's loss"),
    "t.async_steps": Dropped("how far a foreign trainer's rollouts may lag"),
    "t.epochs": Dropped("how long a foreign trainer trains"),
    "t.eval_strategy": Dropped("a foreign trainer evaluates by itself"),
    "t.eval_steps": Dropped("a foreign trainer evaluates by itself"),
    "t.eval_examples": Dropped("a foreign trainer evaluates by itself"),
    "t.eval_mcl": Dropped("a foreign trainer evaluates by itself"),
    "t.eval_repeat": Dropped("a foreign trainer evaluates by itself"),
    "t.eval_temperature": Dropped("a foreign trainer evaluates by itself"),
    "t.eval_top_k": Dropped("a foreign trainer evaluates by itself"),
    "t.num_generations_eval": Dropped("a foreign trainer evaluates by itself"),
}
"""Keys of other frameworks; what such a trainer is told is `trainer.args` (orchestrator/foreign.py)."""


class UnknownKeyError(Exception):
    """A row uses a word that no table translates."""


def overrides(recipe: Recipe) -> list[str]:
    """The row as overrides of our recipe. Raises UnknownKeyError."""
    table = SHARED | (FOREIGN if recipe.is_foreign else OWN)
    unknown = [key for key in recipe.settings if key not in table]
    if unknown:
        raise UnknownKeyError(f"{recipe.id}: {', '.join(unknown)}")
    plain = [f"{entry}={recipe.text(key)}" for key in recipe.settings if isinstance(entry := table[key], str)]
    return [*parts.BASE, *(line for part in parts.PARTS for line in part(recipe)), *plain]
