"""Prometheus, through prometheus-api-client, with the six kinds of answer.

The client library is synchronous, has no total deadline, retries by itself and drops `warnings`. So each query runs in
a daemon thread with its own session, which records the warnings; retries are off; the caller waits no longer than the
deadline. One request returns both the values and the age of the newest sample, so that both describe one moment.
Hole: a server that trickles bytes holds its thread past the deadline; beyond `OUTSTANDING` such threads, all is BUSY.
"""

import asyncio
import math
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TypeVar
from urllib.parse import urlsplit

import requests
from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException
from urllib3.util.retry import Retry

from paceline_autoscaler.metrics_source.base import (
    CAUSE_LIMIT,
    Empty,
    Error,
    ErrorKind,
    MetricSample,
    NaN,
    Partial,
    Query,
    QueryAnswer,
    RangeAnswer,
    RangeQuery,
    RangeSeries,
    RangeValue,
    classify,
    promql,
    selector,
)

OUTSTANDING = 8
_AGE = "paceline_age"
_OBJECT = re.compile(r"<[^>]* at 0x[0-9a-f]+>:? ?|HTTPS?Connection(?:Pool)?\([^)]*\): ")
_CONNECTING = "Failed to establish a new connection: "
_NO_RETRIES = Retry(0, read=False)
T = TypeVar("T")
_Rows = list[dict[str, Any]]


class PrometheusSource:
    """Queries one Prometheus. Samples older than `stale_after_s` are Stale; no query waits longer than `deadline_s`."""

    def __init__(self, url: str, *, deadline_s: float = 2.0, stale_after_s: float = 30.0) -> None:
        self._url = url.rstrip("/")
        self._deadline_s = deadline_s
        self._stale_after_s = stale_after_s
        self._free = threading.BoundedSemaphore(OUTSTANDING)

    @property
    def address(self) -> str:
        parts = urlsplit(self._url)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()

    async def ask(self, question: Query) -> QueryAnswer:
        return await self.query(promql(question), selector(question))

    async def query(self, expression: str, series: str) -> QueryAnswer:
        """Evaluate a PromQL vector expression; `series` selects the raw series whose newest sample gives the age."""
        # timestamp() of an instant selector is empty as soon as a target is gone; the subquery looks back further
        step = max(self._stale_after_s / 10, 1.0)
        back = max(self._stale_after_s * 4, 60.0)
        age = f"time() - max(max_over_time(timestamp({series})[{back:.0f}s:{step:.0f}s]))"
        text = f'({expression}) or label_replace({age}, "{_AGE}", "s", "", "")'
        return await self._within_deadline(lambda client: client.custom_query(text), self._read)

    async def ask_range(self, question: RangeQuery) -> RangeAnswer:
        """Evaluate an expression over a span of the past. Prometheus answers at most 11,000 steps at once."""
        start, end = (datetime.fromtimestamp(at, UTC) for at in (question.start, question.end))
        step = f"{question.step_s:g}"
        return await self._within_deadline(
            lambda client: client.custom_query_range(question.expression, start, end, step),
            lambda rows: _range_of(rows, question.end),
        )

    async def run(self) -> None:
        """Returns at once: there is no background work."""

    async def _within_deadline(
        self, ask: Callable[[PrometheusConnect], _Rows], read: Callable[[_Rows], T]
    ) -> T | Partial | Error:
        try:
            async with asyncio.timeout(self._deadline_s):
                return await self._in_thread(lambda: self._fetch(ask, read))
        except TimeoutError:
            return Error(ErrorKind.TIMEOUT, f"no answer within {self._deadline_s:g} s")

    async def _in_thread(self, work: Callable[[], T]) -> T | Error:
        if not self._free.acquire(blocking=False):
            return Error(ErrorKind.BUSY, f"{OUTSTANDING} questions are still without an answer")
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[T] = loop.create_future()

        def settle(answer: T) -> None:
            if not answered.done():
                answered.set_result(answer)

        def run() -> None:
            try:
                answer = work()
            finally:
                self._free.release()
            with suppress(RuntimeError):  # the loop has closed meanwhile: nothing waits any more
                loop.call_soon_threadsafe(settle, answer)

        threading.Thread(target=run, name="prometheus", daemon=True).start()
        return await answered

    def _fetch(self, ask: Callable[[PrometheusConnect], _Rows], read: Callable[[_Rows], T]) -> T | Partial | Error:
        warnings: list[str] = []
        with requests.Session() as session:
            session.trust_env = False
            session.hooks["response"].append(lambda response, *_, **__: warnings.extend(_warnings(response)))
            client = PrometheusConnect(self._url, retry=_NO_RETRIES, session=session, timeout=self._deadline_s)
            try:
                rows = ask(client)
                return Partial(tuple(warnings)) if warnings else read(rows)
            except requests.Timeout:
                return Error(ErrorKind.TIMEOUT, f"no answer within {self._deadline_s:g} s")
            except PrometheusApiClientException as error:
                return Error(ErrorKind.REFUSED, str(error)[:200])
            except (requests.JSONDecodeError, KeyError, TypeError, ValueError) as error:
                return Error(ErrorKind.MALFORMED, repr(error)[:200])
            except requests.RequestException as error:
                return Error(ErrorKind.UNREACHABLE, _reason(error))

    def _read(self, result: _Rows) -> QueryAnswer:
        samples = [
            MetricSample(item["metric"], float(item["value"][1])) for item in result if _AGE not in item["metric"]
        ]
        ages = [float(item["value"][1]) for item in result if _AGE in item["metric"]]
        return classify(samples, max(ages[0], 0.0) if ages else None, self._stale_after_s)


def _range_of(rows: _Rows, end: float) -> RangeAnswer:
    pairs = [(item["metric"], [(float(at), float(value)) for at, value in item["values"]]) for item in rows]
    found = [RangeSeries(labels, tuple(one for one in points if not math.isnan(one[1]))) for labels, points in pairs]
    if series := tuple(one for one in found if one.points):
        return RangeValue(series)
    newest = max((points[-1][0] for _, points in pairs if points), default=None)
    return Empty() if newest is None else NaN(end - newest)


def _reason(error: requests.RequestException) -> str:
    """The innermost cause, without addresses in memory: a status must not change with every try."""
    inner = getattr(error.args[0], "reason", None) if error.args else None
    text = _OBJECT.sub("", str(inner or error)).removeprefix(_CONNECTING)
    return text[:CAUSE_LIMIT]


def _warnings(response: requests.Response) -> list[str]:
    try:
        body = response.json()
    except ValueError:
        return []
    return [str(warning) for warning in body.get("warnings", ())] if isinstance(body, dict) else []
