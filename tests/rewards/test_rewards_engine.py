import asyncio
from collections.abc import Awaitable, Callable

import pytest

from rewards.batch import Batch
from rewards.calling.targets import LoadError
from rewards.contract import FunctionSpec
from rewards.running.engine import build_engine
from rewards.running.inline import Engine, Inline, runs_inline

UserFile = Callable[..., str]

MINE = "def mine(completions, **kwargs): return [3.0] * len(completions)"


def run(specs: list[FunctionSpec], workers: int, body: Callable[[Engine], Awaitable[None]]) -> None:
    async def use() -> None:
        engine = build_engine(specs, workers=workers, timeout_s=5)
        await engine.start()
        assert engine.problem() is None
        try:
            await body(engine)
        finally:
            await engine.close()
        assert engine.problem() == "the reward server is stopping"

    asyncio.run(use())


def test_quick_builtins_stay_here_and_the_rest_goes_to_workers(user_file: UserFile) -> None:
    specs = [
        FunctionSpec("mine", f"{user_file(MINE)}:mine"),
        FunctionSpec("exact", "exact_match"),
        FunctionSpec("accuracy", "accuracy"),
    ]
    batch = Batch(prompts=[""] * 2, completions=["1", "2"], columns={"answer": ["1", "3"]})

    async def body(engine: Engine) -> None:
        assert [(f.name, f.inline) for f in engine.functions] == [("mine", False), ("exact", True), ("accuracy", False)]
        scores = await engine.score(batch)
        assert {name: s.values for name, s in scores.items()} == {
            "mine": [3.0, 3.0],
            "exact": [1.0, 0.0],
            "accuracy": [1.0, 0.0],
        }
        assert list(await engine.score(batch, ["accuracy", "exact"])) == ["exact", "accuracy"]
        assert list(await engine.score(batch, ["exact"])) == ["exact"]

    run(specs, 1, body)


@pytest.mark.parametrize("count", [3, 2000])
def test_inline_blames_the_sample_that_raises(count: int) -> None:
    """A completion that is no text makes the whole call raise; the others are scored all the same."""
    completions = [[{"content": 7}] if i == 1 else "a" for i in range(count)]
    batch = Batch(
        prompts=[""] * count,
        completions=completions,
        columns={"answer": ["a"] * count},
        statuses=["aborted" if i == 2 else "completed" for i in range(count)],
    )

    async def body(engine: Engine) -> None:
        scores = (await engine.score(batch))["e"]
        assert scores.values == [None if i in (1, 2) else 1.0 for i in range(count)]
        assert [(f.kind, f.index) for f in scores.failures] == [("exception", 1)]
        assert scores.failed == {1}

    run([FunctionSpec("e", "exact_match")], 0, body)


def test_an_empty_batch_has_no_scores() -> None:
    async def body(engine: Engine) -> None:
        assert (await engine.score(Batch(prompts=[], completions=[], columns={"answer": []})))["e"].values == []

    run([FunctionSpec("e", "exact_match")], 0, body)


def test_a_large_batch_leaves_the_event_loop_free() -> None:
    text = "x" * 1000
    batch = Batch(prompts=[""] * 2000, completions=[text] * 2000, columns={"answer": [text] * 2000})

    async def body(engine: Engine) -> None:
        scoring = asyncio.create_task(engine.score(batch))
        await asyncio.sleep(0)
        assert not scoring.done()  # without a thread it would be
        assert (await scoring)["e"].values == [1.0] * 2000

    run([FunctionSpec("e", "exact_match")], 0, body)


@pytest.mark.parametrize(
    ("target", "words"), [("accuracy", "can take long on some completions"), ("mine.py:mine", "is not built in")]
)
def test_without_workers_only_what_cannot_hang_is_taken(target: str, words: str) -> None:
    with pytest.raises(LoadError, match=f"f .{target}. {words}, so it needs a worker: set workers to 1"):
        build_engine([FunctionSpec("f", target)], workers=0, timeout_s=1)


def test_what_inline_says_agrees_with_the_loaded_module() -> None:
    async def loaded() -> bool:
        engine = Inline([FunctionSpec("e", "exact_match")])
        await engine.start()
        return engine.functions[0].inline

    assert runs_inline("exact_match")
    assert asyncio.run(loaded())
    assert not runs_inline("accuracy")
    assert not runs_inline("json:loads")
