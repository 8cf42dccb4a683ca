"""Sampling on the device draws what its reference draws: rows of every kind, and some made by hand.

That the reference is the engine's numpy sampler is for `tests/engine/test_sampling_on_device.py`.
"""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.kernels.conftest import CUDA
from tests.kernels.sampled import Case, Rows, assert_same, draw, expected, joined, on_device, sampled
from tests.kernels.wishes import cases, rows

from paceline_kernels.sample.launch import Scratch, launch_for, sample
from paceline_kernels.sample.reference import TOKEN, bits, gumbel
from paceline_kernels.sample.state import FROM_PROMPT, MOST, TOP, SampleOutput, SamplingParams

EXAMPLES = 100 if CUDA else 3
UNSHRUNK = (Phase.reuse, Phase.generate)
"""The interpreter would take minutes to make a failure small."""
DEVICE = torch.device("cuda" if CUDA else "cpu")
FLAT = np.zeros((1, 8), dtype=np.float32)


def logits(count: int, vocab: int, spread: float = 3.0, seed: int = 0) -> Rows:
    made: Rows = (np.random.default_rng(seed).standard_normal((count, vocab)) * spread).astype(np.float32)
    return made


@pytest.mark.parametrize("vocab", [1, 2, 63, 64, 65, 131])
@settings(max_examples=EXAMPLES, phases=UNSHRUNK)
@given(st.data())
def test_draws_are_those_of_the_reference(vocab: int, data: st.DataObject) -> None:
    wishes = data.draw(st.lists(cases(vocab), min_size=2, max_size=3))
    made = data.draw(rows(len(wishes), vocab))
    assert_same(draw(made, wishes, DEVICE), expected(made, wishes), wishes)


@pytest.mark.parametrize("vocab", [1025, 4097])
def test_a_vocabulary_of_many_ids_is_drawn_from_by_the_tables_own_launches(vocab: int, device: torch.device) -> None:
    wishes = [
        Case(SamplingParams(seed=1)),
        Case(SamplingParams(seed=2, top_k=40, top_p=0.9, logprobs=2)),
        Case(SamplingParams(temperature=0.0)),
    ]
    made = logits(3, vocab)
    assert_same(draw(made, wishes, device, launch_for(3)), expected(made, wishes), wishes)


def test_flat_rows_are_drawn_by_noise_alone(device: torch.device) -> None:
    wishes = [Case(SamplingParams(seed=seed, choice=seed % 3), [1] * (seed + 1)) for seed in range(4)]
    made = np.zeros((len(wishes), 131), dtype=np.float32)
    assert_same(draw(made, wishes, device), expected(made, wishes), wishes)


def test_the_noise_of_each_id_is_right_to_a_rounding_of_float64(device: torch.device) -> None:
    """Rows in which one token alone may come: their scores are its noise."""
    vocab, seed = 70, -(1 << 62) + 5
    wishes = [Case(SamplingParams(seed=seed, choice=3), [1] * 9) for _ in range(6)]
    made = np.full((6, vocab), -np.inf, dtype=np.float32)
    ids = [0, 1, 2, 63, 67, 69]
    made[range(6), ids] = 0.0
    drawn, found = sampled(torch.from_numpy(made).to(device), wishes)
    assert drawn.tokens.tolist() == ids
    theirs = gumbel(bits(seed, 3, 9, TOKEN, vocab))[ids]
    np.testing.assert_allclose(found.scores.max(dim=1).values.cpu(), theirs, rtol=0, atol=1e-14)


LUCKY = {1: 20, 2: 20, 419: 56, 1637: 15}
"""Seeds, and a token under each; the noise of the last two is above 12, which float32 only gets right from 1 - u."""


@pytest.mark.parametrize("seventh", [False, True])
def test_less_than_float32_can_tell_decides_as_in_float64(seventh: bool, device: torch.device) -> None:
    """The seventh token's logit is raised until, with noise, it is just before the other one, or just behind it."""
    made = np.full((len(LUCKY), 64), -np.inf, dtype=np.float32)
    for row, (seed, token) in enumerate(LUCKY.items()):
        found = gumbel(bits(seed, 0, 1, TOKEN, 64)).numpy()
        level = 1.0 + found[token] - found[7]
        made[row, token], made[row, 7] = 1.0, level
        if (float(made[row, 7]) > level) != seventh:
            made[row, 7] = np.nextafter(made[row, 7], np.float32(np.inf if seventh else -np.inf))
    wishes = [Case(SamplingParams(seed=seed)) for seed in LUCKY]
    drawn = draw(made, wishes, device)
    assert drawn.tokens.tolist() == ([7] * len(LUCKY) if seventh else list(LUCKY.values()))


def kept(asked: dict[str, Any], row: list[float], device: torch.device) -> list[int]:
    """The ids above the floor that is found for a row, and those at it up to the last."""
    case, logits = [Case(SamplingParams(**asked))], torch.tensor([row], device=device)
    found = sampled(logits, case)[1]
    ids = torch.arange(len(row), device=device)
    stays = (logits[0] > found.cutoffs) | ((logits[0] == found.cutoffs) & (ids <= found.lasts))
    left: list[int] = stays.nonzero().flatten().tolist()
    return left


@pytest.mark.parametrize(
    ("asked", "row", "left"),
    [
        ({}, [1, 0, -1], [0, 1, 2]),
        ({"temperature": 0.0, "top_k": 1}, [1, 0, -1], [0, 1, 2]),
        ({"top_k": 2}, [1, 0, 0, -1], [0, 1, 2]),
        ({"top_k": 1}, [0, 0, 0, 0], [0, 1, 2, 3]),
        ({"top_k": 3}, [-math.inf, 0, -math.inf, -1], [1, 3]),
        ({"top_p": 0.5}, [0, 0, 0, 0], [0, 1]),
        ({"top_p": 0.51}, [-9, 0, 0, 0, 0], [1, 2, 3]),
        ({"top_p": 0.0}, [0, 1, 1], [1]),
        ({"min_p": 0.5}, [0, -0.6, -0.7], [0, 1]),
        ({"min_p": 0.5, "temperature": 2.0}, [0, -1.3, -1.4], [0, 1]),
        ({"top_k": 3, "top_p": 0.7}, [0, 0, 0, -0.1], [0, 1, 2]),
        ({"min_p": 1.0, "top_p": 0.4}, [2, 2, 2, 1], [0, 1]),
        ({"top_p": 0.6}, [0] * 130, list(range(78))),
        ({"top_k": 2}, [*[-5] * 90, 1, *[-5] * 60, 2, 1], [90, 151, 152]),
        ({"top_k": 4}, [5, 4, *[-5] * 150, 3, *[-5] * 150, 2, *[-5] * 90, 1], [0, 1, 152, 303]),
        ({"top_k": 2}, [1.0, 1.0000001, 1.0], [0, 1, 2]),
    ],
    ids=str,
)
def test_filters_leave_what_their_words_say(
    asked: dict[str, Any], row: list[float], left: list[int], device: torch.device
) -> None:
    assert kept(asked, row, device) == left


def test_of_equals_only_those_that_the_nucleus_needs_are_drawn(device: torch.device) -> None:
    wishes = [Case(SamplingParams(seed=seed, top_p=0.6)) for seed in range(6)]
    assert set(draw(np.zeros((6, 3), dtype=np.float32), wishes, device).tokens.tolist()) == {0, 1}


@pytest.mark.parametrize("token", [0, 63, 64, 127, 128, 129])
def test_a_bias_reaches_the_first_and_the_last_id_of_each_chunk(token: int, device: torch.device) -> None:
    wish = Case(SamplingParams(0.0, bias={1: 1.0, 66: 1.0, token: 2.0}))
    assert draw(np.zeros((1, 130), dtype=np.float32), [wish], device).tokens.tolist() == [token]


def test_a_chunk_of_which_filters_leave_nothing_wins_nothing(device: torch.device) -> None:
    made = np.zeros((2, 130), dtype=np.float32)
    made[:, [3, 70]] = [30.0, 29.0]
    wishes = [Case(SamplingParams(4.0, top_k=1)), Case(SamplingParams(4.0, top_p=0.1, presence=0.5))]
    assert draw(made, wishes, device).tokens.tolist() == [3, 3]


def test_a_greedy_row_takes_the_first_of_the_best_across_chunks(device: torch.device) -> None:
    made = np.zeros((1, 200), dtype=np.float32)
    made[0, [70, 71, 190]] = 1.0
    assert draw(made, [Case(SamplingParams(temperature=0.0))], device).tokens.tolist() == [70]


def test_penalties_and_bias_change_what_is_best(device: torch.device) -> None:
    row = np.array([[4.0, 3.5, 3.0, -1.0, 2.75]] * 5, dtype=np.float32)
    wishes = [
        Case(SamplingParams(0.0, repetition=2.0), [0], [1]),
        Case(SamplingParams(0.0, presence=0.75), [0, 1], [0, 0]),
        Case(SamplingParams(0.0, frequency=0.75), [0, 1], [0, 0]),
        Case(SamplingParams(0.0, bias={3: 6.0, 99: 50.0}), [0]),
        Case(SamplingParams(0.0), [0], [], 1, [0, 1, 2]),
    ]
    assert draw(row, wishes, device).tokens.tolist() == [2, 1, 1, 3, 4]


def test_a_draw_counts_for_the_next_step_before_the_host_has_seen_it(device: torch.device) -> None:
    """Three steps in a row on the device are what the host does when it waits for each token."""
    wish = Case(SamplingParams(seed=4, frequency=1.5, presence=0.5, repetition=2.0, temperature=0.5), [2, 3], [5])
    made = np.round(logits(1, 9) * 64) / np.float32(64)
    state, output = joined([wish], 9, device), list(wish.output)
    for _ in range(3):
        now = Case(wish.asked, wish.prompt, tuple(output))
        drawn = on_device(torch.from_numpy(made).to(device), [now], state)
        assert_same(drawn, expected(made, [now]), [now])
        output.append(int(drawn.tokens[0]))
    assert torch.equal(state.counts.cpu(), joined([Case(wish.asked, wish.prompt, output)], 9, device).counts.cpu())


def test_a_count_stands_still_at_its_most_and_nobody_counts_without_penalties(device: torch.device) -> None:
    wishes = [
        Case(SamplingParams(temperature=0.0, repetition=2.0), [3], [3]),
        Case(SamplingParams(temperature=0.0), [3], [3]),
    ]
    wishes.append(Case(SamplingParams(temperature=0.0, presence=0.5), [], [3] * MOST))
    state = joined(wishes, 6, device)
    on_device(torch.eye(6, device=device)[[3, 3, 3]] * 9, wishes, state)
    assert state.counts[:, 3].tolist() == [MOST, 0, FROM_PROMPT + 2]  # slots are taken from the last one on


def test_tokens_stop_a_request_only_from_its_minimum_on_and_its_end_always(device: torch.device) -> None:
    row = np.array([[0.0, 5.0, 0.0]] * 5, dtype=np.float32)
    greedy = SamplingParams(temperature=0.0)
    wishes = [
        Case(greedy, [0], [0], 1, [1]),
        Case(greedy, [0], [0], 2, [1]),
        Case(greedy, [0], [0], 0, [2]),
        Case(greedy, [0], [0], 0, end=3),
        Case(greedy, [0], [0], 0, end=4),
    ]
    drawn = draw(row, wishes, device)
    assert drawn.tokens.tolist() == [1, 0, 1, 1, 1]
    assert drawn.stopped.tolist() == [True, False, False, True, False]


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("asked", [{}, {"temperature": 0.0}, {"top_k": 2, "presence": 0.5}, {"top_p": 0.5}], ids=str)
def test_logits_that_are_no_numbers_stop_their_own_row_alone(
    poison: float, asked: dict[str, Any], device: torch.device
) -> None:
    made = logits(3, 70)
    made[1] = poison
    made[2, 65] = poison
    wishes = [Case(SamplingParams(**asked), [1], [2])] * 3
    drawn = draw(made, wishes, device)
    assert_same(drawn, expected(made, wishes), wishes)
    assert drawn.stopped.tolist() == [False, True, poison != -math.inf]
    assert int(drawn.tokens[1]) == 0


def test_a_row_whose_every_id_is_barred_has_no_token(device: torch.device) -> None:
    drawn = draw(FLAT, [Case(SamplingParams(), [1], [], 1, range(8))], device)
    assert drawn.best.tolist() == [-math.inf]
    assert drawn.stopped.tolist() == [True]


def test_log_probabilities_are_of_the_models_own_distribution_best_first(device: torch.device) -> None:
    made = np.full((2, 130), -20.0, dtype=np.float32)
    made[:, [3, 129, 64, 66]] = [1.0, 2.0, 1.0, 1.0]
    wishes = [
        Case(SamplingParams(logprobs=4, bias={5: 90.0}, temperature=0.0)),
        Case(SamplingParams(logprobs=20, top_p=0.1)),
    ]
    drawn = draw(made, wishes, device)
    assert_same(drawn, expected(made, wishes), wishes)
    assert drawn.top_ids[0, :4].tolist() == [129, 3, 64, 66]
    assert drawn.top_ids[1, 4:].tolist() == [0, 1, 2, *range(4, 17)]


def test_more_log_probabilities_than_ids_end_with_the_vocabulary(device: torch.device) -> None:
    drawn = draw(FLAT[:, :3], [Case(SamplingParams(logprobs=5))], device)
    assert drawn.top_ids[0, :5].tolist() == [0, 1, 2, -1, -1]
    assert drawn.top_logprobs[0, :3].tolist() == pytest.approx([-math.log(3)] * 3)


def test_rows_without_a_request_take_part_in_nothing(device: torch.device) -> None:
    wish = Case(SamplingParams(presence=0.5, temperature=0.0), [])
    state, made = joined([wish], 8, device), torch.full((3, 8), math.nan, device=device)
    made[1] = torch.arange(8)
    places = torch.tensor([-1, 0, -1], dtype=torch.int32, device=device)
    drawn = sample(made, places, places + 1, state, Scratch.empty(3, 8, device), SampleOutput.empty(3, device))
    assert drawn.tokens.tolist() == [0, 7, 0]
    assert drawn.stopped.tolist() == [True, False, True]
    assert drawn.best.tolist() == [0.0, 7.0, 0.0]
    assert state.counts.tolist() == [[0] * 7 + [1]]


def test_a_row_is_drawn_alike_in_any_company_and_any_stride(device: torch.device) -> None:
    wishes = [Case(SamplingParams(seed=seed, temperature=0.5 + seed)) for seed in range(2)]
    wide = torch.from_numpy(logits(2, 80)).to(device)
    made = wide[:, :70]
    together = on_device(made, wishes, joined(wishes, 70, device)).tokens.tolist()
    alone = [draw(made[row : row + 1].cpu().numpy(), [wish], device).tokens for row, wish in enumerate(wishes)]
    assert together == [int(token) for token in alone]


def test_nothing_changes_but_the_drawn_tokens_count(device: torch.device) -> None:
    wishes = [
        Case(SamplingParams(presence=1.0, top_k=3, logprobs=2), [1], [2]),
        Case(SamplingParams(top_p=0.5), [1], [2]),
    ]
    state, made = joined(wishes, 70, device), torch.from_numpy(logits(2, 70)).to(device)
    before = {name: getattr(state, name).clone() for name in ("numbers", "whole", "bias_ids", "stop_ids", "counts")}
    copied = made.clone()
    token = int(on_device(made, wishes, state).tokens[0])
    before["counts"][1, token] += 1
    assert torch.equal(made, copied)
    assert all(torch.equal(getattr(state, name), value) for name, value in before.items())


def test_sampling_refuses_arguments_that_do_not_fit_each_other(device: torch.device) -> None:
    wish = Case(SamplingParams())
    state, one = joined([wish], 8, device), torch.zeros(1, dtype=torch.int32, device=device)
    room, drawn, flat = Scratch.empty(1, 8, device), SampleOutput.empty(1, device), torch.zeros(1, 8, device=device)
    wrong: list[tuple[str, Any]] = [
        ("token ids", (flat[:, :7], one, one, state, room, drawn)),
        ("contiguous", (torch.zeros(1, 16, device=device)[:, ::2], one, one, state, room, drawn)),
        ("one a row", (flat, one[:0], one, state, room, drawn)),
        ("int32", (flat, one, one.long(), state, room, drawn)),
        ("scratch", (flat.repeat(2, 1), one.repeat(2), one.repeat(2), state, room, SampleOutput.empty(2, device))),
        ("drawn", (flat, one, one, state, room, SampleOutput.empty(0, device))),
    ]
    for words, arguments in wrong:
        with pytest.raises(ValueError, match=words):
            sample(*arguments)


def test_there_is_room_for_all_log_probabilities_that_the_api_takes() -> None:
    assert SampleOutput.empty(2, "cpu").top_ids.shape == (2, TOP)
