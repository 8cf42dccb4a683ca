"""The filters that a configuration can name, prepared once at start. A new filter is added to KNOWN."""

from collections.abc import Callable, Mapping, Sequence

from paceline_core.errors import InvalidInput
from paceline_workers.config import FilterConfig
from paceline_workers.server.filters.runner import FilterRunner, Filters, OutputFilter
from paceline_workers.server.filters.words import words

Make = Callable[[], OutputFilter]
KNOWN: Mapping[str, Callable[[Mapping[str, str], str], Make]] = {"words": words}


def read(configured: Sequence[FilterConfig]) -> Callable[[], Filters] | None:
    """A factory of each answer's filters, in the configured order; None without any. Raises InvalidInput."""
    if not configured:
        return None
    ready: list[tuple[FilterConfig, Make]] = []
    for place, one in enumerate(configured):
        if one.name not in KNOWN:
            words = f"there is no filter {one.name!r}; this version has {', '.join(KNOWN)}"
            raise InvalidInput(f"filters[{place}].name", words)
        ready.append((one, KNOWN[one.name](one.config, f"filters[{place}].config")))
    return lambda: Filters([FilterRunner(one.name, one.failure, make()) for one, make in ready])
