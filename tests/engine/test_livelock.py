"""Some of the random lives that `make nightly` runs 100,000 of."""

from tests.engine.livelock import Life, live, summary
from tests.every import cases


@cases("seed", range(60))
def test_a_random_life_ends(seed: int) -> None:
    assert live(seed).seed == seed


def test_a_summary_names_the_slowest_life() -> None:
    line = summary([Life(3, 1.5, 4, 2), Life(7, 0.5, 1, 1)], 9.0)
    assert line == (
        "2 lives in 9 s, all ended: 5 preemptions, at most 2 of one request; at most 1.50 steps a token (seed 3)"
    )
