"""`batch_invariant`: the same bits whatever is computed beside a token and however its request is cut into steps."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from tests.engine import reference
from tests.engine.driver import Driver, load
from tests.engine.greedy import OUR_ERROR
from tests.engine.reference import VOCAB
from tests.engine.reference_scheduler import request
from tests.every import cases
from torch import Tensor
from torch.nn.functional import linear

from paceline_core.errors import InvalidInput
from paceline_workers.engine.backends.cpu.backend import CpuBackend
from paceline_workers.engine.backends.cpu.linear import Kind, LinearFactory
from paceline_workers.engine.model.invariant import MOST, SIZES, Attention, Blocks, silu
from paceline_workers.engine.scheduling import Chunk, StepPlan
from paceline_workers.messages import Sampling

pytestmark = pytest.mark.models

TYPES = ["fp32", "bf16"]
LENGTH, TOKENS = 90, 28
CUTS = ((90,), (40, 1, 1, 17, 31), (16, 33, 1, 40))
ARCHITECTURES = ("llama-untied-odd-heads", "llama-one-kv-head-bias", "mistral-window", "qwen3-window-by-layer-types")


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return reference.write(tmp_path_factory.mktemp("llama"), "llama", seed=3).folder


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def text(chance: random.Random, length: int) -> list[int]:
    return [chance.randrange(VOCAB) for _ in range(length)]


def rows(backend: CpuBackend, tokens: Sequence[int], cuts: Sequence[int], beside: int = 0) -> Tensor:
    """Logits of the last token of every cut; each step computes another request of `beside` tokens, too."""
    entry, other = request("a", list(tokens)), request("b", list(tokens[::-1]))
    entry.pages, other.pages = list(range(20, 8, -1)), list(range(30, 42))
    found, start = [], 0
    for count in cuts:
        chunks = (Chunk(entry, start, count, True), *([Chunk(other, 0, beside, True)] if beside else []))
        found.append(backend.decoder(backend.decoder.lay_out(StepPlan(chunks), 16), backend.cache)[0])
        start += count
    return torch.stack(found)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_logits_do_not_depend_on_chunks_neighbours_or_which_token_a_step_ends_with(
    tmp_path: Path, name: str, dtype: str
) -> None:
    expected = reference.write(tmp_path, name)
    backend = load(expected.folder, dtype=dtype, batch_invariant=True)
    tokens = text(random.Random(5), LENGTH)
    single = rows(backend, tokens, (1,) * LENGTH)
    for beside, cuts in enumerate(CUTS):
        ends = [sum(cuts[: place + 1]) - 1 for place in range(len(cuts))]
        assert torch.equal(rows(backend, tokens, cuts, 29 * beside), single[ends]), cuts
    if dtype == "fp32":
        assert (single - expected.exact(tokens)).abs().max() <= OUR_ERROR * expected.error


Answer = list[tuple[int, tuple[float, list[tuple[int, float]]]]]
Asked = dict[str, tuple[list[int], Sampling]]


def answers(driver: Driver, requests: Asked, tokens: int = TOKENS) -> dict[str, Answer]:
    """Tokens and log-probabilities of each."""
    for name, (prompt, sampling) in requests.items():
        driver.submit(name, prompt, tokens, sampling)
    driver.events.clear()
    driver.drain()
    told: dict[str, Answer] = {name: [] for name in requests}
    for event in driver.events:
        told[event.id] += zip(event.ids, event.logprobs, strict=True)
    return told


@dataclass(frozen=True)
class Served:
    """Requests of any length, every second one sampled with a seed, and what each gets alone."""

    backend: CpuBackend
    requests: Asked
    alone: dict[str, Answer]

    def some(self, names: Sequence[str]) -> tuple[Asked, dict[str, Answer]]:
        return {name: self.requests[name] for name in names}, {name: self.alone[name] for name in names}


@pytest.fixture(scope="module", params=TYPES)
def served(request: pytest.FixtureRequest, llama: Path) -> Served:
    backend, chance = load(llama, dtype=request.param, batch_invariant=True), random.Random(8)
    requests = {
        f"r{place}": (text(chance, length), Sampling(temperature=0.9 * (place % 2), top_p=0.9, seed=place, logprobs=4))
        for place, length in enumerate((1, 30, 7, 31, 100, 47, 5, 16, 17, 64))
    }
    alone: dict[str, Answer] = {}
    for name, wanted in requests.items():
        alone |= answers(Driver(backend, cache=False), {name: wanted})
    assert all(len(answer) == TOKENS for answer in alone.values())
    return Served(backend, requests, alone)


def test_answers_are_bit_equal_in_any_batch_and_any_chunk_size(served: Served) -> None:
    chance = random.Random(4)
    for step_tokens in (512, 64, 33, 19):
        requests, alone = served.some(chance.sample(list(served.requests), chance.randrange(3, 10)))
        assert answers(Driver(served.backend, cache=False, step_tokens=step_tokens), requests) == alone, step_tokens


@pytest.mark.parametrize("cache", [True, False])
def test_answers_are_bit_equal_after_a_preemption(served: Served, cache: bool) -> None:
    requests, alone = served.some(["r1", "r3", "r5", "r6", "r7"])
    tight = Driver(served.backend, pages=11, max_model_len=160, cache=cache)
    assert answers(tight, requests) == alone
    assert tight.core.counters.preemptions > 0


def test_answers_are_bit_equal_from_cached_prefixes_and_resumed_at_any_token(served: Served) -> None:
    warm = Driver(served.backend)
    for name, wanted in served.requests.items():
        assert answers(warm, {name: wanted}) == {name: served.alone[name]}
        assert answers(warm, {f"{name} again": wanted}) == {f"{name} again": served.alone[name]}
    assert warm.core.counters.hit_tokens > 200
    for place, (name, (prompt, sampling)) in enumerate(served.requests.items()):
        cut = 1 + 2 * place
        resumed = {name: (prompt + [token for token, _ in served.alone[name]][:cut], sampling)}
        assert answers(Driver(served.backend), resumed, TOKENS - cut)[name] == served.alone[name][cut:], cut


@cases("threads", [1, 3])
@cases("kind", ["plain", "packed", "both"])
@cases("dtype", [torch.float32, torch.bfloat16])
def test_a_row_of_a_product_has_the_same_bits_at_any_place_among_any_number_of_rows(
    dtype: torch.dtype, kind: Kind, threads: int
) -> None:
    torch.set_num_threads(threads)
    chance = torch.Generator().manual_seed(2)
    for shape in ((96, 64), (31, 17), (300, 90)):
        weight, bias, x = (torch.randn(size, generator=chance).to(dtype) for size in (shape, shape[0], (600, shape[1])))
        made = LinearFactory(kind, batch_invariant=True).linear(weight, bias)
        expected = torch.cat([made(row[None]) for row in x])
        torch.testing.assert_close(expected, linear(x.float(), weight.float(), bias.float()).to(dtype))
        for start, count in ((0, 600), (1, 2), (5, 3), (7, 33), (300, 257), (0, 0)):
            assert torch.equal(made(x[start : start + count]), expected[start : start + count]), (shape, count)


def _but_for(*rows: int) -> Callable[[Tensor], Tensor]:
    """A product that rounds in another way for these numbers of rows."""
    return lambda x: x.double().mul(1 + 1e-3 * (x.shape[-2] in rows)).float()


@pytest.mark.parametrize(
    ("product", "sizes"),
    [
        (_but_for(), SIZES),
        (_but_for(1), SIZES[1:]),
        (_but_for(*SIZES[6:]), SIZES[:6]),
        (lambda x: x * (torch.arange(x.shape[-2])[:, None] + 1), (1,)),
        (lambda x: x * (1 + (torch.arange(x.shape[-2]) >= 16)[:, None]), SIZES[:5]),
    ],
    ids=["all agree", "one row differs", "large ones differ", "each place differs", "places from 16 on differ"],
)
def test_blocks_are_the_most_sizes_that_agree_at_every_place(
    product: Callable[[Tensor], Tensor], sizes: tuple[int, ...]
) -> None:
    x = torch.randn(MOST, 5, generator=torch.Generator().manual_seed(4))
    blocks = Blocks.of(product, x)
    assert blocks.sizes == sizes
    expected = torch.cat([blocks(product, row[None]) for row in x])
    for count in (0, 1, 3, 17, 100, 255):
        assert torch.equal(blocks(product, x[:count]), expected[:count])


def test_products_that_agree_with_nothing_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"engine\.batch_invariant: sums depend on the batch here"):
        Blocks.of(lambda x: x * torch.nan, torch.ones(MOST, 3))


@pytest.mark.parametrize(("head_dim", "threads"), [(10, 1), (10, 3), (24, 3), (64, 2)])
def test_attention_of_a_head_has_the_same_bits_beside_any_others(head_dim: int, threads: int) -> None:
    torch.set_num_threads(threads)
    chance = torch.Generator().manual_seed(3)
    for page_tokens in (8, 64):
        attention = Attention.of(page_tokens, head_dim)
        sizes = (3, page_tokens, page_tokens)
        queries, keys, values = (torch.randn(9, rows, head_dim, generator=chance) for rows in sizes)
        mask = torch.zeros(9, 1, page_tokens)
        together = attention(queries, keys, values, mask)
        for one in range(9):
            part = slice(one, one + 1)
            assert torch.equal(attention(queries[part], keys[part], values[part], mask[part]), together[part])
            assert torch.equal(attention(queries[part, 1:2], keys[part], values[part], mask[part]), together[part, 1:2])


@pytest.mark.parametrize("page_tokens", [8, 64])
def test_attention_by_pages_is_attention_and_pages_out_of_sight_change_no_bit(page_tokens: int) -> None:
    chance, places = torch.Generator().manual_seed(6), 3 * page_tokens
    attention = Attention.of(page_tokens, 24)
    queries, keys, values = (torch.randn(2, count, 24, generator=chance) for count in (5, places, places))
    mask = torch.zeros(1, 5, places).masked_fill_(torch.rand(1, 5, places, generator=chance) < 0.4, float("-inf"))
    found = attention(queries, keys, values, mask)
    scores = (queries.double() @ keys.double().mT) * 24**-0.5 + mask
    torch.testing.assert_close(found, (scores.softmax(-1) @ values.double()).float())
    hidden = torch.full((1, 5, page_tokens), float("-inf"))
    for keys_, values_, mask_ in (
        [torch.cat(pair, 1) for pair in ((keys[:, :page_tokens], keys), (values[:, :page_tokens], values))]
        + [torch.cat((hidden, mask), 2)],
        [torch.cat(pair, 1) for pair in ((keys, keys), (values, values))] + [torch.cat((mask, *[hidden] * 3), 2)],
    ):
        assert torch.equal(attention(queries, keys_, values_, mask_), found)


@pytest.mark.parametrize("threads", [1, 3])
def test_silu_has_the_same_bits_at_any_place(threads: int) -> None:
    torch.set_num_threads(threads)
    x = 4 * torch.randn(500, 2 * 100, generator=torch.Generator().manual_seed(7))
    gate = x.chunk(2, dim=-1)[0]
    torch.testing.assert_close(silu(gate), torch.nn.functional.silu(gate))
    assert torch.equal(silu(gate), torch.cat([silu(row[None]) for row in gate]))
    assert silu(torch.tensor([-1e4, 0.0, 1e4])).tolist() == [0.0, 0.0, 1e4]


def test_pages_on_disk_are_not_those_of_an_engine_whose_results_depend_on_the_batch(
    llama: Path, tmp_path: Path
) -> None:
    engine = {"host_bytes": 1 << 16, "disk_bytes": 1 << 22, "disk_path": tmp_path}
    files = [load(llama, batch_invariant=invariant, **engine).facts.disk for invariant in (False, True)]
    assert None not in files
    assert len(list(tmp_path.glob("*.kv"))) == 2
