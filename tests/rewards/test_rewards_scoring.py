from collections.abc import Callable

import pytest

from rewards.batch import Batch, plan_units
from rewards.calling.targets import LoadError
from rewards.contract import ContractError, FunctionSpec, SpecError
from rewards.scoring import Scorer

UserFile = Callable[..., str]

SOURCE = """
import asyncio
def odd(prompts, completions, **kwargs): return [float(c) if int(c) % 2 else None for c in completions]
def even(completions): return [None if int(c) % 2 else 1.0 for c in completions]
def share(completions): return [1.0 / len(completions)] * len(completions)
def statuses(completions, statuses): return [float(s == "truncated") for s in statuses]
def bad(completions): return [float("nan") if c == "3" else 1.0 for c in completions]
def scaled(completions, factor): return [factor * float(c) for c in completions]
def logging(completions, log_extra, log_metric):
    log_extra("text", completions); log_metric("mean", 2.0); return [0.0] * len(completions)
def late(completions):
    async def inner(): return [7.0] * len(completions)
    return inner()
async def awaited(completions):
    await asyncio.sleep(0); return [1.0] * len(completions)
def leaves(completions): raise SystemExit(3)
"""


def scorer(path: str, *names: str, on_error: str = "fail", **fields: object) -> Scorer:
    specs = [FunctionSpec(name, f"{path}:{name}", **fields) for name in names]  # type: ignore[arg-type]
    return Scorer(specs, on_error)  # type: ignore[arg-type]


def test_weighted_total_skips_what_is_not_mine(user_file: UserFile) -> None:
    result = scorer(user_file(SOURCE), "odd", "even", weight=2.0).score([""] * 3, ["1", "2", "3"])
    assert result.components == {"odd": [1.0, None, 3.0], "even": [None, 1.0, None]}
    assert result.rewards == [2.0, 2.0, 6.0]


def test_a_sample_that_nobody_scores_is_an_error(user_file: UserFile) -> None:
    with pytest.raises(ContractError, match="no function scored sample 1"):
        scorer(user_file(SOURCE), "odd").score(["", ""], ["1", "2"])


def test_a_column_picks_the_function(user_file: UserFile) -> None:
    path = user_file(SOURCE)
    specs = [
        FunctionSpec("odd", f"{path}:odd", only={"source": ["a", "b"]}),
        FunctionSpec("share", f"{path}:share", only={"source": ["c"]}),
    ]
    result = Scorer(specs).score([""] * 4, ["1", "3", "5", "7"], {"source": ["a", "c", "b", "c"]})
    assert result.components == {"odd": [1.0, None, 5.0, None], "share": [None, 0.5, None, 0.5]}
    with pytest.raises(ContractError, match="source"):
        Scorer(specs).score([""], ["1"])


def test_groups_need_not_be_contiguous(user_file: UserFile) -> None:
    share = scorer(user_file(SOURCE), "share", granularity="group")
    assert share.score([""] * 4, list("abcd"), group_ids=["x", "y", "x", "x"]).rewards == [1 / 3, 1.0, 1 / 3, 1 / 3]
    with pytest.raises(ContractError, match="group_ids"):
        share.score([""] * 4, list("abcd"))


def test_aborted_samples_never_reach_a_function(user_file: UserFile) -> None:
    result = scorer(user_file(SOURCE), "statuses", "share").score(
        [""] * 3, ["1", "2", "3"], statuses=["completed", "aborted", "truncated"]
    )
    assert result.components == {"statuses": [0.0, None, 1.0], "share": [0.5, None, 0.5]}
    assert result.rewards == [0.5, None, 1.5]
    assert (result.aborted, result.errors) == ([1], [])


def test_masking_drops_the_sample_not_a_part_of_its_sum(user_file: UserFile) -> None:
    path = user_file(SOURCE)
    result = scorer(path, "odd", "bad", on_error="mask").score([""] * 2, ["1", "3"])
    assert result.components == {"odd": [1.0, 3.0], "bad": [1.0, None]}
    assert result.rewards == [2.0, None]
    assert [(e.function, e.index, e.value) for e in result.errors] == [("bad", 1, "nan")]
    with pytest.raises(ContractError, match="bad returned NaN for sample 1") as caught:
        scorer(path, "odd", "bad").score([""] * 2, ["1", "3"])
    assert (caught.value.function, caught.value.index, caught.value.value) == ("bad", 1, "nan")


def test_params_logs_async_and_exit(user_file: UserFile) -> None:
    path = user_file(SOURCE)
    assert scorer(path, "scaled", params={"factor": 3}).score(["", ""], ["1", "2"]).rewards == [3.0, 6.0]
    assert scorer(path, "late", "awaited").score([""], ["1"]).rewards == [8.0]
    logs = scorer(path, "logging").score([""] * 2, ["1", "2"]).logs
    assert logs == {"logging/text": ["1", "2"], "logging/mean": [2.0, 2.0]}
    with pytest.raises(ContractError, match="leaves raised SystemExit on sample 0"):
        scorer(path, "leaves").score([""], ["1"])


def test_a_missing_column_names_the_nearest() -> None:
    accuracy = Scorer([FunctionSpec("accuracy", "accuracy")])
    with pytest.raises(ContractError, match=r"accuracy needs the column 'answer'.*did you mean answers"):
        accuracy.score([""], ["1"], {"answers": ["1"]})
    assert accuracy.score([""], ["1"], {"answer": ["1"], "unused": [{}]}).rewards == [1.0]
    with pytest.raises(ContractError, match=r"prompts: 1, completions: 2"):
        accuracy.score([""], ["1", "2"])


def test_every_live_sample_is_in_one_unit() -> None:
    batch = Batch(
        prompts=[""] * 5,
        completions=[""] * 5,
        group_ids=[1, 2, 1, 2, 1],
        statuses=["completed", "aborted", "truncated", "completed", "completed"],
    )
    assert plan_units(batch, "sample") == [(0,), (2,), (3,), (4,)]
    assert plan_units(batch, "group") == [(0, 2, 4), (3,)]
    assert plan_units(batch, "batch") == [(0, 2, 3, 4)]


def test_a_function_without_weight_does_not_score_what_nobody_else_scores() -> None:
    specs = [
        FunctionSpec("right", "exact_match", only={"source": ["math"]}),
        FunctionSpec("logged", "example_math", weight=0.0),
    ]
    columns = {"answer": ["1", "1"], "source": ["math", "code"]}
    with pytest.raises(ContractError, match="no function scored sample 1"):
        Scorer(specs).score(["", ""], ["1", "1"], columns)
    assert Scorer(specs[1:]).score([""], ["1"], {}).rewards == [0.0]  # alone, it is all there is


def test_a_total_beyond_a_float_is_an_error_of_its_sample() -> None:
    specs = [FunctionSpec(name, "exact_match", weight=1.7e308) for name in ("a", "b")]
    with pytest.raises(ContractError, match="not finite for sample 0"):
        Scorer(specs).score([""], ["1"], {"answer": ["1"]})


def test_a_misspelt_param_of_a_built_in_is_refused() -> None:
    with pytest.raises(LoadError, match=r"no parameter 'max_penatly' \(did you mean max_penalty"):
        Scorer([FunctionSpec("r", "repetition_penalty", params={"max_penatly": -0.1})])
    with pytest.raises(SpecError, match="only must map a column to a list"):
        FunctionSpec("a", "accuracy", only={"level": 3})  # type: ignore[dict-item]
