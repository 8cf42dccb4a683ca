"""`spec.filters`: checks and changes on what goes in and comes out."""

from typing import Annotated, Literal

from pydantic import Field

from paceline_core.objects.fields import Label, Part, Switch, bounded

Stage = Literal["input", "output"]


class Filter(Part):
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
