"""`spec.filters`: checks and changes on what goes in and comes out."""

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import Field

from paceline_core.objects.fields import ApiModel, Label, Switch, bounded

Stage = Literal["input", "output"]

WORDS: Final = "words"
WORDS_SETTINGS: Final = ("words", "action", "replacement")
WORDS_ACTIONS: Final = ("replace", "end")
NO_WORDS: Final = "filter words needs at least one word: set config.words, several separated by commas, like cat, dog"


def listed_words(config: Mapping[str, str]) -> list[str]:
    """The words that the settings of the filter `words` list."""
    return [word for part in config.get("words", "").split(",") if (word := part.strip())]


class Filter(ApiModel):
    """One filter; filters of a stage run in the order written."""

    name: Label
    """Name of a filter. words (stage output) replaces listed words, or ends the answer at the first of them."""
    stage: Stage
    """input (the prompt) or output (the answer)."""
    config: Annotated[dict[str, Annotated[str, Field(max_length=1024)]], bounded(32)] = {}
    """Settings of the filter, as strings, at most 32. words takes words (separated by commas), action (replace, which
    is the default, or end) and replacement (default: ***)."""
    failure: Switch = "closed"
    """What a failing filter does: closed refuses the request (default), open lets it pass."""
