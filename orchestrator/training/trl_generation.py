"""TRL's own ways to generate: what GRPOConfig is told, and the same engine for the held-out evaluation."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from transformers import GenerationConfig, GenerationMixin
from trl.models import unwrap_model_for_generation

from orchestrator.generation.client import Completion, Sampling
from orchestrator.kinds import through_our_client
from orchestrator.ledgers.devices import memory_share
from orchestrator.schema import RunConfig

Prompts = Sequence[Sequence[int]]


class Generates(Protocol):
    """What answers the held-out prompts: the client of a server, or an engine inside this process."""

    def complete(self, prompts: Prompts, n: int, sampling: Sampling, seed: int | None) -> list[list[Completion]]:
        """`n` completions of each prompt of token ids, [prompts][n]."""
        ...


def trl_generation_args(run: RunConfig) -> dict[str, Any]:
    """GRPOConfig's fields for the recipe's `generation`; {} where our rollouts ask its server."""
    generation = run.generation
    if through_our_client(run):
        return {}
    if generation.kind == "inprocess":
        return {"use_vllm": False}
    if generation.kind == "colocate":
        return {
            "use_vllm": True,
            "vllm_mode": "colocate",
            "vllm_tensor_parallel_size": generation.tensor_parallel_size,
            "vllm_gpu_memory_utilization": memory_share(run),
            "vllm_max_model_length": generation.max_model_len,
            "vllm_enable_sleep_mode": bool(generation.args.get("enable_sleep_mode")),
            "vllm_model_impl": generation.args.get("model_impl", "vllm"),
            "trust_remote_code": run.model.trust_remote_code,
        }
    return {
        "use_vllm": True,
        "vllm_mode": "server",
        "vllm_server_base_url": generation.url,
        "vllm_group_port": generation.weight_sync.port,
        "vllm_server_timeout": generation.ready_timeout_s or run.supervision.ready_timeout_s,
    }


class OwnModel:
    """The trainer's model generates, with transformers: what TRL itself does without vLLM."""

    def __init__(self, trainer: Any, rows: int) -> None:
        """`rows` completions are computed at once, as many as the trainer generates at once."""
        self._trainer, self._rows = trainer, rows

    def complete(self, prompts: Prompts, n: int, sampling: Sampling, seed: int | None) -> list[list[Completion]]:
        """The trainer's own random state is left as it was."""
        trainer = self._trainer
        settings = trainer.generation_kwargs | {"max_new_tokens": sampling.max_tokens}
        if sampling.temperature == 0:
            settings |= {"do_sample": False} | dict.fromkeys(("temperature", "top_p", "top_k", "min_p"))
        repeated = [list(prompt) for prompt in prompts for _ in range(n)]
        was_training, found = trainer.model.training, list[Completion]()
        trainer.model.eval()
        try:
            with (
                torch.random.fork_rng(devices=_cuda_devices(trainer.accelerator.device)),
                torch.no_grad(),
                unwrap_model_for_generation(
                    trainer.model_wrapped,
                    trainer.accelerator,
                    gather_deepspeed3_params=trainer.args.ds3_gather_for_generation,
                    generation_kwargs=settings,  # or the checkpoint's own generation_config.json would fill gaps
                    gradient_checkpointing_kwargs=trainer.args.gradient_checkpointing_kwargs,
                ) as model,
            ):
                if seed is not None:
                    torch.manual_seed(seed)
                for start in range(0, len(repeated), self._rows):
                    found += self._batch(model, repeated[start : start + self._rows], settings)
        finally:
            trainer.model.train(was_training)
        return [found[start : start + n] for start in range(0, len(found), n)]

    def _batch(self, model: GenerationMixin, prompts: list[list[int]], settings: dict[str, Any]) -> list[Completion]:
        width, pad = max(map(len, prompts)), settings["pad_token_id"]
        device = self._trainer.accelerator.device
        ids = torch.tensor([[pad] * (width - len(prompt)) + prompt for prompt in prompts], device=device)
        mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=device)
        config = GenerationConfig(**settings, disable_compile=True)
        output: Any = model.generate(input_ids=ids, attention_mask=mask, generation_config=config)
        return [completion_until(row, self._trainer.eos_token_ids) for row in output[:, width:].tolist()]


class ColocatedEngine:
    """The vLLM inside the trainer's processes. Draws are not seeded: TRL gives the engine its seed when it is built."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    def complete(self, prompts: Prompts, n: int, sampling: Sampling, seed: int | None) -> list[list[Completion]]:
        """With the weights of the last sync; `seed` is not used."""
        repeated = [list(prompt) for prompt in prompts for _ in range(n)]
        with _asked_for(self._trainer.vllm_generation, sampling) as engine:
            _, ids, _, _ = engine.generate(prompts=repeated, images=None, num_generations=n)
        found = [completion_until(list(row), self._trainer.eos_token_ids) for row in ids]
        return [found[start : start + n] for start in range(0, len(found), n)]

    def score(self, sequences: Prompts) -> list[list[float]]:
        """As GenerationClient.score. A sleeping engine must have been given its weights, and stays awake."""
        from vllm import SamplingParams  # installed where an engine is colocated, and nowhere else

        engine = self._trainer.vllm_generation
        if engine.enable_sleep_mode:
            engine.llm.wake_up(tags=["kv_cache"])
        asked = [{"prompt_token_ids": list(sequence)} for sequence in sequences]
        sampling = SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=1)
        outputs = engine.llm.generate(asked, sampling_params=sampling, use_tqdm=False)
        return [
            [float(step[token].logprob) for step, token in zip(output.prompt_logprobs[1:], sequence[1:], strict=True)]
            for output, sequence in zip(outputs, sequences, strict=True)
        ]


def completion_until(ids: list[int], eos_ids: Sequence[int]) -> Completion:
    """Up to and with the first token that ends a completion. Log-probs are left out: nothing here reads them."""
    end = next((place for place, token in enumerate(ids) if token in eos_ids), None)
    kept = ids if end is None else ids[: end + 1]
    return Completion(token_ids=kept, logprobs=[], finish_reason="length" if end is None else "stop")


@contextmanager
def _asked_for(engine: Any, sampling: Sampling) -> Iterator[Any]:
    """TRL's VLLMGeneration takes what it samples with from its attributes; afterwards they are the training's again."""
    wanted = {"temperature": sampling.temperature, "max_completion_length": sampling.max_tokens}
    kept = {name: getattr(engine, name) for name in wanted}
    try:
        for name, value in wanted.items():
            setattr(engine, name, value)
        yield engine
    finally:
        for name, value in kept.items():
            setattr(engine, name, value)


def _cuda_devices(device: torch.device) -> list[torch.device]:
    return [device] if device.type == "cuda" else []
