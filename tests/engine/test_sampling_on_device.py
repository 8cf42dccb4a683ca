"""The device draws what the numpy sampler draws, from the bits of its noise on: the reference, and the kernels too."""

import math
from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.engine.reference_scheduler import request
from tests.kernels.sampled import Case, Rows, draw, expected
from tests.kernels.wishes import cases, rows

from paceline_kernels.sample import state
from paceline_kernels.sample.reference import TOKEN, bits, gumbel
from paceline_workers.engine.sampling import Purpose, sample
from paceline_workers.engine.sampling.sample import GREEDY
from paceline_workers.engine.sampling.sample import bits as philox
from paceline_workers.engine.sampling.sample import gumbel as noise
from paceline_workers.engine.scheduling import Request
from paceline_workers.messages import Sampling

CPU = torch.device("cpu")


def on_host(case: Case) -> Request:
    fields = asdict(case.asked)
    made = request("a", list(case.prompt), 99, stop_ids=frozenset(case.stops), min_tokens=case.minimum)
    made.tokens += case.output
    made.choice = fields.pop("choice")
    for name in ("stop_ids", "least", "end"):
        del fields[name]
    made.sampling = Sampling(**fields)
    return made


def assert_drawn(drawn: state.SampleOutput, logits: Rows, wishes: Sequence[Case]) -> None:
    """Tokens, faults and log-probabilities are those of the numpy sampler."""
    for row, told in enumerate(sample(logits, [on_host(case) for case in wishes])):
        best = float(drawn.best[row])
        assert math.isfinite(best) == (told.error == "")
        if told.error:
            assert str(best) in told.error or (best == -math.inf and "No token" in told.error)
            continue
        assert int(drawn.tokens[row]) == told.token
        if told.logprobs is not None and math.isfinite(logits[row].max()):  # a barred id may have any
            chosen, top = told.logprobs
            assert float(drawn.logprob[row]) == pytest.approx(chosen, 1e-5, 1e-5)
            assert drawn.top_ids[row, : len(top)].tolist() == [token for token, _ in top]
            assert drawn.top_logprobs[row, : len(top)].tolist() == pytest.approx(
                [value for _, value in top], 1e-5, 1e-5
            )


@given(st.integers(-(1 << 63), (1 << 64) - 1), st.integers(0, 127), st.integers(0, 1 << 40), st.integers(1, 41))
def test_bits_are_those_of_numpys_philox(seed: int, choice: int, position: int, size: int) -> None:
    ours = bits(seed, choice, position, TOKEN, size)
    assert (ours.numpy().view(np.uint64) == philox(seed, choice, position, Purpose.TOKEN, size)).all()


def test_noise_is_the_same_to_a_rounding_of_float64() -> None:
    raw = philox(5, 0, 7, Purpose.TOKEN, 1000)
    np.testing.assert_allclose(gumbel(torch.from_numpy(raw.view(np.int64))), noise(raw), rtol=0, atol=1e-15)


@settings(max_examples=60)
@given(st.data())
def test_the_reference_draws_what_the_numpy_sampler_draws(data: st.DataObject) -> None:
    wishes = data.draw(st.lists(cases(13), min_size=1, max_size=4))
    logits = data.draw(rows(len(wishes), 13))
    assert_drawn(expected(logits, wishes), logits, wishes)


@pytest.mark.kernels
@settings(max_examples=3, phases=(Phase.reuse, Phase.generate))
@given(st.data())
def test_the_kernels_draw_what_the_numpy_sampler_draws(data: st.DataObject) -> None:
    wishes = data.draw(st.lists(cases(70), min_size=2, max_size=3))
    logits = data.draw(rows(len(wishes), 70))
    assert_drawn(draw(logits, wishes, CPU), logits, wishes)


def test_both_are_greedy_below_the_same_temperature() -> None:
    assert state.GREEDY == GREEDY
