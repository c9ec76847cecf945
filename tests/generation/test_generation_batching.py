"""Jobs that come and go between two tokens: what they are answered, what the model is made to read, and when."""

import itertools
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import expected
import numpy as np
import pytest
import tiny_llama
import torch
from transformers import MambaConfig, MambaForCausalLM, MistralConfig, MistralForCausalLM

from orchestrator.generation import padding, sampling
from orchestrator.generation.batch import Batch
from orchestrator.generation.cache import survivors
from orchestrator.generation.engine import Engine
from orchestrator.generation.jobs import Flight, Job, Output
from orchestrator.generation.params import Sampling

POSITIONS = 1024
TIMEOUT_S = 30.0
SETTINGS = (
    Sampling(1),
    Sampling(1, temperature=0.7, top_k=9),
    Sampling(1, top_p=0.7, repetition_penalty=1.3),
    Sampling(1, temperature=0.0),
)
# Turn at which they come, tokens of the prompt, choices, tokens asked for.
ARRIVALS = (
    (0, 2, 3, 40), (0, 3, 2, 9), (0, 150, 4, 12), (0, 120, 1, 30), (2, 1, 1, 1), (3, 90, 8, 5), (3, 90, 8, 3),
    (9, 5, 6, 70), (12, 300, 2, 2), (20, 31, 1, 45), (41, 8, 3, 8), (41, 200, 1, 60),
)  # fmt: skip


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_llama.model(max_position_embeddings=POSITIONS).requires_grad_(False)


class Passes:
    """The attention masks and token counts of every pass of a model."""

    def __init__(self, model: Any) -> None:
        self.masks: list[torch.Tensor] = []
        self.read: list[int] = []
        self._hook = model.register_forward_pre_hook(self._note, with_kwargs=True)

    def _note(self, _: Any, __: Any, inputs: dict[str, Any]) -> None:
        width = inputs["input_ids"].shape[1]
        self.masks.append(inputs["attention_mask"])
        self.read.append(int(inputs["attention_mask"][:, -width:].sum()))

    def __enter__(self) -> "Passes":
        return self

    def __exit__(self, *_: object) -> None:
        self._hook.remove()


def job(prompt: Sequence[int], tokens: int, choices: int = 1, index: int = 0, **more: Any) -> Job:
    settings = more.pop("settings", Sampling(1))
    wanted = Sampling(**{**vars(settings), "max_tokens": tokens})
    given = {"seed": 5, "stop_ids": (), **more}
    return Job(prompt=prompt, sampling=wanted, prompt_index=index, choices=range(choices), **given)


def arrivals() -> dict[int, list[Job]]:
    rng = np.random.default_rng(0)
    found: dict[int, list[Job]] = {}
    for index, (turn, length, choices, tokens) in enumerate(ARRIVALS):
        prompt = rng.integers(2, 64, length).tolist()
        made = job(prompt, tokens, choices, index, settings=SETTINGS[index % len(SETTINGS)], stop_ids=(7,))
        found.setdefault(turn, []).append(made)
    return found


def run(model: Any, jobs: dict[int, list[Job]], refill_at: int | None = None) -> list[Flight]:
    """Every job, admitted at its turn, in order of completion."""
    batch, done, turn = Batch(model), [], 0
    with torch.inference_mode():
        while batch.num_rows or turn <= max(jobs):
            batch.refill() if turn == refill_at else batch.advance()
            if turn in jobs:
                batch.admit(jobs[turn])
            done += batch.draw()
            turn += 1
    return done


def assert_as_computed_plainly(model: Any, flights: Sequence[Flight]) -> None:
    for flight in flights:
        for row in flight.rows:
            wanted = expected.completion_logprobs(model, flight.job.prompt, row.token_ids, flight.job.sampling)
            assert row.logprobs == pytest.approx(wanted, abs=2e-4)


@pytest.mark.parametrize("refill_at", [None, 4, 25])
def test_whoever_comes_and_goes_a_row_is_what_it_is_alone(model: Any, refill_at: int | None) -> None:
    flights = run(model, arrivals(), refill_at)
    assert sorted(flight.job.prompt_index for flight in flights) == list(range(len(ARRIVALS)))
    assert_as_computed_plainly(model, flights)
    for flight in flights:
        (alone,) = run(model, {0: [flight.job]})
        assert [row.token_ids for row in alone.rows] == [row.token_ids for row in flight.rows]
        for row in flight.rows:
            assert row.token_ids[-1] == 7 or len(row.token_ids) == flight.job.sampling.max_tokens
            assert 7 not in row.token_ids[:-1]


def test_the_same_jobs_at_the_same_turns_give_the_same_bits(model: Any) -> None:
    first, second = ([[row.logprobs for row in flight.rows] for flight in run(model, arrivals())] for _ in range(2))
    assert first == second


def test_the_bound_on_padding_holds_in_every_pass(model: Any) -> None:
    with Passes(model) as passes:
        flights = run(model, arrivals(), refill_at=30)
    assert len(passes.masks) > 80
    for mask in passes.masks:
        tokens = int(mask.sum())
        assert mask.numel() - tokens <= max(padding.PADDING_SHARE * tokens, padding.PADDING_FREE)
    assert len(flights) == len(ARRIVALS)


def test_the_groups_of_a_bound_are_few_and_whole() -> None:
    rng = np.random.default_rng(1)
    for count in (1, 2, 30, 300):
        lengths = rng.integers(1, 2000, count).tolist()
        found = padding.groups(lengths)
        assert sorted(index for group in found for index in group) == list(range(count))
        some = [[lengths[index] for index in group] for group in found]
        assert all(padding.may_share(len(group), max(group), sum(group)) for group in some)
        # No group could have taken in the first of the next.
        for group, (first, *_) in itertools.pairwise(some):
            assert not padding.may_share(len(group) + 1, max(group), sum(group) + first)
    assert len(padding.groups([100] * 60 + [99] * 60)) == 1
    assert [len(group) for group in padding.groups([100] * 10, most_positions=450)] == [4, 4, 2]


def test_a_prompt_is_read_once_for_all_its_completions(model: Any) -> None:
    with Passes(model) as passes:
        run(model, {0: [job([5] * 20, 3, 8), job([6] * 21, 3, 8, 1)]})
    assert passes.read == [41, 16, 16]


def test_a_row_that_ended_is_not_computed_again(model: Any) -> None:
    with Passes(model) as passes:
        run(model, {0: [job([5, 6], tokens, 1, index) for index, tokens in enumerate((1, 2, 2, 5, 7))]})
    assert [len(mask) for mask in passes.masks] == [5, 4, 2, 2, 2, 1, 1]


def test_rows_of_different_jobs_share_the_passes(model: Any) -> None:
    with Passes(model) as passes:
        run(model, {0: [job([5, 6], 8, 2)], 2: [job([7, 8, 9], 4, 3, 1)]})
    # Prompt, two passes of two rows, then the new prompt by itself, then all five.
    assert [len(mask) for mask in passes.masks] == [1, 2, 2, 1, 5, 5, 5, 2, 2]


def test_a_row_draws_from_its_own_stream(model: Any) -> None:
    (flight,) = run(model, {0: [job([5, 6], 20, 3, index=4, seed=9)]})
    for choice, row in enumerate(flight.rows):
        settings = sampling.row_settings([Sampling(1)], sampling.row_keys(9, 4, [choice]))
        for step, token in enumerate(row.token_ids):
            logits = torch.tensor(expected.logits_of(model, [5, 6, *row.token_ids[:step]])[-1:])
            assert sampling.draw(logits.float(), settings, step)[0] == token


def test_a_sliding_window_is_kept() -> None:
    torch.manual_seed(0)
    shape = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "initializer_range": 0.3, "sliding_window": 6}
    mistral = MistralForCausalLM(MistralConfig(**shape, **heads)).eval().requires_grad_(False)
    jobs = {0: [job([5, 9, 11] * 4, 20, 2), job([8], 20, 2, 1)], 3: [job([13, 4], 9, 1, 2)]}
    assert_as_computed_plainly(mistral, run(mistral, jobs))


def test_a_model_without_a_kv_cache_is_refused() -> None:
    mamba = MambaForCausalLM(MambaConfig(vocab_size=64, hidden_size=16, num_hidden_layers=1)).eval()
    with pytest.raises(ValueError, match="does not keep its tokens in a KV cache"):
        run(mamba, {0: [job([5, 6], 2)]})


def test_survivors_fill_the_holes() -> None:
    kept = survivors(torch.tensor([True, False, True, False, False, True, True]))
    assert kept.tolist() == [0, 5, 2, 6]
    assert survivors(torch.tensor([False, False, True])).tolist() == [2]


@pytest.fixture
def engine(model: Any) -> Iterator[Engine]:
    running = Engine(model, max_batch_rows=8)
    running.start()
    yield running
    running.stop()
    running._thread.join(TIMEOUT_S)


def submit(engine: Engine, *jobs: Job) -> list[Future[Output]]:
    return engine.submit(jobs)


def test_a_request_does_not_wait_for_a_longer_one(engine: Engine) -> None:
    (long,) = submit(engine, job([5], POSITIONS - 1))
    for index in range(3):
        (short,) = submit(engine, job([6, 7], 3, 2, index))
        assert [row.finish_reason for row in short.result(TIMEOUT_S).rows] == ["length", "length"]
    assert not long.done()
    assert len(long.result(TIMEOUT_S).rows[0].token_ids) == POSITIONS - 1


def test_never_more_rows_than_allowed_and_nobody_is_passed_over(engine: Engine, model: Any) -> None:
    with Passes(model) as passes:
        engine.pause("wait").result(TIMEOUT_S)
        ended: list[int] = []
        futures = submit(engine, *(job([5, 6], 4 + index, choices, index) for index, choices in enumerate((5, 8, 1))))
        for index, future in enumerate(futures):
            future.add_done_callback(lambda _, index=index: ended.append(index))
        engine.resume()
        assert [len(future.result(TIMEOUT_S).rows) for future in futures] == [5, 8, 1]
    assert max(len(mask) for mask in passes.masks) == 8
    assert ended == [0, 1, 2]


def test_a_call_waits_for_the_rows_and_later_jobs_for_the_call(engine: Engine) -> None:
    order: list[str] = []
    (before,) = submit(engine, job([5], 400))
    submit(engine, job([6], 1))[0].result(TIMEOUT_S)  # so that the long one is under way
    before.add_done_callback(lambda _: order.append("before"))
    called = engine.call(lambda: order.append("call"))
    (after,) = submit(engine, job([6], 1))
    after.add_done_callback(lambda _: order.append("after"))
    after.result(TIMEOUT_S)
    called.result(TIMEOUT_S)
    assert order == ["before", "call", "after"]


def test_a_job_that_cannot_start_leaves_the_others_alone(engine: Engine, model: Any) -> None:
    started = threading.Event()

    def refuse(_: Any, __: Any, inputs: dict[str, Any]) -> None:
        started.set()
        if inputs["input_ids"].shape[1] == 33:
            raise MemoryError("too much")

    hook = model.register_forward_pre_hook(refuse, with_kwargs=True)
    try:
        (long,) = submit(engine, job([5], 300))
        assert started.wait(TIMEOUT_S)
        (refused,) = submit(engine, job([6] * 33, 2))
        with pytest.raises(MemoryError):
            refused.result(TIMEOUT_S)
        assert len(long.result(TIMEOUT_S).rows[0].token_ids) == 300
    finally:
        hook.remove()


def test_broken_weights_fail_what_is_under_way_and_nothing_later(engine: Engine, model: Any) -> None:
    weight = model.model.norm.weight
    kept = weight.clone()
    with torch.no_grad():
        weight.fill_(torch.nan)
    failed = submit(engine, job([5], 4, 2), job([6], 4, settings=Sampling(1, top_k=3, top_p=0.9)))
    for future in failed:
        with pytest.raises(FloatingPointError):
            future.result(TIMEOUT_S)
    with torch.no_grad():
        weight.copy_(kept)
    (good,) = submit(engine, job([5], 4, 2))
    assert len(good.result(TIMEOUT_S).rows) == 2


def test_stopping_answers_what_is_under_way(engine: Engine) -> None:
    (long,) = submit(engine, job([5], POSITIONS - 1))
    submit(engine, job([6], 1))[0].result(TIMEOUT_S)  # as above
    engine.stop()
    (row,) = long.result(TIMEOUT_S).rows
    assert row.finish_reason == "abort"
    assert 0 < len(row.token_ids) == len(row.logprobs) < POSITIONS - 1
