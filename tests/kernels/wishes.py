"""Settings and logits of every kind, for hypothesis. Logits and penalties are whole 64ths, so that float32 computes
with them as exactly as float64 does: then even ties must be broken alike."""

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st
from tests.kernels.sampled import Case, Rows

from paceline_kernels.sample.state import SamplingParams

_UNUSUAL = [math.nan, math.inf, -math.inf, -0.0]


def _steps(low: int, high: int, step: int = 64) -> st.SearchStrategy[float]:
    return st.integers(low * step, high * step).map(lambda value: value / step)


@st.composite
def rows(draw: Any, count: int, vocab: int) -> Rows:
    """Logits with many ties or few, some not finite."""
    step = draw(st.sampled_from([1, 4, 64]))
    seed, spread = draw(st.integers(0, 1 << 32)), draw(st.sampled_from([0, 1, 8, 30]))
    found = np.round(np.random.default_rng(seed).standard_normal((count, vocab)) * spread * step) / step
    for place in draw(st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, vocab - 1)), max_size=3)):
        found[place] = draw(st.one_of(_steps(-20, 20), st.sampled_from(_UNUSUAL)))
    made: Rows = found.astype(np.float32)
    return made


@st.composite
def cases(draw: Any, vocab: int) -> Case:
    """A request with any settings, most of them unset."""
    ids = st.integers(0, vocab - 1)
    some = st.lists(ids, max_size=6)
    asked = SamplingParams(
        temperature=draw(st.sampled_from([1.0, 1.0, 0.0, 0.5, 2.0, 0.7, 1e-6, 1e-4])),
        min_p=draw(st.sampled_from([0.0, 0.0, 0.05, 0.3, 1.0])),
        top_k=draw(st.sampled_from([0, 0, 1, 3, vocab, vocab + 5])),
        top_p=draw(st.sampled_from([1.0, 1.0, 0.0, 0.3, 0.9, 0.999])),
        repetition=draw(st.sampled_from([1.0, 1.0, 0.5, 2.0])),
        frequency=draw(st.one_of(st.just(0.0), _steps(-2, 2))),
        presence=draw(st.one_of(st.just(0.0), _steps(-2, 2))),
        seed=draw(st.integers(-(1 << 63), (1 << 63) - 1)),
        choice=draw(st.integers(0, 127)),
        logprobs=draw(st.sampled_from([-1, 0, 3, 20])),
        bias=draw(st.dictionaries(st.one_of(ids, st.just(vocab + 3)), _steps(-100, 100), max_size=5)),
    )
    stops, minimum = draw(some), draw(st.integers(0, 3))
    return Case(asked, draw(some.filter(bool)), draw(some), minimum, stops)
