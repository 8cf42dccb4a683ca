"""Tokens that were drawn elsewhere are counted into their slots on the device."""

import torch

from paceline_kernels.sample import reference
from paceline_kernels.sample.launch import note_drawn
from paceline_kernels.sample.state import FROM_PROMPT, MOST, Asked, State


def test_tokens_are_counted_where_counts_matter(device: torch.device) -> None:
    states = [State.empty(4, 6, device) for _ in range(2)]
    for state in states:
        state.join(0, Asked(repetition=2.0), [3], [3])
        state.join(1, Asked(), [3], [3])
        state.join(3, Asked(presence=0.5), [], [1] * MOST)
    slots = torch.tensor([0, 1, -1, 3], dtype=torch.int32, device=device)
    tokens = torch.tensor([3, 3, 3, 1], dtype=torch.int64, device=device)
    note_drawn(slots, tokens, states[0])
    reference.note_drawn(slots, tokens, states[1])
    assert int(states[0].counts[0, 3]) == FROM_PROMPT + 2
    assert int(states[0].counts[3, 1]) == MOST
    assert torch.equal(states[0].counts, states[1].counts)
    assert not states[0].counts[1:3].any()


def test_no_rows_are_nothing_to_count(device: torch.device) -> None:
    state = State.empty(1, 6, device)
    none = torch.zeros(0, dtype=torch.int32, device=device)
    note_drawn(none, none.long(), state)
    assert not state.counts.any()
