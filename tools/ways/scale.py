"""The way of one scale-up: the gateway's demand report, the autoscaler's pass, the scale written.

An emulated worker gets more streams than it carries, until the supervisor starts a second one; a fresh run for each
scale-up observed. The supervisor's start of the worker marks the end. Three kinds of windows, `PASS` long, just shorter
than the time from pass to pass (1 s): idle; loaded, before the end; and the *last*, up to the end, so that it holds one
demand report and one pass, as far as its write.

- **Autoscaler**: what most of the last windows called, unless it runs at times whether idle or loaded (in `SOME` of
  both kinds of windows): scrapes, lease, and other timers slower than a pass.
- **Gateway**: what it calls, idle, in bursts that the autoscaler answers with a burst of its own at once (`LINK`), in
  `MOST` seconds of all: reports come once a second. Under load the reports cannot be told from the chats, so the
  counting of arrivals is not on this way (known hole).

The workers' load reports are on the way from the autoscaler's reading on; the supervisor and the attainment scrapes,
which come at other times, are not.
"""

import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.ways import stack, trace
from tools.ways.trace import Function, Process, Seen, Window
from tools.ways.walk import Stop, joined, order

PASS, STEP, SECOND = 900_000_000, 300_000_000, 1_000_000_000
GAP, LINK = 5_000_000, 10_000_000
SOME = (0.15, 0.7)
MOST = 0.75
STREAMS, TOKENS, LIMIT_S = 60, 1500, 90.0
IDLE_S, SETTLE_S = 12.0, 3.0
MANIFEST: dict[str, Any] = {
    "apiVersion": "paceline.dev/v1alpha1",
    "kind": "InferenceService",
    "metadata": {"name": "chat"},
    "spec": {
        "model": {"source": "builtin://demo", "servedName": "demo"},
        "engine": {
            "maxModelLen": 4096,
            "emulate": {"accelerator": "h100", "model": "llama-3.1-8b", "coldStart": "100ms"},
        },
        "classes": {"interactive": {"slo": {"ttft": {"p95": "500ms"}, "tpot": {"p95": "100ms"}}}},
        "pools": [{"name": "main", "accelerator": "cpu", "replicas": {"min": 1, "max": 2}}],
    },
}


@dataclass(frozen=True)
class Observed:
    """One scale-up: the two processes, what was called in windows of each kind."""

    idle: list[Seen]
    loaded: list[Seen]
    last: Seen
    reports: list[list[Seen]]
    """The gateway's linked bursts while idle, second by second."""


def way(root: Path, runs: int) -> list[Stop]:
    """Trace so many scale-ups of a checkout."""
    observed = [_observe(root) for _ in range(runs)]
    return joined([_gateway(observed), _autoscaler(observed)])


def _observe(root: Path) -> Observed:
    with stack.traced(root, MANIFEST) as run:
        time.sleep(SETTLE_S)
        began = time.monotonic_ns()
        time.sleep(IDLE_S)
        idle = Window(began, time.monotonic_ns())
        end = _scaled_up(run)
        time.sleep(SETTLE_S)
        processes = trace.read(run.calls)
    gateway, autoscaler = (trace.named(processes, f"paceline_{part}") for part in ("gateway", "autoscaler"))
    return Observed(
        [autoscaler.seen(window) for window in idle.slices(PASS, STEP)],
        [autoscaler.seen(window) for window in Window(idle.end, end - PASS).slices(PASS, STEP)],
        autoscaler.seen(Window(end - PASS, end)),
        [[gateway.seen(burst) for burst in _linked(gateway, autoscaler, s)] for s in idle.slices(SECOND, SECOND)],
    )


def _scaled_up(run: stack.Stack) -> int:
    """Send load until a second worker starts: when it does."""
    stop = threading.Event()
    prompts = (f"{number}: {stack.QUESTION * 150}" for number in range(STREAMS))
    clients = [threading.Thread(target=run.stream_until, args=(stop, prompt, TOKENS)) for prompt in prompts]
    for client in clients:
        client.start()
    try:
        until = time.monotonic() + LIMIT_S
        while len(started := run.started("paceline_workers")) < 2:
            if time.monotonic() > until:
                raise RuntimeError(f"no second worker within {LIMIT_S:g} s of load")
            time.sleep(0.1)
        return started[1]
    finally:
        stop.set()
        for client in clients:
            client.join()


def _autoscaler(observed: Sequence[Observed]) -> list[Stop]:
    last = [each.last for each in observed]
    idle = _shares([seen for each in observed for seen in each.idle])
    loaded = _shares([seen for each in observed for seen in each.loaded])
    most = {function for function, share in _shares(last).items() if share > 0.5}
    return order(last, {f for f in most if not (_at_times(idle.get(f, 0.0)) and _at_times(loaded.get(f, 0.0)))})


def _gateway(observed: Sequence[Observed]) -> list[Stop]:
    seconds = [bursts for each in observed for bursts in each.reports]
    shares = _shares([set().union(*bursts) for bursts in seconds])
    kept = {function for function, share in shares.items() if share >= MOST}
    reports = [burst for bursts in seconds for burst in bursts if 2 * len(kept & burst.keys()) > len(kept)]
    return order(reports, kept)


def _linked(gateway: Process, autoscaler: Process, window: Window) -> Iterable[Window]:
    begins = [burst.begin for burst in autoscaler.bursts(window, GAP)]
    for burst in gateway.bursts(window, GAP):
        if any(burst.begin < begin < burst.end + LINK for begin in begins):
            yield burst


def _at_times(share: float) -> bool:
    return SOME[0] <= share <= SOME[1]


def _shares(observed: Sequence[Collection[Function]]) -> dict[Function, float]:
    counts = Counter(function for seen in observed for function in seen)
    return {function: count / len(observed) for function, count in counts.items()}
