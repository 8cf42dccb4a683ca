"""The device's state of the requests whose tokens it draws, by slot: written when a request joins, then kept there.

A request keeps its slot for as long as it runs. A step only gives each row's slot and its number of tokens. So the host
prepares nothing for sampling while the same requests continue, and a step that is planned before the last one's tokens
are known still counts them: `sample` counts each token that it draws in the slot's tally.

A slot is written in the stream that steps run on, so a step in flight still sees the former owner. Known hole: a
request with more biases, stop ids or log-probabilities than fit, or with a grammar, or a beam search, gets no slot
(`fits`); the host's sampler draws for it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

BIASES = 1024
"""The most biased ids of a request: as many as the API accepts."""
STOPS = 128
"""The most ids that end a request: the API accepts 64 in addition to the model's own."""
TOP = 20
"""The most log-probabilities reported for a token: as many as the API accepts."""
GREEDY = 1e-5
"""Below this temperature the best token is chosen."""
NUMBERS = ("temperature", "min_p", "top_p", "repetition", "frequency", "presence")
"""Columns of `SamplerState.numbers`."""
WHOLE = ("seed", "choice", "top_k", "logprobs", "least", "end", "biases", "stops")
"""Columns of `SamplerState.whole`."""
FROM_PROMPT = -(1 << 15)
"""The bit of a count that marks a token in the prompt; the other bits count the output, up to MOST."""
MOST = (1 << 15) - 1
NO_ID = (1 << 31) - 1
_WIDTHS = [len(NUMBERS), len(WHOLE), STOPS // 2, BIASES // 2, BIASES]
WORDS = sum(_WIDTHS)
"""The number of 8-byte words for one request's parameters; even, so that every slot is aligned to 16 bytes."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """A request's sampling parameters, as in `messages.Sampling`.

    `stop_ids` end it, but cannot be drawn while it has fewer than `least` tokens (prompt and min_tokens). It ends with
    `end` tokens in all. `logprobs`: -1 none, 0 the drawn token's, n also the n best.
    """

    temperature: float = 1.0
    min_p: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    repetition: float = 1.0
    frequency: float = 0.0
    presence: float = 0.0
    seed: int = 0
    choice: int = 0
    logprobs: int = -1
    bias: Mapping[int, float] = field(default_factory=dict)
    stop_ids: Collection[int] = ()
    least: int = 0
    end: int = NO_ID

    @property
    def penalized(self) -> bool:
        """Whether earlier tokens matter."""
        return self.repetition != 1.0 or self.frequency != 0.0 or self.presence != 0.0


def fits(asked: SamplingParams) -> bool:
    """Whether the device can draw for these parameters."""
    return len(asked.bias) <= BIASES and len(asked.stop_ids) <= STOPS and asked.logprobs <= TOP


@dataclass(frozen=True, slots=True)
class SamplerState:
    """Parameters, [slots, WORDS] of 8 bytes in one block (`packed`), and `counts` [slots, vocab] int16.

    Views of a slot's words: `numbers` [slots, NUMBERS] float64, `whole` [slots, WHOLE] int64, `stop_ids` [slots, STOPS]
    int32, `bias_ids` [slots, BIASES] int32, ascending and padded with NO_ID, and their `biases`, float64. Words after a
    slot's stops and biases, and the counts of a request without penalties, are leftovers of former owners.
    """

    packed: Tensor
    numbers: Tensor
    whole: Tensor
    stop_ids: Tensor
    bias_ids: Tensor
    biases: Tensor
    counts: Tensor

    @classmethod
    def empty(cls, slots: int, vocab: int, device: torch.device | str) -> "SamplerState":
        """Memory for this many requests; most of it is `counts`, 2 bytes for each token id of each slot."""
        packed = torch.zeros(slots, WORDS, dtype=torch.int64, device=device)
        return cls(packed, *_views(packed), torch.zeros(slots, vocab, dtype=torch.int16, device=device))

    @property
    def vocab(self) -> int:
        """Token ids that the model has."""
        return self.counts.shape[1]

    def join(self, slot: int, asked: SamplingParams, prompt: Sequence[int] = (), output: Sequence[int] = ()) -> None:
        """Give the slot to a request, with what it has produced so far: when it is new, preempted or resumed.

        The device receives it after its stream's pending work; the host does not wait. Raises ValueError if it does not
        fit.
        """
        if not fits(asked):
            raise ValueError("more biases, stop_ids or logprobs than there is room for: sample on the host")
        words = _words(asked, self.vocab)
        self.packed[slot, : len(words)].copy_(self._staged(words), non_blocking=True)
        if asked.penalized:
            self.counts[slot].copy_(self._staged(tally(prompt, output, self.vocab)), non_blocking=True)

    def _staged(self, words: Tensor) -> Tensor:
        """In pinned memory, from which the device copies by itself; torch keeps that memory until the copy is done."""
        return words.pin_memory() if self.packed.is_cuda else words


def tally(prompt: Sequence[int], output: Sequence[int], vocab: int) -> Tensor:
    """[vocab] int16: how often each token is in the output, and FROM_PROMPT if it is in the prompt."""
    made = torch.bincount(torch.tensor(output, dtype=torch.int64), minlength=vocab).clamp(max=MOST).to(torch.int16)
    given = torch.tensor(sorted(set(prompt)), dtype=torch.int64)
    made[given] |= FROM_PROMPT
    return made


@dataclass(frozen=True, slots=True)
class SampleOutput:
    """The results of `sample` for each row, in one block of memory (`packed`) so that one copy brings it to the host.

    `tokens` [rows] int64. `stopped` [rows] bool: the token ends the request. `best` [rows] float32: the best adjusted
    logit, NaN if one is; if it is not finite nothing could be drawn, the token is 0 and the row is stopped.
    If requested: `logprob` [rows] float32 of the token and of the best ones, `top_logprobs` [rows, TOP], with their
    ids, `top_ids` [rows, TOP] int32, -1 beyond the vocabulary's end.
    """

    packed: Tensor
    tokens: Tensor
    logprob: Tensor
    best: Tensor
    top_ids: Tensor
    top_logprobs: Tensor
    stopped: Tensor

    @classmethod
    def empty(cls, rows: int, device: torch.device | str, *, pinned: bool = False) -> "SampleOutput":
        """On the device, or (pinned) on the host to copy it to."""
        return cls.of(torch.zeros(rows * _ROW_BYTES, dtype=torch.uint8, device=device, pin_memory=pinned), rows)

    @classmethod
    def of(cls, packed: Tensor, rows: int) -> "SampleOutput":
        """The fields of such a block of memory."""
        sizes = [8 * rows, 4 * rows, 4 * rows, 4 * TOP * rows, 4 * TOP * rows, rows]
        tokens, logprob, best, ids, logprobs, stopped = torch.split(packed, sizes)
        return cls(
            packed,
            tokens.view(torch.int64),
            logprob.view(torch.float32),
            best.view(torch.float32),
            ids.view(torch.int32).view(rows, TOP),
            logprobs.view(torch.float32).view(rows, TOP),
            stopped.view(torch.bool),
        )


_ROW_BYTES = 8 + 4 + 4 + 8 * TOP + 1


def _views(packed: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The fields in the words of slots, `numbers` to `biases`."""
    numbers, whole, stop_ids, bias_ids, biases = torch.split(packed, _WIDTHS, dim=1)
    narrow = torch.int32
    return numbers.view(torch.float64), whole, stop_ids.view(narrow), bias_ids.view(narrow), biases.view(torch.float64)


def _words(asked: SamplingParams, vocab: int) -> Tensor:
    """A slot's words, without those for biases if there are none."""
    bias = sorted((token, value) for token, value in asked.bias.items() if 0 <= token < vocab)
    stops = sorted(token for token in asked.stop_ids if 0 <= token < vocab)
    seed = asked.seed & (1 << 64) - 1
    whole = [seed - (seed >> 63 << 64), asked.choice, asked.top_k, asked.logprobs, asked.least, asked.end]
    words = torch.zeros(1, WORDS, dtype=torch.int64)
    numbers, whole_row, stop_ids, bias_ids, biases = (view[0] for view in _views(words))
    numbers[:] = torch.tensor([float(getattr(asked, name)) for name in NUMBERS], dtype=torch.float64)
    whole_row[:] = torch.tensor([*whole, len(bias), len(stops)])
    stop_ids[: len(stops)] = torch.tensor(stops, dtype=torch.int32)
    bias_ids[:] = NO_ID
    bias_ids[: len(bias)] = torch.tensor([token for token, _ in bias], dtype=torch.int32)
    biases[: len(bias)] = torch.tensor([value for _, value in bias], dtype=torch.float64)
    return words[0] if bias else words[0, : sum(_WIDTHS[:3])]
