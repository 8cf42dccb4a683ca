"""The way of one streamed chat: the gateway's socket, worker API process, engine process, and back to settlement.

The tiny demo model answers on the CPU. After a warm-up, chats go out one at a time, each on a new connection and with
another prompt, at moments that drift against the timers of a quarter of a second and a second. The window of a chat
reaches from its first byte to `TAIL` after its last, by when it is settled. The fastest third of the chats is kept: on
a busy machine the others are long enough for timers to fall into them. On the way is what at least `MOST` of the kept
windows called, and called more often, by `EXCESS` a window, than the idle process does in that time. So what a timer of
a quarter of a second calls is not on the way; what the chat sets off at once is, even if a timer calls it at other
times. Processes stand in the order in which the chat reaches them.
"""

import statistics
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.ways import stack, trace
from tools.ways.trace import Function, Process, Window
from tools.ways.walk import Stop, joined, order

MOST, EXCESS = 0.8, 0.5
TAIL, LONGEST = 40_000_000, 150_000_000
TOKENS = 4
WARM_UP, IDLE_S = 20, 15.0
MANIFEST: dict[str, Any] = {
    "apiVersion": "paceline.dev/v1alpha1",
    "kind": "InferenceService",
    "metadata": {"name": "chat"},
    "spec": {
        "model": {"source": "builtin://demo", "servedName": "demo"},
        "classes": {"interactive": {"slo": {"ttft": {"p95": "500ms"}, "tpot": {"p95": "100ms"}}}},
        "pools": [{"name": "main", "accelerator": "cpu", "replicas": {"min": 1, "max": 1}}],
    },
}


def way(root: Path, chats: int) -> list[Stop]:
    """Trace so many chats of a checkout."""
    with stack.traced(root, MANIFEST) as run:
        for number in range(WARM_UP):
            _chat(run, number)
        windows = sorted((_chat(run, WARM_UP + number) for number in range(chats)), key=_length)[: chats // 3]
        began = time.monotonic_ns()
        time.sleep(IDLE_S)
        idle = Window(began, time.monotonic_ns())
        processes = trace.read(run.calls)
    if (longest := _length(windows[-1])) > LONGEST:
        raise RuntimeError(f"a chat takes {longest / 1e6:.0f} ms: the machine is too busy, timers look like the chat")
    walks = [_walk(process, windows, idle) for process in processes]
    return joined(walk for _, walk in sorted(walks, key=lambda pair: pair[0]))


def _chat(run: stack.Stack, number: int) -> Window:
    time.sleep(0.25 + 0.25 * (number * 0.618 % 1))
    return run.chat(f"{number + 100}: {stack.QUESTION}", TOKENS).longer(TAIL)


def _length(window: Window) -> int:
    return window.end - window.begin


def _walk(process: Process, windows: Sequence[Window], idle: Window) -> tuple[float, list[Stop]]:
    """When the chat reaches the process (nanoseconds after its begin), and its stops there."""
    observed = [process.seen(window) for window in windows]
    kept = _kept(process, windows, idle)
    reached = [
        min(min(seen[function].values()) for function in kept & seen.keys()) - window.begin
        for seen, window in zip(observed, windows, strict=True)
        if kept & seen.keys()
    ]
    return statistics.median(reached) if reached else 0.0, order(observed, kept)


def _kept(process: Process, windows: Sequence[Window], idle: Window) -> set[Function]:
    counted = [process.counted(window) for window in windows]
    at_rest, rest = process.counted(idle), sum(map(_length, windows)) / _length(idle)
    present = Counter(function for counts in counted for function in counts)
    total: Counter[Function] = sum(counted, Counter())
    return {
        function
        for function, count in present.items()
        if count >= MOST * len(windows) and total[function] - at_rest[function] * rest >= EXCESS * len(windows)
    }
