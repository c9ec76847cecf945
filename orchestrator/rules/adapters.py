"""SYN: low-rank adapters (LoRA) on their way to the server."""

from collections.abc import Iterator

from orchestrator.adapters import sends_adapters
from orchestrator.facts import ModelFacts
from orchestrator.findings import Finding
from orchestrator.rules.case import Case

EMBEDDINGS = ("embed_tokens", "wte", "lm_head", "embed_out")
"""Names that architectures give the embedding and the head, which tied models share."""


def adapter_sync_unfit(case: Case) -> Iterator[Finding]:
    """An adapter that is sent alone reaches a server that loads it.

    ## What it checks
    With `generation.weight_sync.lora: adapter`: that there is an adapter (`trainer.lora.r`), that vLLM serves
    (`generation.kind` vllm or external) and takes it through our client (`backend: safetensors`) with LoRA not
    switched off (`generation.args.enable_lora`), and that the adapter has nothing that vLLM refuses: `modules_to_save`,
    `bias`, `use_dora`.
    ## Why it matters
    The first sync would fail, before step 1.
    ## Bad
        generation=vllm generation.weight_sync.lora=adapter
        trainer.lora.r=8 generation.weight_sync.lora=adapter
        generation=vllm_nccl trainer.lora.r=8 generation.weight_sync.lora=adapter
        generation=vllm trainer.lora.r=8 trainer.lora.use_dora=true generation.weight_sync.lora=adapter
        generation=vllm trainer.lora.r=8 generation.weight_sync.lora=adapter generation.args.enable_lora=false
    ## Good
        generation=vllm trainer.lora.r=8 generation.weight_sync.lora=adapter generation.args.enable_lora=true
        generation=vllm trainer.lora.r=8 generation.weight_sync.lora=adapter
        trainer.lora.r=8 trainer.lora.use_dora=true
    """
    run, lora = case.run, case.run.trainer.lora
    if not sends_adapters(run):
        return
    if lora.r is None:
        yield Finding(
            values={"generation.weight_sync.lora": "adapter", "trainer.lora.r": None},
            problem="the adapter is to be sent alone, and there is none: trainer.lora.r is not set",
            why="The first sync would fail.",
            fix="set trainer.lora.r=8 to train an adapter, or generation.weight_sync.lora=merged",
        )
    if run.generation.args.get("enable_lora") is False:
        yield Finding(
            values={"generation.weight_sync.lora": "adapter", "generation.args.enable_lora": False},
            problem="the adapter is to be sent alone, and generation.args.enable_lora = false makes vLLM refuse it",
            why="The first sync would fail.",
            fix="remove generation.args.enable_lora: the run switches it on",
        )
    unfit = {
        "generation.kind": (run.generation.kind not in ("vllm", "external"), "only a vLLM server loads adapters"),
        "generation.weight_sync.backend": (run.generation.weight_sync.backend == "nccl", "TRL sends merged weights"),
        "trainer.lora.modules_to_save": (bool(lora.modules_to_save), "vLLM refuses modules beside the adapter"),
        "trainer.lora.bias": (lora.bias != "none", "vLLM loads no biases"),
        "trainer.lora.use_dora": (lora.use_dora, "vLLM does not know DoRA"),
    }
    for path, (is_unfit, how) in unfit.items():
        if is_unfit:
            value = _at(run, path)
            yield Finding(
                values={"generation.weight_sync.lora": "adapter", path: value},
                problem=f"the adapter is to be sent alone, and {how} ({path} = {value})",
                why="The first sync would fail.",
                fix="set generation.weight_sync.lora=merged: the server gets whole weights with the adapter in them",
            )


def _at(holder: object, path: str) -> object:
    for name in path.split("."):
        holder = getattr(holder, name)
    return holder


def tied_tensors_apart(case: Case) -> Iterator[Finding]:
    """An adapter leaves alone what the model uses in two places.

    ## What it checks
    `trainer.lora.target_modules` and `modules_to_save` for the embedding or the head, where the model's files say that
    the two are one tensor (`tie_word_embeddings`).
    ## Why it matters
    PEFT trains one of the two apart from the other. A server that ties them can hold only one value for both.
    ## Bad
        trainer.lora.r=8 trainer.lora.target_modules=[q_proj,embed_tokens]
        trainer.lora.r=8 trainer.lora.modules_to_save=[lm_head]
    ## Good
        trainer.lora.r=8 trainer.lora.target_modules=all-linear
        trainer.lora.r=8 trainer.lora.modules_to_save=[norm]
    """
    lora, model = case.run.trainer.lora, case.facts.models.get(case.run.model.name)
    if lora.r is None or not isinstance(model, ModelFacts) or not model.tied_embeddings:
        return
    for key, value in (("target_modules", lora.target_modules), ("modules_to_save", lora.modules_to_save)):
        names = [value] if isinstance(value, str) else value or []
        apart = [name for name in names if name.rpartition(".")[2] in EMBEDDINGS]
        if apart:
            yield Finding(
                values={f"trainer.lora.{key}": value, "model.name": case.run.model.name},
                problem=f"{', '.join(apart)} would be trained apart from the tensor that it is tied to",
                why="The server has one tensor for both, so it cannot hold the weights that are trained.",
                fix=f"remove {', '.join(apart)} from trainer.lora.{key}",
            )
