"""Traffic made of a work history: as many requests as its work is, as long as the summary says, the same every time."""

from itertools import pairwise
from math import ceil, floor
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline_autoscaler.model.lengths import LengthSummary
from paceline_autoscaler.model.work_history import BIN_S
from paceline_core.registry.enums import RequestClass
from paceline_core.wire import LENGTH_BUCKETS, StepTime, length_bucket
from paceline_simulator.bins import demand_bins, length_spread
from paceline_simulator.past_traffic import PastTraffic, RequestLengths
from paceline_simulator.traces import BLOCK, TraceRequest

RATES = st.lists(st.floats(0.0, 40.0), min_size=1, max_size=12)
LONGEST = 32_768
STEP = StepTime(base=0.006, prefill=2e-5, sequence=4e-6, kv=4e-8, context=1e-9, observations=9)


def drawn(count: int = 4000, sigma: float = 0.8) -> list[TraceRequest]:
    random = Random(7)
    sizes = [(random.lognormvariate(6.5, sigma), random.lognormvariate(5.0, sigma)) for _ in range(count)]
    return [TraceRequest(float(at), round(max(p, 1)), round(max(o, 1))) for at, (p, o) in enumerate(sizes)]


def summary(requests: list[TraceRequest], cached: float = 0.0) -> LengthSummary:
    prompts, outputs = [0.0] * LENGTH_BUCKETS, [0.0] * LENGTH_BUCKETS
    for request in requests:
        prompts[length_bucket(request.prompt_tokens)] += 1
        outputs[length_bucket(request.output_tokens)] += 1
    prompt, output = (sum(getattr(one, name) for one in requests) for name in ("prompt_tokens", "output_tokens"))
    return LengthSummary(
        RequestClass.INTERACTIVE, len(requests), prompt, cached * prompt, output, tuple(prompts), tuple(outputs)
    )


LOG = drawn()
LENGTHS = RequestLengths.of(summary(LOG))


def test_the_mean_request_has_the_sums_of_the_requests_that_were_counted() -> None:
    total, mean = demand_bins(LOG, 1e9, hit_share=0.0)[0], LENGTHS.mean
    assert mean.prompt_tokens == pytest.approx(total.prompt_tokens / len(LOG))
    assert mean.output_tokens == pytest.approx(total.output_tokens / len(LOG))
    assert mean.attended_pairs == pytest.approx(total.attended_pairs / len(LOG), rel=0.05)
    assert mean.kv_reads == pytest.approx(total.kv_reads / len(LOG), rel=0.05)


def test_lengths_spread_as_those_that_were_counted() -> None:
    made, counted = LENGTHS.spread, length_spread(LOG)
    assert made.prompt == pytest.approx(counted.prompt, rel=0.12)
    assert made.output == pytest.approx(counted.output, rel=0.12)


def test_cached_tokens_are_work_that_nobody_does() -> None:
    half = RequestLengths.of(summary(LOG, cached=0.5)).mean
    assert half.cached_tokens == pytest.approx(half.prompt_tokens / 2)
    assert half.mix(STEP).prefill_s < LENGTHS.mean.mix(STEP).prefill_s


@given(RATES, st.integers(0, 3))
def test_there_are_as_many_requests_as_the_rates_say_in_order_and_within_their_bins(
    rates: list[float], seed: int
) -> None:
    traffic = PastTraffic(rates, LENGTHS, seed=seed)
    times = [request.at for request in traffic.requests(0, len(rates), LONGEST)]
    assert abs(len(times) - sum(rates) * BIN_S) <= 1
    assert all(before <= after for before, after in pairwise(times))
    for place, rate in enumerate(rates):
        found = sum(place * BIN_S <= at < (place + 1) * BIN_S for at in times)
        assert floor(rate * BIN_S) <= found <= ceil(rate * BIN_S)


@given(RATES, st.integers(0, 3))
def test_the_fluid_model_gets_the_arrivals_of_the_exact_simulator(rates: list[float], seed: int) -> None:
    """Each request by its second, up to ten a second; beyond, their number alone."""
    traffic = PastTraffic(rates, LENGTHS, seed=seed)
    bins = traffic.demand_bins()
    requests = traffic.requests(0, len(rates), LONGEST)
    assert len(bins) == len(rates) * BIN_S
    assert sum(one.arrivals for one in bins) == pytest.approx(len(requests))
    for place, rate in enumerate(rates):
        if rate * BIN_S <= 300:
            seconds = [int(one.at) for one in requests if place * BIN_S <= one.at < (place + 1) * BIN_S]
            for second in range(int(place * BIN_S), int((place + 1) * BIN_S)):
                assert bins[second].arrivals == seconds.count(second)


def test_a_part_of_the_traffic_has_the_requests_of_the_whole() -> None:
    traffic = PastTraffic([3.0, 5.0, 2.0, 4.0], LENGTHS)
    whole = [one for one in traffic.requests(0, 4, LONGEST) if BIN_S <= one.at < 3 * BIN_S]
    part = traffic.requests(1, 3, LONGEST)
    assert [one.at for one in part] == pytest.approx([one.at - BIN_S for one in whole])
    assert [(one.prompt_tokens, one.output_tokens) for one in part] == [
        (one.prompt_tokens, one.output_tokens) for one in whole
    ]


def test_a_few_requests_have_the_mean_lengths_already() -> None:
    requests = PastTraffic([2.0], LENGTHS).requests(0, 1, LONGEST)
    mean = sum(request.prompt_tokens for request in requests) / len(requests)
    assert mean == pytest.approx(LENGTHS.mean.prompt_tokens, rel=0.1)


@given(st.integers(0, 10**6), st.integers(2, 600))
def test_no_request_is_longer_than_the_engine_takes(number: int, most: int) -> None:
    request = LENGTHS.request(number, 0.0, most)
    assert request.prompt_tokens >= 1
    assert request.output_tokens >= 1
    assert request.prompt_tokens + request.output_tokens <= most


def test_prompts_share_as_many_tokens_as_were_cached() -> None:
    lengths = RequestLengths.of(summary(LOG, cached=0.4))
    requests = [lengths.request(number, float(number), LONGEST) for number in range(3000)]
    seen, hits = set[int](), 0
    for request in requests:
        known = next((place for place, block in enumerate(request.blocks) if block not in seen), len(request.blocks))
        hits += min(known * BLOCK, request.prompt_tokens - 1)
        seen.update(request.blocks)
        assert len(request.tokens(0)) == request.prompt_tokens
    assert hits / sum(request.prompt_tokens for request in requests) == pytest.approx(0.4, abs=0.06)


def test_what_varies_beyond_single_requests_is_in_the_thirds_of_bins() -> None:
    calm, bursty = (PastTraffic([8.0] * 200, LENGTHS, dispersion).demand_bins() for dispersion in (0.0, 2.0))
    spread = []
    for bins in (calm, bursty):
        thirds = [sum(one.arrivals for one in bins[at : at + 10]) for at in range(0, len(bins), 10)]
        mean = sum(thirds) / len(thirds)
        spread.append(sum((third - mean) ** 2 for third in thirds) / len(thirds) / mean)
    assert spread[1] - spread[0] == pytest.approx(2.0 * 10, rel=0.4)
