"""The script in Redis and the pool in Python give the same answers."""

import asyncio
import dataclasses
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from redis import Redis
from tests.gateway.redis_server import RedisServer

from paceline_gateway.quota.bucket_store import BucketStore
from paceline_gateway.quota.types import UNLIMITED, LeaseRequest, Vector
from paceline_gateway.quota_store.redis import EXCHANGE, arguments, grant

pytestmark = pytest.mark.real

AMOUNT = st.one_of(st.just(0.0), st.floats(0, 120), st.integers(0, 120).map(float))
VECTOR = st.tuples(AMOUNT, AMOUNT, AMOUNT, st.integers(0, 4).map(float))
BACK = st.tuples(*[st.floats(-60, 120)] * 3, st.just(0.0))
LIMITS = st.tuples(*[st.sampled_from([0.0, 1.0, 60.0, 100.5, UNLIMITED])] * 3, st.sampled_from([1.0, 3.0, UNLIMITED]))
STEP = st.tuples(
    st.sampled_from(["a", "b", "c"]), st.integers(0, 3), LIMITS, BACK, VECTOR, VECTOR, VECTOR, st.none() | VECTOR,
    st.integers(0, 1), st.one_of(st.floats(0, 3), st.sampled_from([16.0, 700.0])),
)  # fmt: skip

Step = tuple[str, int, Vector, Vector, Vector, Vector, Vector, Vector | None, int, float]


def clocked(script: str) -> str:
    """The same script with the test's time for Redis's: the last argument."""
    told = script.replace("redis.call('TIME')", "{ARGV[#ARGV], '0'}").replace("#ARGV > ", "#ARGV - 1 > ")
    assert told != script
    return told


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:

    with asyncio.Runner() as runner:
        server = RedisServer(tmp_path_factory.mktemp("redis"))
        runner.run(server.start())
        yield server.port
        runner.run(server.kill())


@given(steps=st.lists(STEP, max_size=25), same=st.booleans())
@settings(phases=[Phase.generate], suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_sequence_of_exchanges_has_the_same_answers(port: int, steps: list[Step], same: bool) -> None:
    with Redis(port=port) as client:
        client.flushall()
        run, pool, now, opened = client.register_script(clocked(EXCHANGE)), BucketStore(epoch=1), 1000.0, 0
        for number, step in enumerate(steps, 1):
            holder, behind, limits, back, held, least, want, belief, knows, pause = step
            now = round(now + pause, 6)
            ask = LeaseRequest(
                "t", holder, number - behind, steps[0][2] if same else limits, back, held, least,
                tuple(map(max, want, least)), 1 if knows and opened else 7, belief,
            )  # fmt: skip
            theirs = dataclasses.replace(ask, epoch=opened) if ask.epoch == 1 else ask
            told = grant(theirs, run(keys=["book"], args=[*arguments(theirs), repr(now)]))
            opened = opened or told.epoch
            mine = pool.exchange(ask, now)
            assert told.given == pytest.approx(mine.given, abs=1e-6)
            if same or not behind:
                assert finite(told.levels) == pytest.approx(finite(mine.levels), abs=1e-6)


def finite(levels: Vector) -> Vector:
    """For a comparison."""
    return tuple(-1.0 if level == UNLIMITED else level for level in levels)
