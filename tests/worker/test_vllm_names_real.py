"""vLLM's names as a real Prometheus reads them from a real worker: what its boards ask for is there, and is ours."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.prometheus_server import prometheus_server
from tests.worker.processes import HTTP, WorkerProcess, until, worker_process
from tests.worker.scripted_engine import Script

from paceline_core.registry import METRICS, Kind
from paceline_core.registry.aliases import ALIASES, Alias

pytestmark = pytest.mark.real

CHAT = "/v1/chat/completions"
HELLO: dict[str, Any] = {"model": "chat", "messages": [{"role": "user", "content": "hello"}]}
BOARD = (  # the panels of vLLM's own board, shortened to what they read
    "histogram_quantile(0.99, sum by (le) (rate(vllm:e2e_request_latency_seconds_bucket[1m])))",
    "rate(vllm:prompt_tokens_total[1m])",
    "rate(vllm:generation_tokens_total[1m])",
    "histogram_quantile(0.99, sum by (le) (rate(vllm:inter_token_latency_seconds_bucket[1m])))",
    "vllm:num_requests_running + vllm:num_requests_waiting",
    "histogram_quantile(0.99, sum by (le) (rate(vllm:time_to_first_token_seconds_bucket[1m])))",
    "vllm:kv_cache_usage_perc",
    "sum by (le) (increase(vllm:request_prompt_tokens_bucket[1m]))",
    "sum by (le) (increase(vllm:request_generation_tokens_bucket[1m]))",
    "sum by (finished_reason) (increase(vllm:request_success_total[1m]))",
    "rate(vllm:request_queue_time_seconds_sum[1m])",
    "rate(vllm:request_prefill_time_seconds_sum[1m])",
    "rate(vllm:request_decode_time_seconds_sum[1m])",
    "sum by (le) (increase(vllm:request_max_num_generation_tokens_bucket[1m]))",
)


class Prometheus:
    """A server that scrapes one worker each second."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    def ask(self, expr: str) -> list[dict[str, Any]]:
        """The samples of an expression."""
        reply = self._http.get("/api/v1/query", params={"query": expr}).json()
        assert reply["status"] == "success", f"{expr}: {reply}"
        return list(reply["data"]["result"])

    def number(self, expr: str) -> float | None:
        """The value of the only sample, None if there is none."""
        found = self.ask(expr)
        assert len(found) < 2, expr
        return float(found[0]["value"][1]) if found else None


@contextmanager
def scraping(folder: Path, worker: WorkerProcess) -> Iterator[Prometheus]:
    target = {"targets": [worker.url.removeprefix("http://")]}
    scrape = {"job_name": "worker", "scrape_interval": "1s", "static_configs": [target]}
    program = shutil.which("prometheus")
    assert program, "no `prometheus` on PATH; install it: apt-get install prometheus"
    with (
        prometheus_server(program, folder, {"scrape_configs": [scrape]}) as url,
        httpx.Client(base_url=url, timeout=10, trust_env=False) as http,
    ):
        yield Prometheus(http)


def ours(alias: Alias, suffix: str) -> str:
    """The expression of our own series that an alias stands for."""
    match = ", ".join(f'{name}=~"{"|".join(values)}"' for name, values in alias.match.items())
    total = f"sum({alias.source}{suffix}{{{match}}})"
    return f"{total} / sum({alias.source})" if alias.share else total


def test_prometheus_reads_every_name_and_each_is_our_own_number(folder: Path, reply: list[int]) -> None:
    with worker_process(folder, Script(reply=reply, cached=4)) as worker, scraping(folder, worker) as prometheus:
        worker.ready()
        until(lambda: prometheus.number("vllm:request_params_n_count") == 0)
        for more in ({}, {"stream": True}, {"max_tokens": 3}):
            assert HTTP.post(worker.url + CHAT, json=HELLO | more).status_code == 200
        until(lambda: prometheus.number("vllm:request_params_n_count") == 3)
        assert prometheus.number("vllm:generation_tokens_total") == 2 * (len(reply) + 1) + 3
        for alias in ALIASES:
            for suffix in ("_count", "_sum") if METRICS[alias.source].kind is Kind.HISTOGRAM else ("",):
                difference = f"sum({alias.name}{suffix}) - {ours(alias, suffix)}"
                assert prometheus.number(difference) == 0, difference
        ends = {
            sample["metric"]["finished_reason"]: sample["value"][1]
            for sample in prometheus.ask("vllm:request_success_total")
        }
        assert {end: count for end, count in ends.items() if count != "0"} == {"stop": "2", "length": "1"}
        assert {"abort", "error"} < ends.keys()
        [info] = prometheus.ask("vllm:cache_config_info")
        assert (info["metric"]["block_size"], info["metric"]["num_gpu_blocks"]) == ("16", "64")
        assert {s["metric"]["model_name"] for s in prometheus.ask('{__name__=~"vllm:.+"}')} == {"chat"}
        assert [panel for panel in BOARD if not prometheus.ask(panel)] == []
