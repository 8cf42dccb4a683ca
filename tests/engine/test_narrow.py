"""bf16 weights and pages, and the kinds of products: as far from float64 as their arithmetic makes unavoidable."""

import random
from collections.abc import Sequence

import pytest
import torch
from tests.engine import reference
from tests.engine.driver import Driver, load
from tests.engine.greedy import OUR_ERROR
from tests.engine.reference import VOCAB, Reference
from tests.engine.reference_scheduler import request
from tests.every import cases
from torch import Tensor

from paceline_workers.engine.backends.cpu import linear
from paceline_workers.engine.backends.cpu.backend import CpuBackend
from paceline_workers.engine.backends.cpu.linear import PLAIN_ROWS, Kind, LinearFactory
from paceline_workers.engine.scheduling import Chunk, StepPlan
from paceline_workers.messages import Sampling

pytestmark = pytest.mark.models

CUTS = (1, 2, 3, 8, 16, 33, 1, 56)
TYPES = [("bf16", "bf16"), ("bf16", "fp32"), ("fp32", "bf16")]
KINDS: list[Kind] = ["plain", "packed", "both"]


@pytest.fixture(scope="module", params=["llama", "llama-one-kv-head-bias", "mistral-window", "qwen3"])
def expected(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Reference:
    return reference.write(tmp_path_factory.mktemp(request.param), request.param, dtype=torch.bfloat16)


def text() -> list[int]:
    chance = random.Random(11)
    return [chance.randrange(VOCAB) for _ in range(sum(CUTS))]


def last_rows(backend: CpuBackend, tokens: Sequence[int]) -> Tensor:
    """Logits of the last token of every cut."""
    entry = request("a", list(tokens))
    entry.pages = list(range(8))
    rows, start = [], 0
    for count in CUTS:
        plan = StepPlan((Chunk(entry, start, count, True),))
        rows.append(backend.decoder(backend.decoder.lay_out(plan, 16), backend.cache)[0])
        start += count
    return torch.stack(rows)


def ends() -> list[int]:
    return [sum(CUTS[: place + 1]) - 1 for place in range(len(CUTS))]


@pytest.mark.parametrize(("dtype", "kv_dtype"), TYPES)
def test_bf16_errs_at_most_twice_as_much_as_transformers_in_bf16(
    expected: Reference, dtype: str, kv_dtype: str
) -> None:
    exact = expected.exact(text())[ends()]
    peer = reference.open_folder(expected.folder, torch.bfloat16).logits(text())[ends()]
    ours = last_rows(load(expected.folder, dtype=dtype, kv_dtype=kv_dtype), text())
    rounding = (exact.bfloat16() - exact).abs().max()
    assert (ours - exact).abs().max() <= 2 * (peer.float() - exact).abs().max() + 2 * rounding
    assert (ours - exact).abs().max() > 10 * expected.error


@pytest.mark.parametrize("kind", KINDS)
def test_products_of_every_kind_keep_to_the_error_of_float32(expected: Reference, kind: Kind) -> None:
    exact = expected.exact(text())[ends()]
    ours = last_rows(load(expected.folder, products=kind), text())
    assert (ours - exact).abs().max() <= OUR_ERROR * expected.error


def test_bf16_halves_weights_and_pages(expected: Reference) -> None:
    wide, narrow = load(expected.folder), load(expected.folder, dtype="bf16", kv_dtype="bf16")
    assert 2 * narrow.facts.page_bytes == wide.facts.page_bytes
    assert 2 * narrow.decoder.embedding.nbytes == wide.decoder.embedding.nbytes


@pytest.mark.parametrize(
    ("kind", "shared", "copies"),
    [
        ("plain", False, (True, False)),
        ("packed", False, (False, True)),
        ("packed", True, (True, False)),
        ("both", False, (True, True)),
        ("both", True, (True, True)),
    ],
)
def test_weights_are_held_as_asked_and_never_twice_unless_asked(
    kind: Kind, shared: bool, copies: tuple[bool, bool]
) -> None:
    assert linear.packable(torch.float32)
    made = LinearFactory(kind).linear(torch.ones(8, 4), shared=shared)
    assert (made.weight is not None, made.packed is not None) == copies


@cases("kind", KINDS)
def test_a_type_that_this_processor_cannot_pack_is_kept_plain(monkeypatch: pytest.MonkeyPatch, kind: Kind) -> None:
    """As a processor without AVX-512 cannot pack bf16."""
    monkeypatch.setattr(linear, "packable", lambda dtype: dtype is torch.float32)
    made = LinearFactory(kind).linear(torch.ones(8, 4, dtype=torch.bfloat16))
    assert (made.weight is not None, made.packed) == (True, None)


@cases("rows", [0, 1, 2, 3, 4, 50])
@cases("kind", KINDS)
@cases("dtype", list(PLAIN_ROWS))
def test_a_product_is_right_for_any_number_of_rows(kind: Kind, rows: int, dtype: torch.dtype) -> None:
    torch.manual_seed(rows)
    weight, bias, x = (torch.randn(shape).to(dtype) for shape in ((31, 17), (31,), (rows, 17)))
    made = LinearFactory(kind).linear(weight, bias)
    torch.testing.assert_close(made(x), torch.addmm(bias.float(), x.float(), weight.T.float()).to(dtype))


def test_the_same_steps_in_bf16_give_the_same_seeded_tokens(expected: Reference) -> None:
    backend = load(expected.folder, dtype="bf16")

    def run() -> list[list[int]]:
        driver = Driver(backend, cache=False)
        for place in range(4):
            driver.submit(f"r{place}", text()[place : 20 * place + 9], 24, Sampling(temperature=0.9, seed=place))
        driver.drain()
        return [driver.text(f"r{place}") for place in range(4)]

    assert run() == run()
