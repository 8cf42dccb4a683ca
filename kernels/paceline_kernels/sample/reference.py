"""The definition of sampling, row by row in float64: the engine's numpy sampler rewritten in PyTorch.

Noise comes from Philox4x64-10 (Salmon et al., SC'11) as numpy runs it: the counter advances before the first block, so
token id `i` has word `i % 4` of the block at (i // 4 + 1, position, purpose, 0) under the key (seed, choice).
"""

import math

import torch
from torch import Tensor

from paceline_kernels.sample.state import FROM_PROMPT, GREEDY, MOST, NUMBERS, WHOLE, SampleOutput, SamplerState

TOKEN = 0
"""The purpose of noise that draws tokens."""
FACTORS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
WEYL = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
ROUNDS = 10
_LOW = (1 << 32) - 1


def sample(logits: Tensor, slots: Tensor, positions: Tensor, state: SamplerState, drawn: SampleOutput) -> SampleOutput:
    """One token for each row of `logits` [rows, vocab] for the request in its slot; counts it in the slot.

    `slots` [rows] int32, each slot at most once, -1: no request, token 0. `positions` [rows] int32: tokens that the
    request has so far.
    """
    for row, (slot, position) in enumerate(zip(slots.tolist(), positions.tolist(), strict=True)):
        drawn.tokens[row], drawn.stopped[row], drawn.best[row] = 0, True, 0.0
        if slot >= 0:
            _sample(logits[row].double(), _Request(state, slot, position), drawn, row)
    return drawn


def bits(seed: int, choice: int, position: int, purpose: int, size: int) -> Tensor:
    """64 random bits for each token id below `size`, as int64."""
    blocks = torch.arange(1, -(-size // 4) + 1)
    words = [blocks, *(torch.full_like(blocks, _signed(word)) for word in (position, purpose, 0))]
    for turn in range(ROUNDS):
        keys = [_signed(key + turn * step) for key, step in zip((seed, choice), WEYL, strict=True)]
        high, low = zip(*(_product(words[at], factor) for at, factor in zip((0, 2), FACTORS, strict=True)), strict=True)
        words = [high[1] ^ words[1] ^ keys[0], low[1], high[0] ^ words[3] ^ keys[1], low[0]]
    return torch.stack(words, dim=1).flatten()[:size]


def gumbel(raw: Tensor) -> Tensor:
    """-log(-log u), u uniform in (0, 1) from the upper 53 bits."""
    upper = (raw >> 11) & ((1 << 53) - 1)
    return -(-((upper.double() + 0.5) * 2.0**-53).log()).log()


def filtered(scores: Tensor, temperature: float, min_p: float, top_k: int, top_p: float) -> Tensor:
    """`scores` [vocab] over temperature; min-p, top-k and then top-p each set what they exclude of the rest to -inf."""
    row = scores / temperature
    if min_p > 0:
        row[row < row.max() + math.log(min(min_p, 1.0))] = -math.inf
    if 0 < top_k < len(row):
        row[row < row.topk(top_k).values[-1]] = -math.inf
    if top_p < 1:
        order = row.sort(descending=True, stable=True).indices
        reached = (row[order] - row.max()).exp().cumsum(0)
        row[order[int((reached < top_p * reached[-1]).sum()) + 1 :]] = -math.inf
    return row


class _Request:
    """A slot's parameters by name."""

    def __init__(self, state: SamplerState, slot: int, position: int) -> None:
        self.state, self.slot, self.position = state, slot, position
        self.numbers: dict[str, float] = dict(zip(NUMBERS, state.numbers[slot].tolist(), strict=True))
        self.whole: dict[str, int] = dict(zip(WHOLE, state.whole[slot].tolist(), strict=True))
        self.stops: list[int] = state.stop_ids[slot, : self.whole["stops"]].tolist()

    @property
    def penalized(self) -> bool:
        penalties = (self.numbers[name] for name in ("repetition", "frequency", "presence"))
        return tuple(penalties) != (1.0, 0.0, 0.0)

    def ends(self, token: int) -> bool:
        stops = self.position >= self.whole["least"] and token in self.stops
        return stops or self.position + 1 >= self.whole["end"]


def _sample(row: Tensor, request: _Request, drawn: SampleOutput, place: int) -> None:
    scores = _adjusted(row, request)
    drawn.best[place] = best = scores.max()  # NaN if one of them is
    if not best.isfinite():
        return
    token = _choose(scores, request)
    drawn.tokens[place], drawn.stopped[place] = token, request.ends(token)
    if request.whole["logprobs"] >= 0:
        _write_logprobs(row, token, request.whole["logprobs"], drawn, place)
    if request.penalized:
        _note(request.state.counts[request.slot], token)


def _note(counts: Tensor, token: int) -> None:
    count = int(counts[token])
    if count & MOST < MOST:
        counts[token] = count + 1


def _adjusted(row: Tensor, request: _Request) -> Tensor:
    state, slot, biases = request.state, request.slot, request.whole["biases"]
    scores = row.clone()
    scores[state.bias_ids[slot, :biases].long()] += state.biases[slot, :biases]
    if request.penalized:
        scores = _penalize(scores, state.counts[slot], request.numbers)
    if request.position < request.whole["least"]:
        scores[request.stops] = -math.inf
    return scores


def _penalize(scores: Tensor, counts: Tensor, numbers: dict[str, float]) -> Tensor:
    made = (counts & MOST).double()
    repeated = torch.where(scores < 0, scores * numbers["repetition"], scores / numbers["repetition"])
    lowered = repeated - numbers["frequency"] * made - numbers["presence"] * (made > 0)
    return torch.where((counts & FROM_PROMPT != 0) | (made > 0), lowered, scores)


def _choose(scores: Tensor, request: _Request) -> int:
    """The first of the best, after adding noise unless the row is greedy."""
    numbers, whole = request.numbers, request.whole
    if numbers["temperature"] >= GREEDY:
        row = filtered(scores, numbers["temperature"], numbers["min_p"], whole["top_k"], numbers["top_p"])
        scores = row + gumbel(bits(whole["seed"], whole["choice"], request.position, TOKEN, len(scores)))
    return int((scores == scores.max()).nonzero()[0])


def _write_logprobs(row: Tensor, token: int, top: int, drawn: SampleOutput, place: int) -> None:
    logprobs = row - row.logsumexp(0)
    drawn.logprob[place] = logprobs[token]
    order = row.sort(descending=True, stable=True).indices[:top]
    drawn.top_ids[place, :top] = -1
    drawn.top_ids[place, : len(order)] = order.int()
    drawn.top_logprobs[place, : len(order)] = logprobs[order].float()


def _product(words: Tensor, factor: int) -> tuple[Tensor, Tensor]:
    """Upper and lower 64 bits of unsigned products, by halves: int64 wraps, and its shifts must not extend signs."""
    low, high = words & _LOW, (words >> 32) & _LOW
    across = high * (factor & _LOW) + ((low * (factor & _LOW) >> 32) & _LOW)
    other = low * (factor >> 32) + (across & _LOW)
    return high * (factor >> 32) + ((across >> 32) & _LOW) + ((other >> 32) & _LOW), words * _signed(factor)


def _signed(word: int) -> int:
    """The int64 with the same 64 bits."""
    word &= (1 << 64) - 1
    return word - (word >> 63 << 64)
