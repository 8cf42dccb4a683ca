"""Sampling: filters, and noise of four numbers alone; the distributions are in `test_sampling_statistics`."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.engine.reference_scheduler import request
from tests.every import cases

from paceline_workers.engine.sampling import Purpose, filtered, logprobs, noise, sample
from paceline_workers.engine.scheduling import Request
from paceline_workers.messages import Sampling

LOGITS = np.array([2.0, 1.5, 1.0, 0.5, 0.0, -0.5, -1.0, -3.0], dtype=np.float32)


def entry(position: int = 1, **sampling: Any) -> Request:
    made = request("a", [1] * position, 9)
    made.sampling = Sampling(**sampling)
    return made


def softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    weights = np.exp(logits - logits.max())
    shares: NDArray[np.float64] = weights / weights.sum()
    return shares


def test_temperature_0_takes_the_best_and_the_first_of_equals() -> None:
    rows = np.stack([LOGITS, np.zeros(8, dtype=np.float32)])
    assert [one.token for one in sample(rows, [entry(temperature=0.0)] * 2)] == [0, 0]


@cases(
    ("sampling", "kept"),
    [
        (Sampling(top_k=1), 1),
        (Sampling(top_k=3), 3),
        (Sampling(top_k=99), 8),
        (Sampling(top_p=0.0), 1),
        (Sampling(top_p=0.39), 1),
        (Sampling(top_p=0.5), 2),
        (Sampling(top_p=1.0), 8),
        (Sampling(top_k=2, top_p=0.99), 2),
    ],
)
def test_filters_keep_the_best_tokens(sampling: Sampling, kept: int) -> None:
    row = filtered(LOGITS.astype(np.float64), sampling)
    assert np.isfinite(row).tolist() == [True] * kept + [False] * (8 - kept)


def test_ties_at_the_border_of_top_k_all_stay() -> None:
    assert np.isfinite(filtered(np.array([1.0, 0.0, 0.0, -1.0]), Sampling(top_k=2))).sum() == 3


@given(
    st.lists(st.floats(-20, 20), min_size=2, max_size=30),
    st.floats(0.05, 3.0),
    st.floats(0.0, 1.0),
    st.integers(0, 40),
)
def test_the_nucleus_is_the_smallest_set_that_reaches_top_p(
    logits: list[float], temperature: float, top_p: float, top_k: int
) -> None:
    row = np.array(logits)
    kept = np.isfinite(filtered(row, Sampling(temperature=temperature, top_p=top_p, top_k=top_k)))
    before = np.isfinite(filtered(row, Sampling(temperature=temperature, top_k=top_k)))
    shares = softmax(np.where(before, row / temperature, -np.inf))
    assert kept.any()
    assert not (kept & ~before).any()
    assert shares[kept].sum() >= min(top_p, 1.0) - 1e-9
    assert shares[kept].sum() - shares[kept].min() <= top_p + 1e-9


@pytest.mark.parametrize("changed", [{"seed": 4}, {"choice": 1}, {"position": 8}])
def test_noise_differs_with_each_of_its_numbers_and_with_nothing_else(changed: dict[str, int]) -> None:
    numbers = {"seed": 3, "choice": 0, "position": 7}
    first = noise(**numbers, purpose=Purpose.TOKEN, size=64)
    assert (first == noise(**numbers, purpose=Purpose.TOKEN, size=64)).all()
    assert (first == noise(**numbers, purpose=Purpose.TOKEN, size=128)[:64]).all()
    assert (first != noise(**{**numbers, **changed}, purpose=Purpose.TOKEN, size=64)).all()


def test_noise_is_pinned_so_that_a_stream_can_move_between_versions() -> None:
    seen = noise(seed=1, choice=2, position=3, purpose=Purpose.TOKEN, size=3)
    assert seen.tolist() == pytest.approx([-0.6858337622251235, -0.39920842065106577, -0.3115990568809628])


def test_any_whole_number_is_a_seed_and_large_ones_stay_apart() -> None:
    seeds = (-2, -1, 0, 2**53, 2**53 + 1, 2**63, 2**63 + 1)
    rows = [noise(seed, 0, 0, Purpose.TOKEN, 100) for seed in seeds]
    assert all(np.isfinite(row).all() for row in rows)
    assert len({row.tobytes() for row in rows}) == len(seeds)


def test_a_draw_depends_on_the_absolute_position_and_not_on_what_counts_as_prompt() -> None:
    fresh, resumed = entry(12, seed=9), entry(12, seed=9)
    resumed.prompt_len = 4
    assert sample(LOGITS[None], [fresh]) == sample(LOGITS[None], [resumed])


def test_stop_ids_cannot_be_drawn_before_min_tokens() -> None:
    made = entry(temperature=0.0)
    made.stop_ids = frozenset({0, 999})
    made.min_tokens = 1
    assert sample(LOGITS[None], [made])[0].token == 1
    made.tokens.append(1)
    assert sample(LOGITS[None], [made])[0].token == 0


def test_logprobs_are_of_the_models_own_distribution_best_first() -> None:
    row = LOGITS.astype(np.float64)
    chosen, top = logprobs(row, 3, 2)
    total = math.log(np.exp(row).sum())
    assert chosen == pytest.approx(0.5 - total)
    assert [token for token, _ in top] == [0, 1]
    assert [value for _, value in top] == pytest.approx([2.0 - total, 1.5 - total])


def test_logprobs_are_given_only_when_asked_for() -> None:
    assert sample(LOGITS[None], [entry(temperature=0.0)])[0].logprobs is None
    (one,) = sample(LOGITS[None], [entry(temperature=0.0, logprobs=0)])
    assert one.logprobs is not None
    assert one.logprobs[1] == []


def test_a_batch_samples_like_its_rows_alone() -> None:
    requests = [entry(position, seed=position % 3, temperature=1.0, top_p=0.9) for position in range(1, 20)]
    rows = np.stack([np.roll(LOGITS, place) for place in range(len(requests))])
    alone = [sample(row[None], [made])[0] for row, made in zip(rows, requests, strict=True)]
    assert sample(rows, requests) == alone
