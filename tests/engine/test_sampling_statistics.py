"""Drawn tokens against exact distributions, by chi-square; and the same draws in any company and after any cut.

Seeds are fixed, so a test passes always or never. ALARM is the chance that a right sampler with other seeds would fail.
"""

import itertools
import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.engine.reference_scheduler import request
from tests.every import cases

from paceline_workers.engine.sampling import Purpose, Sampler, noise, sample
from paceline_workers.engine.sampling.sample import bits, draw
from paceline_workers.engine.scheduling import Request, RequestStatus
from paceline_workers.messages import Sampling

ALARM = 1e-4
NORMAL_QUANTILE = 3.719
"""Of 1 - ALARM."""
LOGITS = np.array([2.0, 1.7, 1.4, 0.9, 0.9, 0.3, 0.0, -0.4, -1.0, -1.5, -2.0, -5.0], dtype=np.float32)
DRAWS = 4000
SETTINGS = [
    {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
    for temperature, top_k, top_p, min_p in itertools.product((0.6, 1.4), (0, 6), (1.0, 0.8), (0.0, 0.12))
    if ((temperature > 1) + (top_k > 0) + (top_p < 1) + (min_p > 0)) % 2 == 0
]
"""Half of all mixes: of any three numbers every mix is among them."""


def critical(freedom: int) -> float:
    """Of chi-square at ALARM, by Wilson and Hilferty."""
    spread = 2 / (9 * freedom)
    return float(freedom * (1 - spread + NORMAL_QUANTILE * math.sqrt(spread)) ** 3)


def agree(seen: Sequence[int], shares: Sequence[float]) -> bool:
    """Whether counts fit the shares; a cell that cannot be must be empty, and rare cells are taken together."""
    total = sum(seen)
    cells = sorted((share * total, count) for share, count in zip(shares, seen, strict=True))
    assert not any(count for expected, count in cells if expected == 0)
    rare = [cell for cell in cells if 0 < cell[0] < 8]
    kept = [cell for cell in cells if cell[0] >= 8]
    if rare:
        kept.append((sum(expected for expected, _ in rare), sum(count for _, count in rare)))
    distance = sum((count - expected) ** 2 / expected for expected, count in kept)
    return distance < critical(max(len(kept) - 1, 1))


def enumerated(logits: Sequence[float], temperature: float, top_k: int, top_p: float, min_p: float) -> list[float]:
    """The distribution as the words define it, one token at a time."""
    weights = {token: math.exp(logit / temperature) for token, logit in enumerate(logits)}
    order = sorted(weights, key=lambda token: (-weights[token], token))
    order = [token for token in order if weights[token] >= min_p * weights[order[0]]]
    order = order[:top_k] if top_k else order
    total, reached, nucleus = sum(weights[token] for token in order), 0.0, []
    for token in order:
        nucleus.append(token)
        reached += weights[token]
        if reached >= top_p * total:
            break
    return [weights[token] / reached if token in nucleus else 0.0 for token in range(len(logits))]


def entry(position: int, choice: int = 0, **sampling: Any) -> Request:
    made = request("a", [1] * position, 9)
    made.sampling = Sampling(**sampling)
    made.choice = choice
    made.state = RequestStatus.RUNNING
    return made


def tokens(logits: NDArray[np.float32], requests: list[Request]) -> list[int]:
    return [one.token for one in sample(np.tile(logits, (len(requests), 1)), requests)]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_draws_follow_the_enumerated_distribution(settings: dict[str, Any]) -> None:
    requests = [entry(place % 100 + 1, place // 100, seed=2, **settings) for place in range(DRAWS)]
    seen = np.bincount(tokens(LOGITS, requests), minlength=len(LOGITS)).tolist()
    assert agree(seen, enumerated(LOGITS.tolist(), **settings))


def test_the_distance_tells_a_slightly_wrong_temperature() -> None:
    requests = [entry(place % 100 + 1, place // 100, seed=2, temperature=1.1) for place in range(DRAWS)]
    seen = np.bincount(tokens(LOGITS, requests), minlength=len(LOGITS)).tolist()
    assert agree(seen, enumerated(LOGITS.tolist(), 1.1, 0, 1.0, 0.0))
    assert not agree(seen, enumerated(LOGITS.tolist(), 1.0, 0, 1.0, 0.0))


@pytest.mark.parametrize("other", [{"position": 1}, {"choice": 1}, {"seed": 4}], ids=lambda other: next(iter(other)))
def test_draws_that_differ_in_one_number_are_independent(other: dict[str, int]) -> None:
    logits, size = LOGITS[:4], 4
    pairs = []
    for position in range(7, 6007, 2):
        numbers = {"position": position, "choice": 0, "seed": 3}
        moved = {"position": position + 1} if "position" in other else other
        pairs.append((one(logits, **numbers), one(logits, **{**numbers, **moved})))
    joint = np.bincount([first * size + second for first, second in pairs], minlength=size * size).tolist()
    single = enumerated(logits.tolist(), 1.0, 0, 1.0, 0.0)
    assert agree(joint, [first * second for first, second in itertools.product(single, single)])


def one(logits: NDArray[np.float32], position: int, choice: int, seed: int) -> int:
    return draw(logits.astype(np.float64), bits(seed, choice, position, Purpose.TOKEN, len(logits)))


def test_whole_texts_follow_their_enumerated_distribution_under_penalties() -> None:
    """Three tokens out of three make 27 texts, in which penalties alone tie a token to those before it."""
    logits, fields = LOGITS[[0, 2, 6]], {"presence": 0.7, "frequency": 0.4, "temperature": 0.9}
    seen = dict.fromkeys(itertools.product(range(3), repeat=3), 0)
    requests = [entry(1, choice, seed=6, **fields) for choice in range(4000)]
    sampler = Sampler()
    for _ in range(3):
        for made, drawn in zip(requests, sampler(np.tile(logits, (len(requests), 1)), requests), strict=True):
            made.tokens.append(drawn.token)
    for made in requests:
        seen[made.tokens[1], made.tokens[2], made.tokens[3]] += 1
    shares = [math.prod(chances(logits.tolist(), text)) for text in seen]
    assert sum(shares) == pytest.approx(1.0)
    assert agree(list(seen.values()), shares)


def chances(logits: list[float], text: tuple[int, ...]) -> list[float]:
    """Of each token after those before it."""
    found = []
    for place, token in enumerate(text):
        before = text[:place]
        left = [logit - 0.4 * before.count(name) - 0.7 * (name in before) for name, logit in enumerate(logits)]
        found.append(enumerated(left, 0.9, 0, 1.0, 0.0)[token])
    return found


@given(
    st.integers(1, 3000),
    st.sampled_from([0.0, 0.1, 3.0, 30.0]),
    st.integers(0, 10**6),
    st.sampled_from([0.0, 0.5, 0.99]),
)
def test_a_draw_is_the_argmax_of_logits_and_noise_over_all_tokens(
    size: int, spread: float, seed: int, gone: float
) -> None:
    chance = np.random.default_rng(seed)
    row = chance.standard_normal(size) * spread
    row[chance.random(size) < gone] = -np.inf
    row[seed % size] = 0.0
    expected = int(np.argmax(row + noise(seed, 0, 5, Purpose.TOKEN, size)))
    assert draw(row, bits(seed, 0, 5, Purpose.TOKEN, size)) == expected


def test_a_temperature_too_small_to_divide_by_is_greedy() -> None:
    assert tokens(np.array([1.0, 2.0], dtype=np.float32), [entry(1, temperature=1e-320)] * 2) == [1, 1]


MIX: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"temperature": 0.0, "repetition": 1.3},
    {"temperature": 0.8, "seed": 1},
    {"temperature": 0.8, "seed": 1, "top_k": 5, "presence": 0.6},
    {"temperature": 1.3, "seed": 2, "top_p": 0.7, "frequency": 0.5, "bias": {3: 2.0, 9: -100.0}},
    {"temperature": 1.0, "seed": 3, "min_p": 0.05, "repetition": 0.8, "logprobs": 2},
]
LENGTH = 25


def model(made: Request) -> NDArray[np.float32]:
    """Logits that depend on the whole context."""
    chance = np.random.default_rng([len(made.tokens), *made.tokens])
    return chance.standard_normal(16).astype(np.float32) * 2


def started(number: int, output: Sequence[int] = ()) -> Request:
    made = entry(1, **MIX[number])
    made.tokens = [number, 3, 5, *output]
    made.prompt_len = 3
    return made


def text(sampler: Sampler, made: Request) -> list[int]:
    while made.produced < LENGTH:
        made.tokens.append(sampler(model(made)[None], [made])[0].token)
    return made.tokens[made.prompt_len :]


def test_a_text_is_the_same_in_any_company() -> None:
    alone = [text(Sampler(), started(number)) for number in range(len(MIX))]
    sampler, chance = Sampler(), random.Random(5)
    requests = [started(number) for number in range(len(MIX))]
    while left := [made for made in requests if made.produced < LENGTH]:
        batch = chance.sample(left, chance.randint(1, len(left)))
        for made, drawn in zip(batch, sampler(np.stack([model(made) for made in batch]), batch), strict=True):
            made.tokens.append(drawn.token)
    assert [made.tokens[3:] for made in requests] == alone


@pytest.mark.parametrize("number", range(len(MIX)))
def test_a_text_resumed_at_any_position_goes_on_as_it_would_have(number: int) -> None:
    whole = text(Sampler(), started(number))
    for cut in range(LENGTH):
        assert text(Sampler(), started(number, whole[:cut])) == whole


@cases("poison", [math.nan, math.inf, -math.inf])
@cases("number", range(len(MIX)))
def test_logits_that_are_no_numbers_fail_their_own_row_alone(number: int, poison: float) -> None:
    made, sick = started(number), started(number)
    rows = np.stack([np.full(16, poison, dtype=np.float32), model(made)])
    failed, drawn = sample(rows, [sick, made])
    assert failed.error == ("No token may come next." if poison == -math.inf else _reason(poison))
    assert drawn == sample(rows[1:], [made])[0]
    rows[0, 1:] = 0.0
    failed, drawn = sample(rows, [sick, made])
    assert failed.error == ("" if poison == -math.inf else _reason(poison))
    assert drawn == sample(rows[1:], [made])[0]


def _reason(poison: float) -> str:
    return f"The model computed {poison} where a number belongs."
