"""NUM: how completions are drawn and compared."""

from collections.abc import Callable, Iterator, Mapping

from orchestrator.findings import Finding
from orchestrator.kinds import generation_kind, through_our_client
from orchestrator.rules.case import Case


def sampling_out_of_range(case: Case) -> Iterator[Finding]:
    """Sampling settings are ones that draw different completions.

    ## What it checks
    0.01 <= `temperature` <= 2 (what is below, vLLM takes for 0.01 and says nothing; 0 is greedy), 0 < `top_p` <= 1,
    `top_k` >= 0, 0 <= `min_p` <= 1 and `repetition_penalty` > 0 in `trainer.args`.
    ## Why it matters
    At temperature 0 all completions of a group are equal: no spread, no advantage, nothing learned. The others make the
    generation server refuse every request.
    ## Bad
        trainer.args.temperature=0
        trainer.args.top_p=1.5
        trainer.args.top_k=-1
    ## Good
        trainer.args.temperature=0.7 trainer.args.top_p=0.95 trainer.args.top_k=20
    """
    off = -1 if generation_kind(case.run.generation).vllm else None  # vLLM's own word for "no top_k"
    for key, (fits, legal) in SAMPLING.items():
        value = case.run.trainer.args.get(key)
        if key == "top_k" and value is not None and value == off:
            continue
        if isinstance(value, (int, float)) and not isinstance(value, bool) and not fits(value):
            yield Finding(
                values={f"trainer.args.{key}": value},
                problem=f"trainer.args.{key} = {value} is outside {legal}",
                why="The server would refuse it, or all completions of a group would be equal.",
                fix=f"set it within {legal}, or remove it for TRL's default",
            )


SAMPLING: Mapping[str, tuple[Callable[[float], bool], str]] = {
    "temperature": (lambda v: 0.01 <= v <= 2, "0.01 <= temperature <= 2 (vLLM makes what is below 0.01, and 0 greedy)"),
    "top_p": (lambda v: 0 < v <= 1, "0 < top_p <= 1"),
    "top_k": (lambda v: v >= 0, "top_k >= 0 (0 = off)"),
    "min_p": (lambda v: 0 <= v <= 1, "0 <= min_p <= 1"),
    "repetition_penalty": (lambda v: v > 0, "repetition_penalty > 0"),
}


def biased_importance_ratio(case: Case) -> Iterator[Finding]:
    """Importance sampling compares probabilities of one distribution.

    ## What it checks
    TRL's importance-sampling correction for vLLM (on by default) beside `top_p < 1`, `top_k` or `min_p`, on TRL's own
    vLLM path.
    ## Why it matters
    The server's log-probs are those of the cut distribution, the trainer's of the whole vocabulary: every ratio is off
    by the mass that was cut. A warning: people train so.
    ## Bad
        generation=vllm_nccl trainer.args.top_p=0.9
        generation=colocate trainer.args.top_k=20 trainer.args.vllm_importance_sampling_correction=true
    ## Good
        generation=vllm_nccl trainer.args.top_p=0.9 trainer.args.vllm_importance_sampling_correction=false
        generation=vllm_nccl
    """
    run, args = case.run, case.run.trainer.args
    corrected = args.get("vllm_importance_sampling_correction", True) is True and run.trainer.kind == "grpo"
    if not corrected or through_our_client(run) or not generation_kind(run.generation).vllm:
        return
    cut = {
        key: args[key] for key, is_cut in CUTS.items() if isinstance(args.get(key), (int, float)) and is_cut(args[key])
    }
    if cut:
        yield Finding(
            severity="warning",
            values={f"trainer.args.{key}": value for key, value in cut.items()}
            | {
                "trainer.args.vllm_importance_sampling_correction": args.get(
                    "vllm_importance_sampling_correction", True
                )
            },
            problem="the server samples from a cut distribution ("
            + ", ".join(f"{key} = {value}" for key, value in cut.items())
            + "), and importance sampling compares it with the whole one",
            why="Every ratio is off by the probability that was cut away.",
            fix="set trainer.args.vllm_importance_sampling_correction=false, or sample from the whole distribution",
        )


CUTS: Mapping[str, Callable[[float], bool]] = {
    "top_p": lambda v: v < 1,
    "top_k": lambda v: v > 0,
    "min_p": lambda v: v > 0,
}


def head_precision_differs(case: Case) -> Iterator[Finding]:
    """The last layer computes in the same precision on both sides.

    ## What it checks
    `trainer.args.cast_lm_head_to_fp32` against the server's `hf_overrides: {head_dtype: float32}`, where the model is
    not float32 anyway. A warning.
    ## Why it matters
    The logits differ by rounding, and with them the log-probs: a larger KL from the first step on.
    ## Bad
        generation=vllm model.dtype=bfloat16 'generation.args={hf_overrides: {head_dtype: float32}}'
        generation=vllm model.dtype=bfloat16 trainer.args.cast_lm_head_to_fp32=true
    ## Good
        generation=vllm model.dtype=bfloat16
    """
    run = case.run
    overrides = run.generation.args.get("hf_overrides")
    served = run.generation.dtype == "float32" or (
        isinstance(overrides, dict) and overrides.get("head_dtype") == "float32"
    )
    trained = run.model.dtype == "float32" or run.trainer.args.get("cast_lm_head_to_fp32") is True
    if "float32" in (run.model.dtype, run.generation.dtype) or served == trained:
        return  # different dtypes of the whole model are MOD002's
    yield Finding(
        severity="warning",
        values={
            "trainer.args.cast_lm_head_to_fp32": trained,
            "generation.args.hf_overrides.head_dtype": "float32" if served else run.generation.dtype,
        },
        problem=f"the {'server' if served else 'trainer'} computes the last layer in float32, the "
        f"{'trainer' if served else 'server'} in {run.model.dtype}",
        why="Log-probs differ by rounding; the KL starts above zero.",
        fix="set both: trainer.args.cast_lm_head_to_fp32=true and generation.args.hf_overrides={head_dtype: float32}",
    )
