"""The request bodies of the generating routes, validated here."""

from collections.abc import Mapping
from functools import partial
from math import inf
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PlainValidator

from paceline_core.json_limits import CHOICES_PER_PROMPT, CHOICES_PER_REQUEST, too_many_choices
from paceline_workers.server.openai.chat_fields import MESSAGES_LIMIT, ChatFields, ChatMessage
from paceline_workers.server.openai.fields import FieldRoute
from paceline_workers.server.openai.inputs import CacheFields, Input, inputs, is_ids
from paceline_workers.server.openai.prompt_logprobs import MOST
from paceline_workers.server.openai.structured import StructuredFields
from paceline_workers.server.openai.validation import Body, invalid

BIAS_LIMIT = 1024
BIAS_MOST = 100.0
STOPS_LIMIT = 16
STOP_CHARACTERS = 256
BAD_WORDS_LIMIT = 128
"""The worker encodes each word twice on the event loop, some 20 microseconds a time."""
PENALTY_MOST = 8.0
"""The largest exponent of a beam's length: anything higher selects the longest beam, whatever it says."""
_UNSEARCHABLE: Mapping[str, Any] = {
    "prompt_logprobs": None,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "logit_bias": {},
    "allowed_token_ids": None,
    "bad_words": [],
}
"""Fields that a beam search does not report or that would change its scores, with the values that request nothing."""
ALLOWED_LIMIT = 1 << 18
"""The most ids of `allowed_token_ids` over all answers: the engine receives a copy for each answer."""


def _stops(value: Any) -> list[str]:
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or not all(isinstance(stop, str) and stop for stop in stops):
        raise ValueError("must be a text or a list of texts, none of them empty")
    if len(stops) > STOPS_LIMIT or any(len(stop) > STOP_CHARACTERS for stop in stops):
        raise ValueError(f"holds at most {STOPS_LIMIT} texts of at most {STOP_CHARACTERS} characters")
    return stops


def _bad_words(value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(word, str) and word for word in value):
        raise ValueError("must be a list of texts, none of them empty")
    if len(value) > BAD_WORDS_LIMIT or any(len(word) > STOP_CHARACTERS for word in value):
        raise ValueError(f"holds at most {BAD_WORDS_LIMIT} texts of at most {STOP_CHARACTERS} characters")
    return value


def _allowed(value: Any) -> list[int]:
    if not is_ids(value) or not value:
        raise ValueError("must be a list of token ids, at least one")
    return sorted(set(value))


def _bias(value: Any) -> dict[int, float]:
    if not isinstance(value, dict) or len(value) > BIAS_LIMIT:
        raise ValueError(f"must be an object of at most {BIAS_LIMIT} token ids and their biases")
    if not all(isinstance(token, str) and token.isascii() and token.isdigit() and len(token) < 10 for token in value):
        raise ValueError('has a key that is no token id, such as "1234"')
    biases = {int(token): float(bias) if type(bias) in (int, float) else inf for token, bias in value.items()}
    if not all(-BIAS_MOST <= bias <= BIAS_MOST for bias in biases.values()):
        raise ValueError(f"holds a bias that is not a number from {-BIAS_MOST:.0f} to {BIAS_MOST:.0f}")
    return biases


def _early(value: Any) -> Any:
    if not isinstance(value, bool) and value != "never":
        raise ValueError('must be true, false or "never"')
    return value


class StreamOptions(Body):
    """What a stream reports besides its text."""

    include_usage: bool = False
    continuous_usage_stats: bool = False


class GenerateRequest(CacheFields, StructuredFields):
    """The fields of both generating routes."""

    model: str
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    min_tokens: int = Field(default=0, ge=0)
    temperature: float = Field(default=1.0, ge=0, le=100)
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=0, ge=-1, lt=1 << 31)
    min_p: float = Field(default=0.0, ge=0, le=1)
    repetition_penalty: float = Field(default=1.0, gt=0, le=100)
    presence_penalty: float = Field(default=0.0, ge=-2, le=2)
    frequency_penalty: float = Field(default=0.0, ge=-2, le=2)
    logit_bias: Annotated[dict[int, float], PlainValidator(_bias)] = {}
    seed: int | None = Field(default=None, ge=-(1 << 63), lt=1 << 63)
    stop: Annotated[list[str], PlainValidator(_stops)] = []
    stop_token_ids: list[int] = Field(default=[], max_length=64)
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    prompt_logprobs: int | None = Field(default=None, ge=0, le=MOST)
    return_token_ids: bool = False
    return_tokens_as_token_ids: bool = False
    allowed_token_ids: Annotated[list[int], PlainValidator(_allowed)] | None = None
    bad_words: Annotated[list[str], PlainValidator(_bad_words)] = []
    n: int = Field(default=1, ge=1, le=CHOICES_PER_PROMPT)
    best_of: int | None = Field(default=None, ge=1, le=CHOICES_PER_PROMPT)
    use_beam_search: bool = False
    length_penalty: float = Field(default=1.0, ge=-PENALTY_MOST, le=PENALTY_MOST)
    early_stopping: Annotated[bool | Literal["never"], PlainValidator(_early)] = False

    @property
    def candidates(self) -> int:
        """How many answers or beams are generated; the best `n` of them are returned."""
        return self.best_of or self.n

    @property
    def answers(self) -> int:
        """How many are generated for all prompts together."""
        return self.candidates

    def check(self) -> None:
        candidates, answers = self.candidates, self.answers
        super().check()
        if len({self.max_tokens, self.max_completion_tokens} - {None}) > 1:
            raise invalid("`max_tokens` and `max_completion_tokens` differ; send the latter alone.", "max_tokens")
        if self.max_tokens is None:
            self.max_tokens = self.max_completion_tokens
        if candidates < self.n:
            raise invalid(f"`best_of` must be `n` ({self.n}) or more.", "best_of")
        if candidates > self.n and self.stream:
            raise invalid("`best_of` above `n` is known at the end alone and cannot be streamed.", "best_of")
        if self.stream and self.prompt_logprobs is not None:
            words = "`prompt_logprobs` are told in answers that are not streamed; leave `stream` out."
            raise invalid(words, "prompt_logprobs")
        if len(self.allowed_token_ids or ()) * answers > ALLOWED_LIMIT:
            words = f"`allowed_token_ids` is too long for {answers} answers; at most {ALLOWED_LIMIT} ids in all."
            raise invalid(words, "allowed_token_ids")
        if self.use_beam_search:
            self._check_beams()
        if "stream_options" in self.model_fields_set and not self.stream:
            raise invalid("`stream_options` is for requests whose `stream` is true.", "stream_options")

    def _check_beams(self) -> None:
        """A search knows its answers only at the end, and scores them by the model's own distribution."""
        if self.stream:
            raise invalid("`use_beam_search` knows its answers at the end alone; leave `stream` out.", "stream")
        if self.max_tokens == 0:
            words = "`use_beam_search` has nothing to find where `max_tokens` is 0; send 1 or more."
            raise invalid(words, "max_tokens")
        if field := self._unsearchable():
            raise invalid(f"`{field}` cannot be followed together with `use_beam_search`; send one.", field)

    def _unsearchable(self) -> str:
        """The field that a beam search cannot follow, "" if there is none. Raises RequestError."""
        changed = (name for name, value in _UNSEARCHABLE.items() if getattr(self, name) != value)
        return self.requested[1] or next(changed, "")


class ChatRequest(GenerateRequest, ChatFields):
    """`POST /v1/chat/completions`."""

    route: ClassVar[str] = FieldRoute.CHAT

    messages: list[ChatMessage] = Field(min_length=1, max_length=MESSAGES_LIMIT)
    logprobs: bool = False
    top_logprobs: int = Field(default=0, ge=0, le=MOST)
    parallel_tool_calls: bool = True
    return_prompt_text: bool = False
    echo: bool = False
    include_reasoning: bool = True

    def check(self) -> None:
        super().check()
        if self.top_logprobs and not self.logprobs:
            raise invalid("`top_logprobs` is for requests whose `logprobs` is true.", "top_logprobs")
        for index, message in enumerate(self.messages):
            message.check_at(f"messages[{index}]")

    def _unsearchable(self) -> str:
        return super()._unsearchable() if self.forced is None else "tools"


class CompletionRequest(GenerateRequest):
    """`POST /v1/completions`."""

    route: ClassVar[str] = FieldRoute.COMPLETIONS

    prompt: Annotated[list[Input], PlainValidator(partial(inputs, most=CHOICES_PER_REQUEST))]
    max_tokens: int | None = Field(default=None, ge=0)
    logprobs: int | None = Field(default=None, ge=0, le=MOST)
    echo: bool = False
    add_special_tokens: bool = True

    @property
    def scored(self) -> tuple[str, int | None]:
        """The field that requests log-probabilities of the prompt (`echo` does too), and how many candidates."""
        if self.echo and self.logprobs is not None:
            return "echo", max(self.prompt_logprobs or 0, self.logprobs)
        return "prompt_logprobs", self.prompt_logprobs

    @property
    def answers(self) -> int:
        """How many are generated for all prompts together."""
        return len(self.prompt) * self.candidates

    def check(self) -> None:
        super().check()
        if why := too_many_choices(len(self.prompt), self.candidates):
            raise invalid(why, "prompt")

    def _unsearchable(self) -> str:
        field, candidates = self.scored
        return self.requested[1] or (super()._unsearchable() if candidates is None else field)
