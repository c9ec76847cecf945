"""Alarms over the last training steps, as metrics.jsonl has them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from orchestrator.alarms.seen import Seen, Sign
from orchestrator.schema import RunConfig

CLIPPED = "completions/clipped_ratio"  # TRL's
NO_SPREAD, UNSCORED = "groups/no_spread", "groups/unscored"  # ours: orchestrator/training/reward.py
RAW_REWARD = "reward_raw"  # ours: TRL's `reward` before a post-process hook, where there is one
CLIPPED_RATIO = 0.95
Line = Mapping[str, Any]


def completions_clipped(seen: Seen, run: RunConfig) -> Iterator[Sign]:
    """Nearly every completion is cut at the length limit.

    ## What it watches
    `completions/clipped_ratio` of metrics.jsonl: at least 0.95 for `supervision.alarms.patience_steps` steps in a row.
    ## Why it matters
    A completion that is cut has no answer yet, so the reward sees none; and the model is never shown how to end.
    ## What to do
    Raise `limits.completion_length` (and with it `generation.max_model_len`). If completions go on past the answer,
    look at a few in samples.jsonl: a chat template without its end token, or a base model, never stops by itself.
    """
    patience = run.supervision.alarms.patience_steps
    if steps_in_a_row(seen.lines, CLIPPED, lambda ratio: ratio is not None and ratio >= CLIPPED_RATIO) >= patience:
        ratio, limit = _last(seen.lines, CLIPPED), run.limits.completion_length
        yield Sign(
            problem=f"clipped ratio {ratio:.2f} for {patience} steps; limits.completion_length = {limit}",
            why="A completion that is cut has no answer yet: its reward says nothing about it.",
            fix=f"limits.completion_length={2 * limit}, or see in samples.jsonl why completions do not end",
        )


def no_reward_spread(seen: Seen, run: RunConfig) -> Iterator[Sign]:
    """In every group, all completions get the same reward.

    ## What it watches
    `groups/no_spread` of metrics.jsonl, the share of groups whose completions do not differ in reward: 1 for
    `supervision.alarms.patience_steps` steps in a row. A group without any reward (RUN003) counts as one.
    ## Why it matters
    An advantage is a reward minus its group's mean. Where all are equal it is zero: such steps teach nothing.
    ## What to do
    Look at samples.jsonl. All rewards at their least: the answers are not recognised (another format or column than
    the reward function reads), cut off (RUN001), or too hard for this model. All at their most: the data are too easy.
    Little variety: raise `trainer.args.temperature` or `limits.generations`.
    """
    patience = run.supervision.alarms.patience_steps
    if steps_in_a_row(seen.lines, NO_SPREAD, lambda share: share is not None and share >= 1) >= patience:
        raw = _last(seen.lines, RAW_REWARD)
        reward = _last(seen.lines, "reward") if raw is None else raw
        said = "no reward" if reward is None else f"mean reward {reward:.3g}"
        yield Sign(
            problem=f"groups without a spread of rewards 1.00 for {patience} steps; {said}, "
            f"limits.generations = {run.limits.generations}",
            why="Where all rewards of a group are equal every advantage is zero: these steps teach nothing.",
            fix="see in samples.jsonl what is scored; easier or harder data, another reward function, "
            "or a higher trainer.args.temperature",
        )


def group_without_reward(seen: Seen, run: RunConfig) -> Iterator[Sign]:
    """Of some group, no completion has a reward.

    ## What it watches
    `groups/unscored` of metrics.jsonl, the share of groups in which every reward is None: above 0 in any of the last
    `supervision.alarms.patience_steps` steps. It does not wait: the first such group raises it.
    ## Why it matters
    A completion without a reward is trained on with advantage zero. A whole group of them means that a prompt never
    counts: no function is meant for it, or a function fails on it, and `reward.on_error: mask` hides that. (With `fail`
    our reward server ends the run instead.)
    ## What to do
    Find the prompt in samples.jsonl: its `reward` is null, and `components` show which function said nothing. Give such
    rows a function (`reward.functions[].only`), or run once with `reward.on_error=fail`, which shows the error.
    """
    for line in reversed(seen.lines):
        recent = seen.lines[-1]["step"] - line["step"] < run.supervision.alarms.patience_steps
        if recent and (share := line.get(UNSCORED) or 0.0) > 0:
            yield Sign(
                problem=f"in step {line['step']}, {share:.1%} of the groups have no reward at all; "
                f"reward.on_error = {run.reward.on_error}",
                why="Such a prompt costs generation and teaches nothing.",
                fix="see the samples of that step in samples.jsonl whose reward is null; reward.on_error=fail says why",
            )
            return


def not_finite(seen: Seen, run: RunConfig) -> Iterator[Sign]:
    """Loss or gradient is not a finite number.

    ## What it watches
    `loss` and `grad_norm` of metrics.jsonl: null, which stands for NaN and infinity. One step is enough; under
    `trainer.args.fp16` it takes `supervision.alarms.patience_steps` in a row, for there the loss scaler finds its
    scale by overflows, and skips those steps. (transformers logs a mean in the place of a NaN loss unless
    `trainer.args.logging_nan_inf_filter` is false: `grad_norm` tells.)
    ## Why it matters
    An optimizer step with such a gradient makes every weight NaN; nothing that is generated after it means anything.
    ## What to do
    Go back to the last checkpoint before the step. Lower `trainer.args.learning_rate` or `trainer.args.max_grad_norm`,
    use bfloat16 in the place of float16, or look for a reward of enormous size in samples.jsonl.
    """
    needed = run.supervision.alarms.patience_steps if run.trainer.args.get("fp16") else 1
    for name in ("loss", "grad_norm"):
        if steps_in_a_row(seen.lines, name, lambda value: value is None) >= needed:
            yield Sign(
                problem=f"{name} is not finite in step {seen.lines[-1]['step']}; "
                f"trainer.args.learning_rate = {run.trainer.args.get('learning_rate', 'the default')}, "
                f"trainer.args.max_grad_norm = {run.trainer.args.get('max_grad_norm', 'the default')}",
                why="The optimizer step makes the weights NaN; nothing generated after it means anything.",
                fix="go on from a checkpoint before that step with a lower trainer.args.learning_rate",
            )
            return


def steps_in_a_row(lines: Sequence[Line], name: str, holds: Callable[[Any], bool]) -> int:
    """Optimizer steps up to now for which the figure holds.

    A line may stand for several steps (`logging_steps`). A line without the figure, of a step that reuses completions,
    counts as the line before it.
    """
    count = held = 0
    for index in range(len(lines) - 1, -1, -1):
        line = lines[index]
        if name in line and not holds(line[name]):
            break
        count += line["step"] - (lines[index - 1]["step"] if index else line["step"] - 1)
        held = count if name in line else held
    return held


def _last(lines: Sequence[Line], name: str) -> Any:
    return next((line[name] for line in reversed(lines) if name in line), None)
