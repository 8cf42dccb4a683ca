"""Jobs of requests whose texts become vectors, and the bodies and answers of `POST /v1/embeddings`.

A job gives the engine one sequence for each text and turns the vectors into an answer.
"""

import base64
import secrets
from array import array
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Protocol

import msgspec
from msgspec import Struct
from pydantic import Field, PlainValidator

from paceline_workers.messages import Sampling, Started, Submit, Tokens
from paceline_workers.server.http.caller import Caller
from paceline_workers.server.openai.fields import FieldRoute
from paceline_workers.server.openai.inputs import CacheFields, Encoding, Input, ids_of, inputs
from paceline_workers.server.openai.jobs import JobInput
from paceline_workers.server.openai.served_model import ServedModel
from paceline_workers.server.openai.validation import invalid, parse


class PooledJob(Protocol):
    """One parsed request. The vectors arrive in the order of `submits`, in batches."""

    @property
    def submits(self) -> Sequence[Submit]:
        """One sequence for each text."""

    def take(self, frames: Sequence[Tokens]) -> None:
        """Accept the final frames of the next sequences. Raises RequestError."""

    def answer(self) -> bytes:
        """The body; call it after `take` has accepted every vector."""


MakePooledJob = Callable[[ServedModel, JobInput], Coroutine[Any, Any, PooledJob]]


def check_embeds(model: ServedModel, started: Started) -> None:
    """Refuse the request if the model cannot embed. Raises RequestError."""
    if model.no_embeddings:
        raise invalid(model.no_embeddings, "model")
    if not started.embedding:
        raise invalid("This worker emulates its model, so it has no embeddings to give; ask a real one.", "model")


def pooled_submits(
    model: ServedModel, request: CacheFields, caller: Caller, texts: Sequence[list[int]]
) -> tuple[Submit, ...]:
    """One sequence for each text, in order."""
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


INPUTS_LIMIT = 2048
"""OpenAI's limit."""


class EmbeddingRequest(CacheFields):
    """The body of `/v1/embeddings`."""

    route: ClassVar[str] = FieldRoute.EMBEDDINGS

    model: str
    input: Annotated[list[Input], PlainValidator(partial(inputs, most=INPUTS_LIMIT))]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(default=None, ge=1)
    add_special_tokens: bool = True


class EmbeddingUsage(Struct, frozen=True):
    """Token counts; an embedding generates no tokens."""

    prompt_tokens: int
    total_tokens: int


class Embedded(Struct, frozen=True):
    """The vector of one input."""

    index: int
    embedding: list[float] | str
    object: str = "embedding"


class EmbeddingList(Struct, frozen=True):
    """The body of the answer."""

    data: list[Embedded]
    model: str
    usage: EmbeddingUsage
    object: str = "list"


@dataclass(frozen=True, slots=True)
class EmbeddingJob:
    """One parsed request."""

    submits: tuple[Submit, ...]
    model: str
    base64: bool
    vectors: list[bytes] = field(default_factory=list)

    def take(self, frames: Sequence[Tokens]) -> None:
        """Keep the next vectors."""
        self.vectors.extend(frame.vector for frame in frames)

    def answer(self) -> bytes:
        """The body."""
        tokens = sum(len(submit.prompt) for submit in self.submits)
        written = [base64.b64encode(v).decode() if self.base64 else array("f", v).tolist() for v in self.vectors]
        data = [Embedded(index, vector) for index, vector in enumerate(written)]
        return msgspec.json.encode(EmbeddingList(data, self.model, EmbeddingUsage(tokens, tokens)))


async def embedding_job(model: ServedModel, asked: JobInput) -> EmbeddingJob:
    """A job from the body of `/v1/embeddings`. Raises RequestError."""
    request, started = parse(EmbeddingRequest, asked.body), asked.started
    model.known(request.model)
    check_embeds(model, started)
    if request.dimensions not in (None, started.embedding):
        words = f"`dimensions` must be {started.embedding}, which this model's vectors have, or left out."
        raise invalid(words, "dimensions")
    how = Encoding(request.add_special_tokens, request.truncation(started.max_model_len, output=1))
    all_ids = await ids_of(model.tokenizer, request.input, started.max_model_len, "input", how)
    submits = pooled_submits(model, request, asked.caller, all_ids)
    return EmbeddingJob(submits, request.model, request.encoding_format == "base64")
