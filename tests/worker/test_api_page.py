"""docs/api.md names what the code takes and what it refuses, and nothing else."""

import re
from pathlib import Path

from paceline_workers.server.openai.requests import NEUTRAL, ChatRequest, CompletionRequest

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
TAKEN, REFUSED = PAGE.split("Refused unless")
TABLE = [line for line in TAKEN.splitlines() if line.startswith("| `")]


def names(text: str) -> set[str]:
    return set(re.findall(r"`([a-z_]+)`", text))


def test_the_table_holds_the_fields_of_both_routes_and_no_other() -> None:
    listed = {name for line in TABLE for name in names(line.split("|")[1])}
    assert listed == ChatRequest.model_fields.keys() | CompletionRequest.model_fields.keys()


def test_what_is_refused_is_told() -> None:
    assert names(REFUSED.split("##")[0]) == NEUTRAL.keys()
