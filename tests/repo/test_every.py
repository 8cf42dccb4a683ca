"""A lint over many items fails for each of those that offend, and for no other."""

import pytest
from tests.every import every


def test_all_that_offend_are_listed() -> None:
    @every([1, 2, 3], str)
    def odd(number: int) -> None:
        assert number % 2 == 1, "even" if number == 2 else ""

    with pytest.raises(AssertionError, match=r"^\n2: even\nassert"):
        odd()


def test_a_lint_of_nothing_is_a_fault() -> None:
    with pytest.raises(AssertionError, match="nothing to look at"):
        every([], str)
