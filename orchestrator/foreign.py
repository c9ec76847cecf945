"""What a foreign trainer (`trainer.kind: command`) is told by its own arguments, stated so that rules can compare."""

from dataclasses import dataclass


@dataclass(kw_only=True)
class ForeignArgs:
    """`trainer.args` of `trainer.kind: command`. None = not stated, so not compared."""

    group_relative: bool | None = None
    """Its advantages compare the completions of one prompt: it learns nothing from groups of one."""
    generation_batch_size: int | None = None
    """Completions of one round of generation, over all processes."""
    update_batch_size: int | None = None
    """Completions of one optimizer step, over all processes."""
    per_device_train_batch_size: int | None = None
    gradient_accumulation_steps: int | None = None
    num_generations: int | None = None
    """Completions per prompt."""
    max_completion_length: int | None = None
    """Tokens."""
    max_total_length: int | None = None
    """Tokens of prompt and completion (of all turns) together."""
    temperature: float | None = None
    top_p: float | None = None
    beta: float | None = None
    seed: int | None = None
    tensor_parallel_size: int | None = None
    pipeline_parallel_size: int | None = None
    sequence_parallel_size: int | None = None
    gpus_by_scheduler: bool | None = None
    """Its own scheduler (Ray, SLURM) places its processes; it does not know of GPUs that other parts hold."""
    ddp_timeout: int | None = None
    """Seconds that a collective may take."""
