"""The embedded generation server: transformers behind the part of vLLM's API that we use."""

from launchers.context import Context, gpus, module_argv, threads
from orchestrator.schema import RunConfig
from orchestrator.steps import HttpProbe, Step


def step(run: RunConfig, context: Context) -> Step:
    generation = run.generation
    flags = {
        "--model": generation.model,
        "--served-model-name": generation.model,
        "--host": generation.host,
        "--port": generation.port,
        "--dtype": generation.dtype,
        "--max-model-len": generation.max_model_len,
        "--max-batch-rows": generation.max_batch_rows,
        "--weights-dir": context.paths.weights,
        "--seed": run.seed,
    }
    return Step(
        name="generation",
        argv=(
            *module_argv(generation.python or context.interpreter, "orchestrator.generation.server"),
            *(str(word) for flag in flags.items() for word in flag),
        ),
        env=threads(context.num_cpus) | gpus(context, "generation") | dict(generation.env),
        ready=HttpProbe(url=f"{generation.url}/health"),
        ready_timeout_s=generation.ready_timeout_s or run.supervision.ready_timeout_s,
        host=generation.host,
        port=generation.port if isinstance(generation.port, int) else None,
    )
