"""Requests whose texts become vectors: what the engine gets for each, and what a job does with the vectors."""

import secrets
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from paceline_workers.messages import Sampling, Started, Submit, Tokens
from paceline_workers.server.callers import Caller
from paceline_workers.server.openai.body import invalid
from paceline_workers.server.openai.jobs import JobInput
from paceline_workers.server.openai.prompt_fields import CacheFields
from paceline_workers.server.openai.served import ServedModel


class PooledJob(Protocol):
    """One request, understood. The vectors come in the order of `submits`, some of them at a time."""

    @property
    def submits(self) -> Sequence[Submit]:
        """One sequence for each text."""

    def take(self, frames: Sequence[Tokens]) -> None:
        """The last frames of the next sequences. Raises RequestError."""

    def answer(self) -> bytes:
        """The body, once every vector has been taken."""


MakePooledJob = Callable[[ServedModel, JobInput], Coroutine[Any, Any, PooledJob]]


def check_embeds(model: ServedModel, started: Started) -> None:
    """Refuse where the model has no vectors to give. Raises RequestError."""
    if model.no_embeddings:
        raise invalid(model.no_embeddings, "model")
    if not started.embedding:
        raise invalid("This worker emulates its model, so it has no embeddings to give; ask a real one.", "model")


def pooled_submits(
    model: ServedModel, request: CacheFields, caller: Caller, texts: Sequence[list[int]]
) -> tuple[Submit, ...]:
    """A sequence for each text, in order."""
    identity = secrets.token_hex(12)
    return tuple(
        Submit(
            id=f"{identity}-{index}",
            prompt=ids,
            max_tokens=1,
            sampling=Sampling(temperature=0.0),
            request_class=caller.request_class,
            salt=request.salt(caller.tenant),
            unsalted=0 if request.cache_salt else model.warm.unsalted(ids),
            deadline_s=caller.deadline_s,
            embed=True,
        )
        for index, ids in enumerate(texts)
    )
