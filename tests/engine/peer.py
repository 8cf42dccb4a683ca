"""The API process's end of an engine's socket, for tests: blocking, with a limit on every wait."""

import socket
from collections.abc import Callable
from typing import Any

from paceline_workers.messages import (
    FrameReader,
    FromEngine,
    Heartbeat,
    Sampling,
    Started,
    Submit,
    ToEngine,
    Tokens,
    frame,
)
from paceline_workers.messages import from_engine as decoder

LIMIT_S = 100.0
"""A machine that does much else takes half a minute for the imports of an engine alone; a test may take 120 s."""


class Peer:
    """Sends messages, collects what comes back."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.reader = FrameReader()
        self.seen: list[FromEngine] = []

    def send(self, message: ToEngine) -> None:
        self.socket.settimeout(LIMIT_S)
        self.socket.sendall(frame(message))

    def read(self, *, wait: bool = True) -> list[FromEngine]:
        """What has come; b"" (the engine's end) raises EOFError."""
        self.socket.settimeout(LIMIT_S if wait else 0.0)
        try:
            data = self.socket.recv(1 << 20)
        except BlockingIOError:
            return []
        if not data:
            raise EOFError("the engine has closed its end")
        fresh = [decoder.decode(body) for body in self.reader.feed(data)]
        self.seen += fresh
        return fresh

    def until(self, done: Callable[["Peer"], object]) -> None:
        while not done(self):
            self.read()

    @property
    def started(self) -> Started | None:
        return next((message for message in self.seen if isinstance(message, Started)), None)

    @property
    def beats(self) -> list[Heartbeat]:
        return [message for message in self.seen if isinstance(message, Heartbeat)]

    def tokens(self, name: str) -> list[int]:
        frames = [message for message in self.seen if isinstance(message, Tokens) and message.id == name]
        assert [message.position for message in frames if message.ids] == list(range(sum(bool(m.ids) for m in frames)))
        return [token for message in frames for token in message.ids]

    def last(self, name: str) -> Tokens | None:
        frames = (message for message in self.seen if isinstance(message, Tokens) and message.id == name)
        return next((message for message in frames if message.finish), None)

    def generate(self, *submits: Submit) -> list[list[int]]:
        """Submit all, wait for all, return their tokens."""
        for submit in submits:
            self.send(submit)
        self.until(lambda peer: all(peer.last(submit.id) for submit in submits))
        return [self.tokens(submit.id) for submit in submits]

    def close(self) -> None:
        self.socket.close()


def submit(name: str, prompt: list[int], max_tokens: int = 8, **fields: Any) -> Submit:
    """A greedy request unless `sampling` says otherwise."""
    return Submit(name, prompt, max_tokens, **{"sampling": Sampling(temperature=0.0), **fields})
