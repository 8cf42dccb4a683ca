"""docs/api.md names what the code takes and what it refuses, and nothing else."""

import re
from pathlib import Path

from paceline_workers.server.openai.embeddings import EmbeddingRequest
from paceline_workers.server.openai.requests import NEUTRAL, ChatRequest, CompletionRequest

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
TAKEN, REFUSED = PAGE.split("Refused unless")


def names(text: str) -> set[str]:
    return set(re.findall(r"`([a-z_]+)`", text))


def listed(text: str) -> set[str]:
    """The fields of a table."""
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in names(row.split("|")[1])}


def test_the_table_holds_the_fields_of_both_routes_and_no_other() -> None:
    assert listed(TAKEN) == ChatRequest.model_fields.keys() | CompletionRequest.model_fields.keys()


def test_the_fields_of_embeddings_are_told() -> None:
    (part,) = [part for part in PAGE.split("\n## ") if part.startswith("`POST /v1/embeddings`")]
    assert listed(part) == EmbeddingRequest.model_fields.keys()


def test_what_is_refused_is_told() -> None:
    assert names(REFUSED.split("##")[0]) == NEUTRAL.keys()
