import triton
from tests.every import cases

from paceline_kernels.checks import ceil_div, power_of_2


@cases("size", [1, 2, 3, 4, 5, 63, 64, 65, 4096, 4097])
def test_sizes_are_those_that_triton_finds(size: int) -> None:
    assert power_of_2(size) == triton.next_power_of_2(size)
    assert [ceil_div(size, part) for part in (1, 2, 64)] == [triton.cdiv(size, part) for part in (1, 2, 64)]


def test_of_nothing_a_block_has_one_place_and_a_grid_none() -> None:
    assert power_of_2(0) == 1
    assert ceil_div(0, 64) == 0
