"""Liveness is not enough: a wedged scorer answers /health and /info, and hangs on work."""

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.facts import Facts
from orchestrator.schema import RunConfig
from orchestrator.supervise.handshake.functions import is_hook
from orchestrator.supervise.handshake.interview import Interview
from rewards.calling.post_process import NAME as POST_PROCESS
from rewards.client import RewardClient, RewardError

COMPLETION = "I do not know."
ANSWER_MARGIN_S = 2.0


def score_a_sample(
    talk: Interview, run: RunConfig, facts: Facts, client: RewardClient, functions: Sequence[Mapping[str, Any]]
) -> None:
    """An empty batch, which takes no work at all, then one real prompt with a made-up completion.

    What a function makes of that completion is a warning at most: the model may never write such a thing.
    """
    if not _empty(talk, client, functions):
        return
    name = "scores a sample"
    rows = () if isinstance(facts.data, str) else facts.data.first_rows
    if not rows:
        talk.skip(name, "there is no row of the data to take")
        return
    if any(not one.agrees for one in talk.facts if one.name.endswith(": columns")):
        talk.skip(name, "the data lack a column that it wants")
        return
    talk.asking = name
    groups = any(one.get("granularity") == "group" or is_hook(one) for one in functions)
    size = run.limits.generations if groups else 1
    wants_ids = any(one.get("wants_completion_ids") for one in functions)
    try:
        reply = client.score(*_batch(rows[0], size, wants_ids=wants_ids), group_ids=[0] * size)
    except RewardError as error:
        _unscored(talk, name, error, waited_s=client.timeout_s, limit_s=run.reward.timeout_s * len(functions) * size)
        return
    why, fix = "Every sample of the run may fare like it.", "try it on real rows: orchestrate check --deep ..."
    errors = [str(error.get("message", error)) for error in reply.errors]
    if errors:
        talk.fail(name, f"{errors[0]}.", said=errors[:3], why=why, fix=fix, stops=False)
    else:
        talk.compare(name, size, len(reply.rewards), why=why, fix=fix)


def _empty(talk: Interview, client: RewardClient, functions: Sequence[Mapping[str, Any]]) -> bool:
    talk.asking = name = "scores an empty batch"
    columns: dict[str, list[Any]] = {column: [] for one in functions for column in one.get("required_columns", ())}
    fix = "restart it; its log says what it waits for"
    try:
        said = client.score([], [], columns, group_ids=[]).rewards
    except RewardError as error:
        talk.fail(name, _hangs(talk, error), said=str(error), why="It cannot be trained with.", fix=fix)
        return False
    talk.compare(name, [], said, why="It does not score.", fix=fix)
    return True


def _unscored(talk: Interview, name: str, error: RewardError, *, waited_s: float, limit_s: float) -> None:
    """`limit_s`: what its functions may take together."""
    if error.status is None and limit_s + ANSWER_MARGIN_S > waited_s:
        talk.skip(name, f"no answer within {waited_s:g} s, and its functions may take {limit_s:g} s (reward.timeout_s)")
    elif error.status is None or error.status == 503:
        talk.fail(name, _hangs(talk, error), said=str(error), why="It cannot be trained with.", fix="restart it")
    else:
        talk.fail(
            name,
            f"{error}.",
            said=error.status,
            why="Every sample of the run may fare like it.",
            fix="try it on real rows: orchestrate check --deep ...",
            # What a function makes of a made-up completion may never come; a hook that breaks its contract always does.
            stops=any(one.get("function") == POST_PROCESS and one.get("kind") == "contract" for one in error.errors),
        )


def _hangs(talk: Interview, error: RewardError) -> str:
    if error.status is not None:
        return f"{error}."
    return f"{talk.url} answers /health and /info, but not a request for scores ({error}): it is wedged."


def _batch(row: Mapping[str, Any], size: int, *, wants_ids: bool) -> tuple[list[Any], list[Any], dict[str, list[Any]]]:
    """Prompts, completions and columns as the trainer sends them."""
    prompt = row["prompt"]
    completion = COMPLETION if isinstance(prompt, str) else [{"role": "assistant", "content": COMPLETION}]
    columns = {name: [value] * size for name, value in row.items() if name != "prompt"}
    if wants_ids:
        columns["completion_ids"] = [[0]] * size
    return [prompt] * size, [completion] * size, columns
