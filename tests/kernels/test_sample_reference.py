"""Sampling's reference in PyTorch says what the engine's numpy sampler does, from the bits of its noise on."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kernels.sampled import Case, assert_same, expected, joined, positions, slots
from tests.kernels.wishes import cases, rows

from paceline_kernels.sample.reference import TOKEN, bits, gumbel, sample
from paceline_kernels.sample.state import MOST, Asked, Drawn, State, fits, tally
from paceline_workers.engine.sampling.noise import Purpose
from paceline_workers.engine.sampling.noise import bits as philox
from paceline_workers.engine.sampling.noise import gumbel as noise

CPU = torch.device("cpu")


@given(st.integers(-(1 << 63), (1 << 64) - 1), st.integers(0, 127), st.integers(0, 1 << 40), st.integers(1, 41))
def test_bits_are_those_of_numpys_philox(seed: int, choice: int, position: int, size: int) -> None:
    ours = bits(seed, choice, position, TOKEN, size)
    assert (ours.numpy().view(np.uint64) == philox(seed, choice, position, Purpose.TOKEN, size)).all()


def test_noise_is_the_same_to_a_rounding_of_float64() -> None:
    raw = philox(5, 0, 7, Purpose.TOKEN, 1000)
    np.testing.assert_allclose(gumbel(torch.from_numpy(raw.view(np.int64))), noise(raw), rtol=0, atol=1e-15)


@settings(max_examples=60)
@given(st.data())
def test_tokens_faults_and_logprobs_are_those_of_the_numpy_sampler(data: st.DataObject) -> None:
    wishes = data.draw(st.lists(cases(13), min_size=1, max_size=4))
    logits = data.draw(rows(len(wishes), 13))
    state = joined(wishes, 13, CPU)
    drawn = sample(torch.from_numpy(logits), slots(wishes, CPU), positions(wishes, CPU), state, Drawn.empty(4, CPU))
    assert_same(drawn, expected(logits, wishes))


def test_a_tally_counts_the_output_and_marks_the_prompt() -> None:
    counts = tally([0, 2, 2], [2, 1, 1], 4)
    assert (counts & MOST).tolist() == [0, 2, 1, 0]
    assert (counts < 0).tolist() == [True, False, True, False]


def test_a_count_stays_at_its_most() -> None:
    assert int(tally([], [1] * (MOST + 5), 2)[1]) == MOST


@pytest.mark.parametrize(
    "asked", [Asked(bias=dict.fromkeys(range(1025), 1.0)), Asked(stop_ids=range(129)), Asked(logprobs=21)]
)
def test_what_the_device_has_no_room_for_is_refused_with_the_way_out(asked: Asked) -> None:
    assert not fits(asked)
    with pytest.raises(ValueError, match="sample on the host"):
        State.empty(1, 2000, CPU).join(0, asked)


def test_a_slots_next_owner_inherits_nothing() -> None:
    state = State.empty(1, 8, CPU)
    Case(Asked(repetition=2.0, bias={1: 5.0}, logprobs=3), [3], [4], 2, [5]).join(state, 0)
    Case(Asked(temperature=0.0, presence=0.5), [1], [2]).join(state, 0)
    plain = State.empty(1, 8, CPU)
    Case(Asked(temperature=0.0, presence=0.5), [1], [2]).join(plain, 0)
    for name in ("numbers", "whole", "counts"):
        assert torch.equal(getattr(state, name), getattr(plain, name))


def test_drawn_is_one_piece_of_memory_with_all_its_fields() -> None:
    device, host = Drawn.empty(3, CPU), Drawn.empty(3, CPU)
    device.tokens[2], device.top_ids[1, 19], device.stopped[0], device.logprob[1] = 1 << 40, 7, True, -2.5
    host.packed.copy_(device.packed)
    assert host.tokens.tolist() == [0, 0, 1 << 40]
    assert int(host.top_ids[1, 19]) == 7
    assert host.stopped.tolist() == [True, False, False]
    assert host.logprob.tolist() == [0.0, -2.5, 0.0]
