"""Re-creations of services from ServeGen's published statistics: arrivals by client and window, lengths by client.

ServeGen (Alibaba, 2025) describes each client of a service in windows of ten minutes, by its rate and the law of the
gaps between its requests (gamma or Weibull), and its lengths in windows of six hours, by quantiles. No single request
is published, so what comes from here is a re-creation and no trace. A client is a tenant.

A client without published lengths borrows those of the service's first client that has some. A service is thinned by
keeping each of its requests with a probability, which softens its bursts. Known holes: a window begins with a gap of
its own, and prompt and output lengths are drawn independently, because their correlation is not published.
"""

import csv
import gzip
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from math import gamma
from pathlib import Path
from random import Random
from typing import TypeVar

from paceline_core.errors import InvalidInput
from paceline_simulator.traces import TraceRequest

WINDOW_S = 600.0
LENGTHS_S = 6 * 3600.0
SHARES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)
"""The quantiles that lengths are published with."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClientWindow:
    """A client's arrivals in WINDOW_S seconds from `start_s`: requests a second, and the law of the gaps.

    `law`: "G" for gamma, "W" for Weibull, with its `shape`; the scale follows from the rate.
    """

    client: str
    start_s: float
    rate: float
    law: str
    shape: float

    def arrivals(self, random: Random) -> Iterator[float]:
        """Times within the window."""
        mean = self.shape if self.law == "G" else gamma(1 + 1 / self.shape)
        draw = random.gammavariate if self.law == "G" else lambda shape, scale: random.weibullvariate(scale, shape)
        return takewhile(lambda at: at < self.start_s + WINDOW_S, self._sums(lambda: draw(self.shape, 1 / mean)))

    def _sums(self, draw: Callable[[], float]) -> Iterator[float]:
        now = self.start_s
        while True:
            now += draw() / self.rate
            yield now


@dataclass(frozen=True, slots=True)
class ClientLengths:
    """The quantiles of a client's prompts and outputs, in tokens, in LENGTHS_S seconds from `start_s`."""

    start_s: float
    prompt: Sequence[float]
    output: Sequence[float]

    def draw(self, random: Random) -> tuple[int, int]:
        """Prompt and output tokens, at least one each."""
        return _at(self.prompt, random.random()), _at(self.output, random.random())


def recreate(  # noqa: PLR0913 - what names a re-creation
    folder: Path, service: str, random: Random, *, start_s: float, span_s: float, share: float = 1.0
) -> list[TraceRequest]:
    """`span_s` seconds of a service from `start_s` on, at a `share` of its rate. Raises InvalidInput.

    `folder` holds `servegen_client_windows.csv.gz` and `servegen_client_lengths.csv.gz`.
    """
    lengths = read_lengths(folder / "servegen_client_lengths.csv.gz", service)
    usual = next(iter(lengths.values()))
    found: list[TraceRequest] = []
    for window in read_windows(folder / "servegen_client_windows.csv.gz", service):
        if not start_s - WINDOW_S < window.start_s < start_s + span_s:
            continue
        own = lengths.get(window.client, usual)
        drawn = own[max(bisect_right([each.start_s for each in own], window.start_s) - 1, 0)]
        for at in window.arrivals(random):
            prompt, output = drawn.draw(random)
            if start_s <= at < start_s + span_s and random.random() < share:
                found.append(TraceRequest(at - start_s, prompt, output, tenant=window.client))
    return sorted(found, key=lambda request: request.at)


def read_windows(path: Path, service: str) -> list[ClientWindow]:
    """All windows of a service. Raises InvalidInput naming the file and the line, or the services that it has."""

    def window(row: Mapping[str, str]) -> ClientWindow:
        found = ClientWindow(
            row["client"], float(row["t_s"]), float(row["rate_rps"]), row["dist"], float(row["p_shape"])
        )
        if found.law not in {"G", "W"} or not (found.rate > 0 and found.shape > 0):
            raise ValueError(f"the law {found.law!r} with rate {found.rate} and shape {found.shape}")
        return found

    return _rows(path, service, window)


def read_lengths(path: Path, service: str) -> dict[str, list[ClientLengths]]:
    """A service's lengths by client, in the order of time. Raises InvalidInput as `read_windows`."""

    def field(row: Mapping[str, str]) -> tuple[str, float, str, list[float]]:
        return row["client"], float(row["t_s"]), row["field"], [float(row[f"p{share * 100:g}"]) for share in SHARES]

    by_window: defaultdict[tuple[str, float], dict[str, list[float]]] = defaultdict(dict)
    for client, start_s, name, quantiles in _rows(path, service, field):
        by_window[client, start_s][name] = quantiles
    found: defaultdict[str, list[ClientLengths]] = defaultdict(list)
    for (client, start_s), fields in sorted(by_window.items()):
        prompt = fields.get("input_tokens", fields.get("text_tokens"))
        if prompt is None or "output_tokens" not in fields:
            raise InvalidInput(str(path), f"lacks prompt or output lengths of client {client} at {start_s:g} s")
        found[client].append(ClientLengths(start_s, prompt, fields["output_tokens"]))
    return dict(found)


def _rows(path: Path, service: str, read: Callable[[Mapping[str, str]], T]) -> list[T]:
    found: list[T] = []
    services: set[str] = set()
    try:
        with gzip.open(path, "rt") as file:
            for row in (reader := csv.DictReader(file)):
                services.add(str(row.get("workload")))
                if row.get("workload") == service:
                    try:
                        found.append(read(row))
                    except (KeyError, TypeError, ValueError) as error:
                        place = f"{path}:{reader.line_num}"
                        raise InvalidInput(place, f"is damaged ({error!r}); mend or remove the line") from None
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise InvalidInput(str(path), f"cannot be read ({error}); pass ServeGen's reduced statistics") from None
    if not found:
        raise InvalidInput(
            "service", f"{service!r} is not in {path}; it has {', '.join(sorted(services)) or 'nothing'}"
        )
    return found


def _at(quantiles: Sequence[float], share: float) -> int:
    """The value at a share, linear between the published ones and flat below the first."""
    place = bisect_right(SHARES, share)
    if place == 0:
        return max(round(quantiles[0]), 1)
    place = min(place, len(SHARES) - 1)
    part = (share - SHARES[place - 1]) / (SHARES[place] - SHARES[place - 1])
    return max(round(quantiles[place - 1] + part * (quantiles[place] - quantiles[place - 1])), 1)
