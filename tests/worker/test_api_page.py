"""docs/api.md names what the code takes and what it refuses, and nothing else."""

import re
from pathlib import Path

import pytest

from paceline_core.nesting import LEVELS
from paceline_workers.engine.sampling import grammar
from paceline_workers.server.openai.embeddings import INPUTS_LIMIT, EmbeddingRequest
from paceline_workers.server.openai.lengths import COUNTED_CHARACTERS
from paceline_workers.server.openai.messages import MESSAGES_LIMIT
from paceline_workers.server.openai.requests import NEUTRAL, SEQUENCES_LIMIT, ChatRequest, CompletionRequest
from paceline_workers.server.openai.structured import CHOICES_LIMIT
from paceline_workers.server.openai.tokenizing import IDS_LIMIT
from paceline_workers.server.openai.tools import TOOLS_LIMIT
from paceline_workers.server.protocol import HEADER_COST
from paceline_workers.server.threads import WAITING

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


@pytest.mark.parametrize(
    ("words", "limit"),
    [
        ("at most {:,}, text only", MESSAGES_LIMIT),
        ("a list of up to {} of either", SEQUENCES_LIMIT),
        ("at most {} tools", TOOLS_LIMIT),
        ("`choice` (up to {} texts)", CHOICES_LIMIT),
        ("all texts of a choice together have at most {:,} characters", grammar.LONGEST),
        ("nested at most {} levels deep", LEVELS),
        ("up to {:,} of either", INPUTS_LIMIT),
        ("or when {} texts of over 4,096 characters", WAITING),
        ("at most {:,}: their text", IDS_LIMIT),
        ("at most {:,} characters, or 16 for each token", COUNTED_CHARACTERS),
        ("each header counting for {} bytes more (431)", HEADER_COST),
    ],
)
def test_limits_are_those_of_the_code(words: str, limit: int) -> None:
    assert words.format(limit) in " ".join(PAGE.split())
