"""Our engine without sockets: its own loop over scheduler, memory and torch backend, with lists for a channel."""

import time
from collections import deque
from collections.abc import Sequence
from typing import Any, cast

from benchmarks.engine.lines import Generate, Run, Stamp, run, serve

from paceline_workers.config import EngineConfig
from paceline_workers.engine.backends.cpu.backend import CpuBackend
from paceline_workers.engine.channel import Channel
from paceline_workers.engine.loop import EngineLoop
from paceline_workers.engine.timer import SystemTimer
from paceline_workers.messages import Abort, FromEngine, Sampling, Submit, Tokens

ENGINE: dict[str, Any] = {"step_tokens": 2048, "max_seqs": 64, "kv_pages": 1024, "batch_window_s": {}}
"""Steps as large as peers' batches, and nothing waits for company, since a batch comes whole."""


class Inbox:
    """What the loop sees of a channel: sequences go in when they are due, tokens come out with their time."""

    full = False

    def __init__(self) -> None:
        self.due: deque[tuple[float, Submit]] = deque()
        self.told: list[tuple[Stamp, Tokens]] = []

    def receive(self, timeout: float) -> list[Submit | Abort]:
        """All that are due, waiting at most `timeout` seconds for the first."""
        rest = self.due[0][0] - time.perf_counter() if self.due else timeout
        if rest > 0 and timeout > 0:
            time.sleep(min(rest, timeout))
        messages: list[Submit | Abort] = []
        while self.due and self.due[0][0] <= time.perf_counter():
            messages.append(self.due.popleft()[1])
        return messages

    def send(self, message: FromEngine) -> None:
        """Keep tokens, forget heartbeats."""
        if isinstance(message, Tokens):
            self.told.append((Stamp.now(), message))

    def flush(self) -> None:
        """Nothing is written anywhere."""


def load(folder: str, threads: int) -> Generate:
    """The engine, kept between jobs."""
    timer, inbox = SystemTimer(), Inbox()
    config = EngineConfig.model_validate({**ENGINE, "threads": threads})
    backend = CpuBackend.load(config, f"file://{folder}", timer, lambda _: None)
    loop = EngineLoop(cast("Channel", inbox), backend, timer)
    count = 0

    def generate(prompts: Sequence[list[int]], new: int, arrivals: Sequence[float] = ()) -> Run:
        """`arrivals`: seconds from now at which each prompt comes; all at once if there are none."""
        nonlocal count
        count += 1
        begin, inbox.told = Stamp.now(), []
        for place, prompt in enumerate(prompts):
            submit = Submit(f"{count}-{place}", prompt, new, Sampling(temperature=0.0), ignore_eos=True)
            inbox.due.append((begin.wall + (arrivals[place] if arrivals else 0.0), submit))
        while sum(bool(tokens.finish) for _, tokens in inbox.told) < len(prompts):
            loop.turn()
        return summed(begin, inbox.told, [f"{count}-{place}" for place in range(len(prompts))])

    return generate


def summed(begin: Stamp, told: Sequence[tuple[Stamp, Tokens]], names: Sequence[str]) -> Run:
    """The run of these sequences, from what was told of them; raises RuntimeError if the engine refused one."""
    texts: dict[str, list[int]] = {name: [] for name in names}
    firsts: dict[str, Stamp] = {}
    for at, tokens in told:
        if tokens.error:
            raise RuntimeError(tokens.error)
        texts[tokens.id] += tokens.ids
        firsts.setdefault(tokens.id, at)
    first = max(firsts.values(), key=lambda stamp: stamp.wall)
    return run(begin, first, told[-1][0], list(texts.values()))


if __name__ == "__main__":
    serve(load)
