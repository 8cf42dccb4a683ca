"""One suspect at a time: which request gets in, what the second one hears, and when the next may come."""

import asyncio
import contextlib
from pathlib import Path

import httpx
import pytest
from tests.gateway.replicas import EMULATED, Replica, replicas
from tests.worker.harness import running
from tests.worker.scripted_engine import Script

from paceline_core.auth import new_signing_key
from paceline_core.errors import Code, RequestError
from paceline_core.wire import SUSPECT
from paceline_workers.server.trial_runs import CLEARED, TrialRuns

KEY = new_signing_key()


def test_a_second_suspect_is_refused_until_the_first_has_got_on() -> None:
    cleared: list[tuple[str, ...]] = []
    trials = TrialRuns(cleared.append)
    with trials.entered("g/1;4") as first:
        first.brought(3)
        with pytest.raises(RequestError) as refusal, trials.entered("g/2;4"):
            raise AssertionError
        assert (refusal.value.code, refusal.value.headers) == (Code.NO_CAPACITY, {SUSPECT: "busy"})
        first.brought(1)
        assert cleared == [("g/1",)]
        with trials.entered("g/2;4"):
            first.brought(9)
            with pytest.raises(RequestError), trials.entered("g/3;4"):
                raise AssertionError
    assert cleared == [("g/1",)]


def test_the_end_of_an_earlier_run_of_a_request_ends_no_later_trial_of_it() -> None:
    trials = TrialRuns()
    first = contextlib.ExitStack()
    first.enter_context(trials.entered("g/1;1")).brought(1)
    with trials.entered("g/1;4"):
        first.close()
        with pytest.raises(RequestError), trials.entered("g/2;4"):
            raise AssertionError


def test_a_suspect_that_ends_makes_room_and_is_not_cleared_by_that() -> None:
    cleared: list[tuple[str, ...]] = []
    trials = TrialRuns(cleared.append)
    with pytest.raises(ZeroDivisionError), trials.entered("g/1;4"):
        raise ZeroDivisionError
    with trials.entered("g/2;4") as second:
        second.brought(4)
    assert cleared == [("g/2",)]


@pytest.mark.parametrize("header", ["", "g/1", "g/1;", ";4", "g/1;99999", "g 1;4", "g;1;4"])
def test_what_is_no_suspects_header_is_nobodys_trial(header: str) -> None:
    trials = TrialRuns()
    with trials.entered(header) as one, trials.entered(header):
        one.brought(1)


def test_the_names_that_are_told_are_bounded() -> None:
    cleared: list[tuple[str, ...]] = []
    trials = TrialRuns(cleared.append)
    for number in range(2 * CLEARED):
        with trials.entered(f"g/{number};1") as trial:
            trial.brought(1)
    assert cleared[-1] == tuple(f"g/{number}" for number in range(CLEARED, 2 * CLEARED))


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/embeddings"])
async def test_every_route_that_computes_takes_one_suspect_at_a_time(tmp_path: Path, path: str) -> None:
    async with running(Script(reply=[5]), folder=tmp_path) as rig:
        with rig.worker.parts.trials.entered("g/1;4"):
            refused = await rig.http.post(path, json={}, headers={**rig.gateway_headers, SUSPECT: "g/2;4"})
        assert (refused.status_code, refused.headers.get(SUSPECT)) == (503, "busy")
        assert (
            await rig.http.post(path, json={}, headers={**rig.gateway_headers, SUSPECT: "g/2;4"})
        ).status_code == 400


def ask(worker: Replica, name: str, tokens: int) -> dict[str, object]:
    body = {"model": "chat", "prompt": "What is TTFT?", "max_tokens": tokens, "ignore_eos": True}
    return {
        "url": f"{worker.process.url}/v1/completions",
        "json": body,
        "headers": worker.gateway_headers | {SUSPECT: name},
    }


@pytest.mark.real
async def test_a_real_worker_takes_the_next_suspect_when_it_says_that_the_first_has_got_on(tmp_path: Path) -> None:
    with replicas(tmp_path, 1, KEY, engine=EMULATED) as (worker,):
        async with httpx.AsyncClient(timeout=30.0, trust_env=False) as client:
            first = asyncio.create_task(client.post(**ask(worker, "g/1;40", 80)))  # type: ignore[arg-type]
            while not (await asyncio.to_thread(worker.load)).running:
                assert not first.done(), "the first one never ran"
            refused = await client.post(**ask(worker, "g/2;4", 1))  # type: ignore[arg-type]
            assert (refused.status_code, refused.headers[SUSPECT]) == (503, "busy")
            while "g/1" not in (await asyncio.to_thread(worker.load)).cleared:
                assert not first.done(), "an answer that does not stream was not cleared before its end"
            second = await client.post(**ask(worker, "g/3;4", 1))  # type: ignore[arg-type]
            assert (second.status_code, first.done()) == (200, False)
            assert (await first).status_code == 200
