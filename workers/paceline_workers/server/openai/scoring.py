"""`POST /v1/score` and `POST /v1/rerank`: the similarity of texts, as the cosine of their embeddings.

vLLM scores embedding models in the same way. Each query comes right before its text in the sequences, or first of all
if all texts share it. So a score is computed when the second vector of its pair arrives, and only a query's vector is
kept. Known hole: models with a head that scores pairs (cross-encoders) are not served; the engine refuses to load them.
"""

import math
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np
from msgspec import UNSET, Struct, UnsetType
from numpy.typing import NDArray
from pydantic import Field, PlainValidator

from paceline_core.errors import Code, RequestError
from paceline_workers.messages import Submit, Tokens
from paceline_workers.server.openai.embeddings import EmbeddingUsage, check_embeds, pooled_submits
from paceline_workers.server.openai.fields import FieldRoute
from paceline_workers.server.openai.inputs import CacheFields, Encoding, ids_of
from paceline_workers.server.openai.jobs import JobInput
from paceline_workers.server.openai.served_model import ServedModel
from paceline_workers.server.openai.validation import invalid, parse

TEXTS_LIMIT = 2048
"""The most texts of one list, as for `/v1/embeddings`."""
PAIRS = (("text_1", "text_2"), ("queries", "documents"), ("queries", "items"), ("data_1", "data_2"))
"""The accepted names of the two lists of a score."""
_SEND = "Send `text_1` and `text_2`, or `queries` and `documents` (or `items`), or `data_1` and `data_2`."


def _texts(value: Any) -> list[str]:
    texts = [_text(one) for one in (value if isinstance(value, list) else [value])]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("must be a text, an object with a `text`, or a list of such")
    if not 0 < len(texts) <= TEXTS_LIMIT:
        raise ValueError(f"holds from 1 to {TEXTS_LIMIT} texts")
    return texts


def _one(value: Any) -> str:
    text = _text(value)
    if isinstance(text, str):
        return text
    raise ValueError("must be one text, or an object with a `text`")


def _text(given: Any) -> Any:
    return given.get("text") if isinstance(given, dict) else given


Texts = Annotated[list[str], PlainValidator(_texts)]


class ScoringRequest(CacheFields):
    """The fields of both routes. A limit of 0 means no limit."""

    model: str
    max_tokens_per_query: int = Field(default=0, ge=0)
    max_tokens_per_doc: int = Field(default=0, ge=0)

    def encoding(self, context: int, limit: str) -> Encoding:
        """How to encode texts, truncated to the limit in the field `limit`. Raises RequestError."""
        most: int = getattr(self, limit)
        if most >= context:
            raise invalid(f"`{limit}` must be below {context}, the tokens of this model's context, or 0.", limit)
        return Encoding(truncation=self.truncation(context, output=1), text_tokens=most)


class ScoreRequest(ScoringRequest):
    """`POST /v1/score`."""

    route: ClassVar[str] = FieldRoute.SCORE

    text_1: Texts | None = None
    text_2: Texts | None = None
    queries: Texts | None = None
    documents: Texts | None = None
    items: Texts | None = None
    data_1: Texts | None = None
    data_2: Texts | None = None

    def check(self) -> None:
        """Check rules that involve several fields. Raises RequestError."""
        super().check()
        (first, queries), (second, texts) = self.pair
        if len(queries) not in (1, len(texts)):
            words = (
                f"`{first}` holds {len(queries)} texts and `{second}` {len(texts)}; send one query, or one for each."
            )
            raise invalid(words, first)

    @property
    def pair(self) -> tuple[tuple[str, list[str]], tuple[str, list[str]]]:
        """The two lists with their names. Raises RequestError unless the request has exactly one pair of lists."""
        given = {name: texts for name in chain(*PAIRS) if (texts := getattr(self, name)) is not None}
        for first, second in PAIRS:
            if given.keys() == {first, second}:
                return (first, given[first]), (second, given[second])
        raise invalid(_SEND, _wrong(list(given)))


class RerankRequest(ScoringRequest):
    """`POST /v1/rerank`. A `top_n` of 0 returns all documents."""

    route: ClassVar[str] = FieldRoute.RERANK

    query: Annotated[str, PlainValidator(_one)]
    documents: Texts
    top_n: int = Field(default=0, ge=0)
    return_documents: bool = True


class ScoreUsage(Struct, frozen=True):
    """Token counts; scoring generates no tokens. Each text counts once, however many it is compared with."""

    prompt_tokens: int
    total_tokens: int
    completion_tokens: int = 0


class Score(Struct, frozen=True):
    """The score of one pair."""

    index: int
    score: float
    object: str = "score"


class ScoreList(Struct, frozen=True):
    """The body of an answer of `/v1/score`."""

    id: str
    created: int
    model: str
    data: list[Score]
    usage: ScoreUsage
    object: str = "list"


class Document(Struct, frozen=True):
    """A document as the client sent it."""

    text: str


class Ranked(Struct, frozen=True):
    """One document; `index` is its position in the request."""

    index: int
    relevance_score: float
    document: Document | UnsetType = UNSET


class RankedList(Struct, frozen=True):
    """The body of an answer of `/v1/rerank`."""

    id: str
    model: str
    results: list[Ranked]
    usage: EmbeddingUsage


@dataclass(frozen=True, slots=True)
class ScoringJob:
    """One parsed request. `shared`: the first sequence is the query of all texts; else a query precedes each text."""

    submits: tuple[Submit, ...]
    shared: bool
    written: Callable[[Sequence[float], int], Struct]
    scores: list[float] = field(default_factory=list)
    _query: list[NDArray[np.float64]] = field(default_factory=list)
    """The vector to compare with the next one, if it has arrived."""

    def take(self, frames: Sequence[Tokens]) -> None:
        """Compare the next vectors. Raises RequestError."""
        for frame in frames:
            vector = np.frombuffer(frame.vector, "<f4").astype(np.float64)
            if not self._query:
                self._query.append(vector)
                continue
            self.scores.append(_cosine(self._query[0], vector))
            if not self.shared:
                self._query.clear()

    def answer(self) -> bytes:
        """The body."""
        return msgspec.json.encode(self.written(self.scores, sum(len(submit.prompt) for submit in self.submits)))


async def score_job(model: ServedModel, asked: JobInput) -> ScoringJob:
    """A job from the body of `/v1/score`. Raises RequestError."""
    request = parse(ScoreRequest, asked.body)
    created = int(model.clock.utc().timestamp())
    return await _job(model, asked, request, request.pair, partial(_scored, request.model, created))


async def rerank_job(model: ServedModel, asked: JobInput) -> ScoringJob:
    """A job from the body of `/v1/rerank`. Raises RequestError."""
    request = parse(RerankRequest, asked.body)
    lists = ("query", [request.query]), ("documents", request.documents)
    return await _job(model, asked, request, lists, partial(_ranked, request))


Named = tuple[str, list[str]]


async def _job(
    model: ServedModel,
    asked: JobInput,
    request: ScoringRequest,
    lists: tuple[Named, Named],
    written: Callable[[Sequence[float], int], Struct],
) -> ScoringJob:
    model.known(request.model)
    check_embeds(model, asked.started)
    context = asked.started.max_model_len
    limits = ("max_tokens_per_query", "max_tokens_per_doc")
    hows = [request.encoding(context, limit) for limit in limits]
    queries, texts = [
        await ids_of(model.tokenizer, given, context, name, how) for (name, given), how in zip(lists, hows, strict=True)
    ]
    shared = len(queries) == 1
    ordered: Iterable[list[int]] = [*queries, *texts] if shared else chain(*zip(queries, texts, strict=True))
    return ScoringJob(pooled_submits(model, request, asked.caller, list(ordered)), shared, written)


def _scored(model: str, created: int, scores: Sequence[float], tokens: int) -> Struct:
    data = [Score(index, score) for index, score in enumerate(scores)]
    return ScoreList(f"score-{secrets.token_hex(12)}", created, model, data, ScoreUsage(tokens, tokens))


def _ranked(request: RerankRequest, scores: Sequence[float], tokens: int) -> Struct:
    """The documents by score, highest first; ties keep the order of the request."""
    order = sorted(range(len(scores)), key=scores.__getitem__, reverse=True)[: request.top_n or None]
    results = [
        Ranked(index, scores[index], Document(request.documents[index]) if request.return_documents else UNSET)
        for index in order
    ]
    return RankedList(f"rerank-{secrets.token_hex(12)}", request.model, results, EmbeddingUsage(tokens, tokens))


def _wrong(given: Sequence[str]) -> str:
    """The field to name when the lists are not a pair: the missing one, or the superfluous one."""
    if len(given) != 1:
        return given[-1] if given else PAIRS[0][0]
    return next(second if first == given[0] else first for first, second in PAIRS if given[0] in (first, second))


def _cosine(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """0 if a vector is zero, as in torch. Raises RequestError if a vector is not finite."""
    length = math.sqrt(float(one @ one) * float(other @ other))
    cosine = float(one @ other) / length if length else 0.0
    if not math.isfinite(cosine):
        raise RequestError(Code.ENGINE_FAILED, "The engine made a vector that holds no numbers.")
    return cosine
