"""Who may take a lease: judged by what was seen and by our own monotonic clock."""

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from paceline_core.kube.leader_election import DesiredLease, ObservedLease, claim

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
US = DesiredLease("us", 15, NOON)


def record(holder: str, version: str = "5", **spec: Any) -> dict[str, Any]:
    found = {"holderIdentity": holder, "leaseDurationSeconds": 15, "leaseTransitions": 3, **spec}
    return {"metadata": {"name": "x", "resourceVersion": version}, "spec": found}


def test_what_nobody_holds_is_taken() -> None:
    made = claim(record(""), US, None, 0)
    assert made.spec is not None
    assert made.spec["holderIdentity"] == "us"
    assert (made.spec["leaseTransitions"], made.spec["leaseDurationSeconds"]) == (4, 15)
    assert made.spec["acquireTime"] == made.spec["renewTime"] == "2026-01-01T12:00:00.000000Z"


def test_ours_is_renewed_and_not_acquired_anew() -> None:
    made = claim(record("us", acquireTime="then"), US, None, 0)
    assert made.spec is not None
    assert (made.spec["leaseTransitions"], made.spec["acquireTime"]) == (3, "then")


def test_a_record_is_taken_over_only_after_its_whole_duration_unchanged_before_our_eyes() -> None:
    first = claim(record("them"), US, None, 100)
    assert first.spec is None
    assert first.observed == ObservedLease("5", 100)
    assert claim(record("them"), US, first.observed, 114.9).spec is None
    taken = claim(record("them"), US, first.observed, 115)
    assert taken.spec is not None
    assert taken.spec["leaseTransitions"] == 4


def test_every_renewal_starts_the_wait_anew() -> None:
    first = claim(record("them", "5"), US, None, 0)
    second = claim(record("them", "6"), US, first.observed, 14)
    assert second.observed == ObservedLease("6", 14)
    assert claim(record("them", "6"), US, second.observed, 20).spec is None


@given(st.timedeltas(min_value=timedelta(days=-400), max_value=timedelta(days=400)), st.floats(0, 14.9))
def test_wall_clocks_decide_nothing(skew: timedelta, later: float) -> None:
    theirs = (NOON + skew).isoformat()
    first = claim(record("them", renewTime=theirs), DesiredLease("us", 15, NOON - skew), None, 0)
    assert (
        claim(record("them", renewTime=theirs), DesiredLease("us", 15, NOON + skew), first.observed, later).spec is None
    )


def test_a_lease_without_a_spec_is_free() -> None:
    assert claim({"metadata": {"name": "x", "resourceVersion": "1"}}, US, None, 0).spec is not None


def test_their_duration_counts_and_not_ours() -> None:
    first = claim(record("them", leaseDurationSeconds=60), US, None, 0)
    assert claim(record("them", leaseDurationSeconds=60), US, first.observed, 59).spec is None
