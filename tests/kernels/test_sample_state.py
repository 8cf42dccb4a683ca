"""What is kept of requests on the device, and what comes back of them."""

import pytest
import torch
from tests.kernels.sampled import Case

from paceline_kernels.sample.state import MOST, WORDS, SampleOutput, SamplerState, SamplingParams, fits, tally

CPU = torch.device("cpu")


def test_a_tally_counts_the_output_and_marks_the_prompt() -> None:
    counts = tally([0, 2, 2], [2, 1, 1], 4)
    assert (counts & MOST).tolist() == [0, 2, 1, 0]
    assert (counts < 0).tolist() == [True, False, True, False]


def test_a_count_stays_at_its_most() -> None:
    assert int(tally([], [1] * (MOST + 5), 2)[1]) == MOST


@pytest.mark.parametrize(
    "asked",
    [
        SamplingParams(bias=dict.fromkeys(range(1025), 1.0)),
        SamplingParams(stop_ids=range(129)),
        SamplingParams(logprobs=21),
    ],
)
def test_what_the_device_has_no_room_for_is_refused_with_the_way_out(asked: SamplingParams) -> None:
    assert not fits(asked)
    with pytest.raises(ValueError, match="sample on the host"):
        SamplerState.empty(1, 2000, CPU).join(0, asked)


def test_a_slots_next_owner_inherits_nothing() -> None:
    state = SamplerState.empty(1, 8, CPU)
    Case(SamplingParams(repetition=2.0, bias={1: 5.0}, logprobs=3), [3], [4], 2, [5]).join(state, 0)
    Case(SamplingParams(temperature=0.0, presence=0.5), [1], [2]).join(state, 0)
    plain = SamplerState.empty(1, 8, CPU)
    Case(SamplingParams(temperature=0.0, presence=0.5), [1], [2]).join(plain, 0)
    for name in ("numbers", "whole", "counts"):
        assert torch.equal(getattr(state, name), getattr(plain, name))


def test_every_slot_begins_where_sixteen_bytes_can_be_read_at_once() -> None:
    assert WORDS % 2 == 0


def test_drawn_is_one_piece_of_memory_with_all_its_fields() -> None:
    device, host = SampleOutput.empty(3, CPU), SampleOutput.empty(3, CPU)
    device.tokens[2], device.top_ids[1, 19], device.stopped[0], device.logprob[1] = 1 << 40, 7, True, -2.5
    host.packed.copy_(device.packed)
    assert host.tokens.tolist() == [0, 0, 1 << 40]
    assert int(host.top_ids[1, 19]) == 7
    assert host.stopped.tolist() == [True, False, False]
    assert host.logprob.tolist() == [0.0, -2.5, 0.0]
