"""A test over many items fails for each of those that offend, and for no other."""

import pytest
from tests.every import cases, every


def test_all_that_offend_are_listed() -> None:
    @every([1, 2, 3], str)
    def odd(number: int) -> None:
        assert number % 2 == 1, "even" if number == 2 else ""

    with pytest.raises(AssertionError, match=r"^\n2: even\nassert"):
        odd()


def test_a_lint_of_nothing_is_a_fault() -> None:
    with pytest.raises(AssertionError, match="nothing to look at"):
        every([], str)


def noted(error: BaseException) -> list[str]:
    """The cases that failed, of groups within groups too."""
    if isinstance(error, BaseExceptionGroup):
        return [note for one in error.exceptions for note in (*noted(one), *getattr(one, "__notes__", []))]
    return []


def test_every_case_runs_and_those_that_fail_are_named() -> None:
    seen = []

    @cases(("number", "text"), [(1, "a"), (2, "b"), (3, "c"), (4, "d")])
    def right(number: int, text: str) -> None:
        seen.append(text)
        if number == 2:
            raise ValueError("no")
        with pytest.raises(ValueError, match="invalid literal"):
            int("1" if number == 3 else "no")

    with pytest.raises(BaseExceptionGroup, match="2 of 4 cases failed") as caught:
        right()
    assert seen == ["a", "b", "c", "d"]
    assert noted(caught.value) == ["case: number=2, text='b'", "case: number=3, text='c'"]


async def test_a_coroutine_is_awaited_for_every_case() -> None:
    @cases("number", [1, 2])
    async def right(number: int) -> None:
        assert number == 1

    with pytest.raises(BaseExceptionGroup) as caught:
        await right()
    assert noted(caught.value) == ["case: number=2"]


def test_tables_above_each_other_are_multiplied() -> None:
    seen = []

    @cases("letter", "ab")
    @cases("number", [1, 2])
    def right(letter: str, number: int) -> None:
        seen.append(f"{letter}{number}")
        assert (letter, number) != ("b", 2)

    with pytest.raises(BaseExceptionGroup) as caught:
        right()
    assert seen == ["a1", "a2", "b1", "b2"]
    assert noted(caught.value) == ["case: number=2", "case: letter='b'"]


@pytest.fixture
def given() -> str:
    return "given"


@cases("number", [1, 2])
def test_what_a_fixture_gives_comes_to_every_case(number: int, given: str) -> None:
    assert (number in {1, 2}, given) == (True, "given")


def test_a_table_without_a_case_or_a_place_for_it_is_a_fault() -> None:
    with pytest.raises(AssertionError, match="no case"):
        cases("number", [])
    with pytest.raises(AssertionError, match="right takes none of"):

        @cases("number", [1])
        def right() -> None: ...
