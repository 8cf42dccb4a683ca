"""One test over many items: it lists all that offend, and costs one test instead of one for each item."""

from collections.abc import Callable, Iterable
from typing import TypeVar

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
