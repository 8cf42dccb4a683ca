import random

import pytest
import torch
from torch import Tensor

from paceline_kernels.copy_blocks import launch, reference
from paceline_kernels.copy_blocks.independent_batches import independent_batches

LAYERS, PAGES = 3, 7
PAGE = (2, 2, 16, 8)
"""kv heads, key and value, tokens, head_dim."""


def pool(kind: torch.dtype, device: torch.device, page: tuple[int, ...] = PAGE) -> Tensor:
    """Random bytes, whatever they mean in this type: a copy keeps even what is no number."""
    size = (LAYERS, PAGES, *page[:-1], page[-1] * kind.itemsize)
    return torch.randint(0, 256, size, dtype=torch.uint8, device=device).view(kind)


def same(one: Tensor, other: Tensor) -> bool:
    """Bit by bit."""
    return torch.equal(one.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8))


def indices(pages: object, device: torch.device) -> Tensor:
    return torch.tensor(pages, dtype=torch.int64, device=device)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int8], ids=str)
def test_pages_of_any_type_are_copied_bit_by_bit_and_others_left_alone(kind: torch.dtype, device: torch.device) -> None:
    data = pool(kind, device)
    expected, pairs = data.clone(), indices([(0, 3), (6, 1), (0, 5)], device)
    reference.copy_blocks(expected.view(torch.uint8), pairs)
    launch.copy_blocks(data, pairs)
    assert same(data, expected)


@pytest.mark.parametrize("block", [64, 128, 4096])
@pytest.mark.parametrize("page", [PAGE, (1, 2, 17, 4), (1, 2, 16)], ids=str)
def test_a_page_is_copied_whole_however_many_programs_share_it(
    page: tuple[int, ...], block: int, device: torch.device
) -> None:
    data = pool(torch.float32, device, page)
    expected, pairs = data.clone(), indices([(2, 0)], device)
    reference.copy_blocks(expected.view(torch.uint8), pairs)
    launch.copy_blocks(data, pairs, launch=launch.Launch(block=block, warps=1))
    assert same(data, expected)


def test_an_empty_list_copies_nothing(device: torch.device) -> None:
    data = pool(torch.int8, device)
    before, none = data.clone(), indices([], device)
    launch.copy_blocks(data, none.view(0, 2))
    launch.gather_pages(data, none, torch.empty(0, LAYERS, *PAGE, dtype=torch.int8, device=device))
    launch.scatter_pages(data, none, torch.empty(0, LAYERS, *PAGE, dtype=torch.int8, device=device))
    assert same(data, before)


def test_copies_in_waves_end_like_copies_one_by_one(device: torch.device) -> None:
    data = pool(torch.float32, device)
    expected, chance = data.clone(), random.Random(7)
    pairs = [(chance.randrange(PAGES), chance.randrange(PAGES)) for _ in range(12)]
    for source, target in pairs:
        expected[:, target] = expected[:, source].clone()
    for group in independent_batches(pairs):
        launch.copy_blocks(data, indices(group, device))
    assert same(data, expected)


def test_pages_leave_with_their_scales_in_one_row_of_bytes_and_come_back(device: torch.device) -> None:
    data, scales = pool(torch.int8, device), pool(torch.float32, device, PAGE[:-1])
    sizes = [data[:, 0].nbytes, scales[:, 0].nbytes]
    rows = torch.full((3, sum(sizes) + 32), 9, dtype=torch.uint8, device=device)
    parts = (rows[:, : sizes[0]], rows[:, sizes[0] : -32])
    staged = [
        part.view(whole.dtype).view(3, LAYERS, *whole.shape[2:])
        for part, whole in zip(parts, (data, scales), strict=True)
    ]
    out, back, before = indices([4, 0, 4], device), indices([1, 6, 2], device), [data.clone(), scales.clone()]
    for whole, staging, old in zip((data, scales), staged, before, strict=True):
        launch.gather_pages(whole, out, staging)
        assert same(staging, old[:, out].transpose(0, 1))
        launch.scatter_pages(whole, back, staging)
        reference.scatter_pages(old.view(torch.uint8), back, staging.view(torch.uint8))
        assert same(whole, old)
    assert rows[:, -32:].eq(9).all()


@pytest.mark.parametrize(("layers", "pages"), [(1, 2**19 + 8), (9, 2**16 + 8)])
def test_pages_beyond_two_thousand_million_words_are_found(layers: int, pages: int, device: torch.device) -> None:
    """The pool is never touched but where it is copied, so it takes addresses, not memory, on a CPU."""
    data = torch.empty(layers, pages, 1, 4096, dtype=torch.int32, device=device)
    source, target = pages - 3, pages - 1
    data[:, source] = torch.randint(0, 2**31, (layers, 1, 4096), dtype=torch.int32, device=device)
    data[:, [source - 1, source + 1]] = 5
    launch.copy_blocks(data, indices([(source, target)], device))
    assert torch.equal(data[:, target], data[:, source])
    assert data[:, [source - 1, source + 1]].eq(5).all()
    staging = torch.empty(1, layers, 1, 4096, dtype=torch.int32, device=device)
    launch.gather_pages(data, indices([target], device), staging)
    assert torch.equal(staging[0], data[:, source])
    launch.scatter_pages(data, indices([source - 1], device), staging)
    assert torch.equal(data[:, source - 1], data[:, source])


def test_rows_of_staging_beyond_two_thousand_million_words_are_found(device: torch.device) -> None:
    data = pool(torch.int32, device)
    before, pages = data.clone(), indices([1, 2, 3], device)
    apart = torch.empty(3, 2**30 + 64, dtype=torch.int32, device=device)
    staging = apart[:, : before[:, 0].numel()].view(3, LAYERS, *PAGE)
    launch.gather_pages(data, pages, staging)
    assert same(staging, before[:, pages].transpose(0, 1))
    launch.scatter_pages(data, indices([4, 5, 6], device), staging)
    assert same(data[:, 4:], before[:, pages])


@pytest.mark.parametrize(
    ("name", "data", "pairs"),
    [
        ("pairs", torch.zeros(1, 2, 4), torch.zeros(2, dtype=torch.int64)),
        ("pages and pairs", torch.zeros(1, 2, 4), torch.zeros(1, 2, dtype=torch.int32)),
        ("pool", torch.zeros(1, 2), torch.zeros(1, 2, dtype=torch.int64)),
        ("pool", torch.zeros(1, 4, 2).transpose(1, 2), torch.zeros(1, 2, dtype=torch.int64)),
        ("pool", torch.zeros(1, 2, 3), torch.zeros(1, 2, dtype=torch.int64)),
    ],
)
def test_what_cannot_be_copied_is_named(name: str, data: Tensor, pairs: Tensor) -> None:
    with pytest.raises(ValueError, match=f"^{name} "):
        launch.copy_blocks(data, pairs)


@pytest.mark.parametrize("staging", [torch.zeros(2, 1, 4), torch.zeros(1, 1, 4, dtype=torch.int32)], ids=str)
def test_a_staging_tensor_of_another_shape_or_type_is_refused(staging: Tensor) -> None:
    data, pages = torch.zeros(1, 2, 4), torch.zeros(1, dtype=torch.int64)
    for move in (launch.gather_pages, launch.scatter_pages):
        with pytest.raises(ValueError, match=r"^staging "):
            move(data, pages, staging)
