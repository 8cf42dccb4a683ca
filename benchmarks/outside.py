"""Load from outside through the gateway: NVIDIA's aiperf, two emulated workers behind, and whether all count the same.

aiperf counts requests and tokens as answers tell them, the gateway as it charges its tenant and as it counts outcomes,
the workers as their engines made them. It needs 1.2 GB (`engine/outside.py`), so it is a peer here and no test.
"""

import asyncio
import tempfile
from pathlib import Path

import uvloop
from benchmarks.engine.outside import AIPERF, profile
from benchmarks.engine.worker import counted
from benchmarks.harness import Bar, Measured, Row, main
from tests.gateway import manifests
from tests.gateway.replicas import Replica, replicas
from tests.gateway.stand import Stand, gateway
from tests.worker.processes import EMULATED_H100

from paceline_core.auth import new_signing_key

REQUESTS, QUICK_REQUESTS = 200, 40
CONCURRENCY = 16


def measure(quick: bool) -> Measured:
    """How far aiperf's counts are from the gateway's and the workers'."""
    return uvloop.run(_measure(QUICK_REQUESTS if quick else REQUESTS))


async def _measure(requests: int) -> Measured:
    signing_key = new_signing_key()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with replicas(folder, 2, signing_key, engine=EMULATED_H100) as workers:
            async with gateway(folder, signing_key=signing_key) as stand:
                stand.cluster.put(manifests.tenant(limits={"outputTokensPerMinute": 10_000_000}))
                await stand.serve([worker.endpoint for worker in workers])
                url = f"http://127.0.0.1:{stand.port}"
                options = {"model": "chat", "api-key": stand.key, "request-count": requests, "concurrency": CONCURRENCY}
                told = await asyncio.to_thread(profile, url, folder / "aiperf", options)
                rows = await _rows(told, stand, workers)
    return rows, {"version": AIPERF.packages[0], "concurrency": CONCURRENCY}


async def _rows(told: dict[str, dict[str, float]], stand: Stand, workers: list[Replica]) -> list[Row]:
    theirs = {
        "requests": told["request_count"]["avg"],
        "output tokens": told["total_output_tokens"]["avg"],
        "input tokens": told["total_isl"]["avg"],
    }
    ours = {
        "requests": await stand.metric("paceline_requests_total", outcome="ok"),
        "output tokens": await stand.metric("paceline_tenant_tokens_total", kind="output"),
        "input tokens": await stand.metric("paceline_tenant_tokens_total", kind="input"),
    }
    made = await asyncio.to_thread(_made, workers)
    ended = await stand.metric("paceline_requests_total")
    reserved = await stand.metric("paceline_quota_reserved_tokens")
    return [
        *(_row(f"aiperf's {name} less the gateway's", theirs[name], ours[name]) for name in theirs),
        _row("the gateway's output tokens less the workers'", ours["output tokens"], made),
        _row("requests that ended otherwise", ended, ours["requests"]),
        Row("reserved tokens that are left", reserved, "", bar=Bar(0)),
    ]


def _row(name: str, value: float, of: float) -> Row:
    return Row(name, abs(value - of), f"of {of:.0f}", bar=Bar(0))


def _made(workers: list[Replica]) -> float:
    return sum(counted(worker.process.url, "paceline_worker_tokens_total", kind="output") for worker in workers)


if __name__ == "__main__":
    main("outside", measure)
