"""`POST /v1/embeddings`: bodies, what the engine gets for them, and answers."""

import base64
import secrets
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Struct
from pydantic import Field, PlainValidator

from paceline_workers.messages import Sampling, Started, Submit, Tokens
from paceline_workers.server.openai.body import invalid
from paceline_workers.server.openai.fields import Route
from paceline_workers.server.openai.inputs import Encoding, Input, ids_of, inputs
from paceline_workers.server.openai.jobs import Asked
from paceline_workers.server.openai.prompt_fields import CacheFields
from paceline_workers.server.openai.requests import parse
from paceline_workers.server.openai.served import ServedModel

INPUTS_LIMIT = 2048
"""OpenAI's own."""


class EmbeddingRequest(CacheFields):
    """What `/v1/embeddings` takes."""

    route: ClassVar[str] = Route.EMBEDDINGS

    model: str
    input: Annotated[list[Input], PlainValidator(partial(inputs, most=INPUTS_LIMIT))]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(default=None, ge=1)
    add_special_tokens: bool = True


class EmbeddingUsage(Struct, frozen=True):
    """Nothing is generated."""

    prompt_tokens: int
    total_tokens: int


class Embedded(Struct, frozen=True):
    """One input's vector."""

    index: int
    embedding: list[float] | str
    object: str = "embedding"


class EmbeddingList(Struct, frozen=True):
    """The answer."""

    data: list[Embedded]
    model: str
    usage: EmbeddingUsage
    object: str = "list"


@dataclass(frozen=True, slots=True)
class EmbeddingJob:
    """One request, understood."""

    submits: tuple[Submit, ...]
    model: str
    base64: bool

    def answer(self, frames: Sequence[Tokens]) -> bytes:
        """The body, from the last frame of each sequence in the order of `submits`."""
        tokens = sum(len(submit.prompt) for submit in self.submits)
        data = [Embedded(index, self._written(frame.vector)) for index, frame in enumerate(frames)]
        return msgspec.json.encode(EmbeddingList(data, self.model, EmbeddingUsage(tokens, tokens)))

    def _written(self, vector: bytes) -> list[float] | str:
        return base64.b64encode(vector).decode() if self.base64 else array("f", vector).tolist()


async def embedding_job(model: ServedModel, asked: Asked) -> EmbeddingJob:
    """A job from a body. Raises RequestError."""
    request, started = parse(EmbeddingRequest, asked.body), asked.started
    model.known(request.model)
    _check(request, model, started)
    how = Encoding(request.add_special_tokens, request.truncation(started.max_model_len, output=1))
    all_ids = await ids_of(model.tokenizer, request.input, started.max_model_len, "input", how)
    caller, identity = asked.caller, secrets.token_hex(12)
    submits = (
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
        for index, ids in enumerate(all_ids)
    )
    return EmbeddingJob(tuple(submits), request.model, request.encoding_format == "base64")


def _check(request: EmbeddingRequest, model: ServedModel, started: Started) -> None:
    if model.no_embeddings:
        raise invalid(model.no_embeddings, "model")
    if not started.embedding:
        raise invalid("This worker emulates its model, so it has no embeddings to give; ask a real one.", "model")
    if request.dimensions not in (None, started.embedding):
        words = f"`dimensions` must be {started.embedding}, which this model's vectors have, or left out."
        raise invalid(words, "dimensions")
