"""One test over many items: it runs them all, lists all that fail, and costs one test instead of one for each item."""

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar

import pytest

T = TypeVar("T")


def every(items: Iterable[T], name: Callable[[T], str]) -> Callable[[Callable[[T], None]], Callable[[], None]]:
    """Run a test's body for every item; the failure says which items failed, by `name`, and why."""
    known = list(items)
    assert known, "there is nothing to look at"

    def over_all(test: Callable[[T], None]) -> Callable[[], None]:
        def run() -> None:
            offenders = []
            for item in known:
                try:
                    test(item)
                except AssertionError as error:
                    offenders.append(f"{name(item)}: {error}")
            assert not offenders, "\n" + "\n".join(offenders)

        run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
        return run

    return over_all


def cases(names: str | tuple[str, ...], rows: Iterable[Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`pytest.mark.parametrize` as one test: each case that fails is one error of the group, with the case as a note.

    All cases share what fixtures give: use this only where a case leaves it as it was.
    """
    keys = (names,) if isinstance(names, str) else names
    table = [dict(zip(keys, (row,) if isinstance(names, str) else row, strict=True)) for row in rows]
    assert table, "there is no case"

    def over_all(test: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(test)
        def run(**others: Any) -> None:
            errors: list[BaseException] = []
            for case in table:
                with _collected(errors, case):
                    test(**case, **others)
            _raised(errors, len(table))

        @wraps(test)
        async def run_async(**others: Any) -> None:
            errors: list[BaseException] = []
            for case in table:
                with _collected(errors, case):
                    await test(**case, **others)
            _raised(errors, len(table))

        chosen: Any = run_async if inspect.iscoroutinefunction(test) else run
        known = inspect.signature(test)
        assert known.parameters.keys() >= set(keys), f"{test.__name__} takes none of {keys}"
        chosen.__signature__ = known.replace(
            parameters=[one for one in known.parameters.values() if one.name not in keys]
        )
        return chosen  # type: ignore[no-any-return]

    return over_all


@contextmanager
def _collected(errors: list[BaseException], case: dict[str, Any]) -> Iterator[None]:
    try:
        yield
    except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 (the group is raised once all cases have run)
        error.add_note("case: " + ", ".join(f"{key}={value!r}"[:500] for key, value in case.items()))
        errors.append(error)


def _raised(errors: list[BaseException], count: int) -> None:
    if errors:
        raise BaseExceptionGroup(f"{len(errors)} of {count} cases failed", errors)
