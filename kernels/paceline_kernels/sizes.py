"""Sizes of grids and blocks. Triton's own functions wrap and unwrap each number when the host calls them."""


def ceil_div(size: int, part: int) -> int:
    """How many parts hold it."""
    return -(-size // part)


def power_of_2(size: int) -> int:
    """The least one that is not below it."""
    return 1 << max(size - 1, 0).bit_length()
