"""From what gateways told, twice, to one picture: rates, quantiles, sums over gateways, and its tables. Pure."""

import io
import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from paceline_cli.ui.frame import Frame, frame, quantile
from paceline_cli.ui.gateway_poll import GatewaySnapshot, UnreachableGateway
from paceline_cli.ui.refresh import History
from paceline_cli.ui.top_outputs import MOST, drawn, lines, short
from paceline_gateway.admin.views import HistogramView, Queues, Services, Tenants, Workers

PAGE = {"gateway": "g0", "time": "2026-11-15T00:00:00Z", "total": 1, "truncated": False}
BOUNDS = (0.1, 0.2, 0.4)
UNUSED: dict[str, Any] = {}


def cls(
    name: str = "interactive", arrivals: int = 0, tokens: int = 0, ttft: tuple[int, ...] = (0, 0, 0, 0), **more: Any
) -> dict[str, Any]:
    times, none = {"bounds": BOUNDS, "counts": ttft}, {"bounds": BOUNDS, "counts": (0,) * 4}
    return {
        "name": name, "promises": [], "arrivals": arrivals, "completed": 0, "good": 0, "bad": 0, "prompt_tokens": 0,
        "output_tokens": tokens, "queued": 0, "in_flight": 0, "ttft": times, "tpot": none,
    } | more  # fmt: skip


def worker(name: str = "w0", **more: Any) -> dict[str, Any]:
    return {
        "service": "default/chat", "worker": name, "pool": "main", "revision": "r1", "track": "stable",
        "address": "10.0.0.1:8000", "state": "ready", "reported": "ready", "emulated": False, "slots": 8, "share": 4,
        "open_slots": 4, "in_flight": 1, "running": 2, "waiting": 0, "taken": 0, "backlog_tokens": 100,
        "backlog_by_class": {}, "backlog_s": 0.1, "kv_tokens": 25, "kv_total": 100, "circuit": "closed", "pause_s": 0,
        "prefix_bytes": 0, "heard_s_ago": 0.2,
    } | more  # fmt: skip


def tenant(name: str = "team", **more: Any) -> dict[str, Any]:
    month = {"month": "2026-11", "requests": 1, "input_tokens": 900, "output_tokens": 100, "dollars": "1.25"}
    return {
        "tenant": name, "weight": 1, "default_class": "interactive", "on_store_failure": "open", "requests": UNUSED,
        "input_tokens": UNUSED, "output_tokens": UNUSED, "concurrency": UNUSED, "month": month, "open": 1, "queued": 0,
        "in_flight": 1, "asking": 0,
    } | more  # fmt: skip


def look(
    at: float, *classes: dict[str, Any], gateway: str = "g0", workers: Any = (), tenants: Any = (), lines: Any = ()
) -> GatewaySnapshot:
    service = {
        "service": "default/chat", "model": "chat", "emulated": False, "held": 0, "workers": {}, "bytes_per_token": 4,
        "classes": classes,
    }  # fmt: skip
    queue = {
        "service": "default/chat", "waiting": 0, "held": 0, "held_limit": 9, "size_bytes": 0, "size_limit": 9,
        "reserved_slots": 0, "lines": lines,
    }  # fmt: skip
    return GatewaySnapshot(
        gateway,
        at,
        Services.model_validate(PAGE | {"services": [service] if classes else []}),
        Queues.model_validate(PAGE | {"queues": [queue]}),
        Workers.model_validate(PAGE | {"workers": workers}),
        Tenants.model_validate(PAGE | {"shared": True, "away": False, "tenants": tenants}),
    )


def between(then: GatewaySnapshot, now: GatewaySnapshot) -> Frame:
    return frame([now], {then.gateway: then})


def test_rates_are_what_happened_between_two_looks() -> None:
    (row,) = between(look(10, cls(arrivals=5, tokens=100)), look(12, cls(arrivals=9, tokens=700))).classes
    assert (row.service, row.name, row.requests, row.tokens) == ("default/chat", "interactive", 2.0, 300.0)


def test_tokens_move_while_a_stream_runs_and_count_once_when_it_ends() -> None:
    looks = [
        look(10, cls(arrivals=1, tokens=100)),
        look(12, cls(arrivals=1, tokens=100, streaming_tokens=60)),
        look(14, cls(arrivals=1, tokens=200, streaming_tokens=0)),
    ]
    rates = [between(then, now).classes[0].tokens for then, now in pairwise(looks)]
    assert rates == [30.0, 20.0]


def test_a_stream_that_is_cut_takes_no_tokens_below_zero() -> None:
    then, now = look(10, cls(arrivals=1, tokens=100, streaming_tokens=60)), look(12, cls(arrivals=1, tokens=100))
    assert between(then, now).classes[0].tokens == 0.0


def test_a_gateway_that_began_anew_counts_from_zero() -> None:
    (row,) = between(look(10, cls(arrivals=500, tokens=9000)), look(12, cls(arrivals=4, tokens=40))).classes
    assert (row.requests, row.tokens) == (2.0, 20.0)


def test_a_gateway_that_was_not_there_before_has_no_rates_yet() -> None:
    (row,) = frame([look(12, cls(arrivals=4, ttft=(4, 0, 0, 0)))], {}).classes
    assert (row.requests, row.ttft.observed) == (0.0, None)


def test_a_quantile_is_of_what_happened_between_and_stands_beside_its_promise() -> None:
    promised = [{"metric": "ttft", "quantile": 0.5, "seconds": 0.15}, {"metric": "tpot", "quantile": 0.9, "seconds": 1}]
    then, now = (
        look(0, cls(arrivals=9, ttft=(900, 0, 0, 0))),
        look(1, cls(arrivals=9, ttft=(900, 0, 10, 0), promises=promised)),
    )
    (row,) = between(then, now).classes
    assert (row.ttft.quantile, row.ttft.promised, row.ttft.broken) == (0.5, 0.15, True)
    assert row.ttft.observed == pytest.approx(0.3)
    assert (row.tpot.quantile, row.tpot.observed, row.tpot.promised, row.tpot.broken) == (0.9, None, 1, False)


def test_without_a_promise_the_p95_is_told() -> None:
    (row,) = between(look(0, cls(arrivals=1)), look(1, cls(arrivals=1, ttft=(0, 0, 0, 1)))).classes
    assert (row.ttft.quantile, row.ttft.observed, row.ttft.promised) == (0.95, 0.4, None)


@given(st.lists(st.integers(0, 50), min_size=4, max_size=4), st.lists(st.integers(0, 50), min_size=4, max_size=4))
def test_a_quantile_of_two_gateways_is_that_of_all_their_requests(one: list[int], two: list[int]) -> None:
    parts = [HistogramView(bounds=BOUNDS, counts=tuple(counts)) for counts in (one, two)]
    whole = HistogramView(bounds=BOUNDS, counts=tuple(a + b for a, b in zip(one, two, strict=True)))
    for wanted in (0.5, 0.95):
        assert quantile(wanted, parts) == quantile(wanted, [whole])
        found = quantile(wanted, parts)
        assert found is None if not sum(one + two) else found is not None and 0 <= found <= BOUNDS[-1]


def test_several_gateways_are_one_picture() -> None:
    then = {"g0": look(0, cls(arrivals=0)), "g1": look(0, cls(arrivals=0), gateway="g1")}
    line = {
        "name": "interactive", "waiting": 3, "limit": 9, "size_bytes": 0, "prompt_tokens": 0, "oldest_s": 4.0,
        "deadline_s": None, "wait_s": 2.0, "in_flight": 0, "tenants_total": 0, "truncated": False, "tenants": [],
    }  # fmt: skip
    now: list[GatewaySnapshot | UnreachableGateway] = [
        look(2, cls(arrivals=2, in_flight=1), workers=[worker(taken=4)]),
        look(
            2, cls(arrivals=4, in_flight=2, queued=3), gateway="g1", lines=[line],
            workers=[worker(taken=2, circuit="open", backlog_tokens=300, heard_s_ago=0.1, slots=9)],
        ),
        UnreachableGateway("g2", "no answer within 5 s"),
    ]  # fmt: skip
    seen = frame(now, then)
    (row,), (one,) = seen.classes, seen.workers
    assert (row.requests, row.in_flight, row.queued, row.oldest_wait_s, row.wait_s) == (3.0, 3, 3, 4.0, 2.0)
    assert (one.in_flight, one.slots, one.backlog_tokens, one.circuit, one.picks) == (2, 9, 300, "open", 3.0)
    assert (seen.gateways, [each.gateway for each in seen.silent]) == (("g0", "g1"), ["g2"])


def test_of_several_gateways_the_highest_use_of_a_limit_is_told_and_open_requests_are_summed() -> None:
    def used(amount: float | None) -> dict[str, Any]:
        return tenant(requests={"limit": 60, "used": amount, "remaining": None})

    seen = frame([look(0, tenants=[used(12)]), look(0, gateway="g1", tenants=[used(None), tenant("idle")])], {})
    idle, team = sorted(seen.tenants, key=lambda row: row.tenant)
    assert (team.open, team.requests.used, team.requests.share, team.tightest) == (2, 12, 0.2, 0.2)
    assert (idle.requests.limit, idle.tightest) == (None, 0.0)
    assert [row.tenant for row in seen.tenants] == ["team", "idle"]


def test_a_limit_of_nothing_is_used_up() -> None:
    (row,) = frame([look(0, tenants=[tenant(requests={"limit": 0, "used": 0})])], {}).tenants
    assert row.tightest == 1.0


def test_a_class_that_nobody_asked_for_and_nothing_promised_is_left_out() -> None:
    promised = [{"metric": "ttft", "quantile": 0.5, "seconds": 1}]
    seen = between(look(0), look(1, cls(), cls("batch", promises=promised), cls("offline", arrivals=1)))
    assert [row.name for row in seen.classes] == ["batch", "offline"]


def test_pictures_are_over_the_last_half_minute_and_no_longer() -> None:
    history = History(window_s=30.0)
    windows = [history.frame([look(at, cls(arrivals=at))]).window_s for at in range(0, 100, 10)]
    assert windows == [0, 10, 20, 30, 30, 30, 30, 30, 30, 30]


def text(seen: Frame) -> str:
    return "\n".join(lines(seen))


def test_the_tables_say_what_needs_attention() -> None:
    promised = [{"metric": "ttft", "quantile": 0.95, "seconds": 0.15}]
    now = look(
        2,
        cls(arrivals=8, tokens=4000, promises=promised, ttft=(0, 0, 10, 0)),
        workers=[worker(), worker("w1", state="silent", slots=None, heard_s_ago=None)],
        tenants=[tenant(requests={"limit": 60, "used": 59}), tenant("other")],
    )
    shown = [line.split() for line in text(between(look(0, cls()), now)).splitlines() if line]
    assert shown[0] == ["1", "gateway:", "g0;", "over", "the", "last", "2s"]
    assert shown[2] == [
        "!",
        "default/chat",
        "interactive",
        "4.0",
        "2000",
        "0",
        "0",
        "0",
        "-",
        "p95",
        "390ms/150ms",
        "p95",
        "-",
    ]
    assert shown[4][:6] == ["!", "team", "1", "0", "59/60", "-"]
    assert shown[4][-2:] == ["1000", "1.25"]
    assert shown[5][0] == "other"
    assert shown[7] == ["default/chat", "w0", "ready", "1/8", "100", "25%", "closed", "0.0", "200ms"]
    assert shown[8][:4] == ["!", "default/chat", "w1", "silent"]


def test_when_nobody_answers_the_tables_say_so_and_why() -> None:
    shown = text(frame([UnreachableGateway("g0", "it is not up")], {}))
    assert shown.startswith("no gateway answers")
    assert "g0 does not answer: it is not up" in shown


def test_long_tables_are_cut_for_people_and_whole_for_programs() -> None:
    seen = frame([look(0, cls(arrivals=1), workers=[worker(f"w{n:03}") for n in range(MOST + 5)])], {})
    assert "and 5 more" in text(seen)
    assert len(json.loads(json.dumps(seen.document()))["workers"]) == MOST + 5


def test_the_screen_shows_the_same_cells() -> None:
    seen = frame([look(0, cls(arrivals=1), workers=[worker()], tenants=[tenant()])], {})
    written = io.StringIO()
    Console(width=200, file=written).print(drawn(seen))
    assert all(word in written.getvalue() for word in ("default/chat", "interactive", "team", "w0", "25%"))


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0"), (950, "950"), (9999, "9999"), (12_000, "12k"), (1_500_000, "1.5M"), (2e9, "2G")]
)
def test_numbers_are_short(number: float, said: str) -> None:
    assert short(number) == said
