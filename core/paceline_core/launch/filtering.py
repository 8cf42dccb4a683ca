"""Settings of filters that the worker would refuse at its start: said before it is started.

The API server refuses most of them by rules. It asks no rule of what it stored before there was one, and cannot see
that a list of words is blank.
"""

from collections.abc import Iterator

from paceline_core.objects.filters import NO_WORDS, WORDS, listed_words
from paceline_core.objects.problems import FieldError
from paceline_core.objects.resolved import ResolvedService
from paceline_core.objects.rules.program import FILTER_RULES
from paceline_core.objects.rules.rule import broken


def invalid_filters(service: ResolvedService) -> Iterator[FieldError]:
    """Every fault, with its field and the fix."""
    written = [one.model_dump(mode="json", by_alias=True) for one in service.filters]
    yield from broken(FILTER_RULES, {"spec": {"filters": written}})
    for index, one in enumerate(service.filters):
        if one.name == WORDS and one.config.get("words") and not listed_words(one.config):
            yield FieldError(f"spec.filters[{index}].config", NO_WORDS)
