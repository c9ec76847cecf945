"""The pure functions between logits and tokens."""

import expected
import numpy as np
import pytest
import torch

from orchestrator.generation import sampling
from orchestrator.generation.params import Sampling, sampling_problems

VOCAB = 40
SETTINGS = [
    Sampling(1),
    Sampling(1, temperature=0.0, repetition_penalty=1.4),
    Sampling(1, temperature=0.5, top_k=3),
    Sampling(1, top_p=0.3),
    Sampling(1, min_p=0.2, top_k=-1),
    Sampling(1, temperature=1.7, top_k=10, top_p=0.8, min_p=0.01, repetition_penalty=2.0),
    Sampling(1, top_k=1000),
]


def test_rows_of_different_settings_in_one_batch() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(len(SETTINGS), VOCAB)) * 3
    seen = [list(rng.integers(0, VOCAB, 5)) for _ in SETTINGS]
    marks = torch.zeros(logits.shape, dtype=torch.bool)
    for row, tokens in enumerate(seen):
        marks[row, tokens] = True
    rows = sampling.row_settings(SETTINGS, sampling.row_keys(0, 0, range(len(SETTINGS))))
    table = sampling.processed_logits(torch.tensor(logits), rows, marks).log_softmax(-1).numpy()
    for row, settings in enumerate(SETTINGS):
        assert table[row] == pytest.approx(expected.processed(logits[row], seen[row], settings), abs=1e-4)


def test_selecting_rows_keeps_their_settings() -> None:
    rows = sampling.row_settings(SETTINGS, sampling.row_keys(0, 0, range(len(SETTINGS))))
    picked = torch.tensor([5, 2])
    alone = sampling.row_settings([SETTINGS[5], SETTINGS[2]], rows.keys[[5, 2]])
    logits, seen = torch.randn(2, VOCAB), torch.zeros(2, VOCAB, dtype=torch.bool)
    both = [sampling.processed_logits(logits, settings, seen) for settings in (rows.select(picked), alone)]
    assert torch.equal(*both)


def test_draws_follow_the_distribution() -> None:
    rows = 60_000
    logits = torch.tensor([0.0, 1.0, 2.0, -torch.inf, 0.5]).expand(rows, -1)
    settings = sampling.row_settings([Sampling(1)] * rows, sampling.row_keys(7, 0, range(rows)))
    tokens, logprobs, _ = sampling.draw(logits, settings, step=0)
    shares = torch.bincount(tokens, minlength=5) / rows
    wanted = logits[0].softmax(-1)
    assert (shares - wanted).abs().max() < 4 * (0.25 / rows) ** 0.5
    assert shares[3] == 0
    assert torch.allclose(logprobs, wanted.log()[tokens])


def test_a_row_draws_the_same_in_any_company() -> None:
    logits = torch.randn(64, VOCAB)
    keys = sampling.row_keys(3, 2, range(64))
    together = sampling.draw(logits, sampling.row_settings([Sampling(1)] * 64, keys), step=5)[0]
    for row in (0, 13, 63):
        alone = sampling.row_settings([Sampling(1)], keys[[row]])
        assert sampling.draw(logits[[row]], alone, step=5)[0] == together[row]


def test_streams_are_uniform_and_apart() -> None:
    keys = np.concatenate([sampling.row_keys(seed, prompt, range(16)) for seed in (-1, 0, 1) for prompt in range(16)])
    assert len(set(keys.tolist())) == len(keys)
    numbers = np.stack([sampling.uniforms(keys, step) for step in range(200)])
    assert 0 <= numbers.min() < numbers.max() < 1
    assert abs(numbers.mean() - 0.5) < 0.005
    # Neighbouring rows and neighbouring steps are uncorrelated.
    for a, b in ((numbers[:, 1:], numbers[:, :-1]), (numbers[1:], numbers[:-1])):
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 0.02


def test_nan_is_visible() -> None:
    logits = torch.tensor([[0.0, torch.nan, 1.0]])
    _, logprobs, _ = sampling.draw(logits, sampling.row_settings([Sampling(1)], sampling.row_keys(0, 0, [0])), 0)
    assert logprobs.isnan().all()


@pytest.mark.parametrize("change", [{"max_tokens": 0}, {"temperature": -0.1}, {"top_p": 0.0}, {"top_k": -2}])
def test_values_out_of_range(change: dict[str, float]) -> None:
    ((field, problem),) = sampling_problems(Sampling(**{"max_tokens": 1, **change}))  # type: ignore[arg-type]
    assert {field} == set(change)
    assert str(change[field]) in problem
