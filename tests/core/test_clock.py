from datetime import UTC, datetime, timedelta, timezone

from paceline_core.clock import ManualClock, SystemClock, rfc3339


async def test_a_manual_clock_moves_only_when_told() -> None:
    clock = ManualClock()
    before = clock.monotonic(), clock.utc()
    assert (clock.monotonic(), clock.utc()) == before
    await clock.sleep(2.5)
    assert clock.monotonic() - before[0] == 2.5
    assert clock.utc() - before[1] == timedelta(seconds=2.5)


def test_the_system_clock_never_goes_back_and_knows_its_zone() -> None:
    clock = SystemClock()
    readings = [clock.monotonic() for _ in range(100)]
    assert readings == sorted(readings)
    assert clock.utc().tzinfo is UTC


def test_wall_times_leave_in_utc() -> None:
    east = datetime(2026, 1, 31, 14, 0, tzinfo=timezone(timedelta(hours=2)))
    assert rfc3339(east) == "2026-01-31T12:00:00Z"
