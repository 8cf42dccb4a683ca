"""docs/api.md has the code's tables and names its limits."""

from pathlib import Path

import pytest
from tests.every import cases
from tools.api_fields import main, written

from paceline_core.admin.http_protocol import HEADER_COST
from paceline_core.json_limits import CHOICES_PER_PROMPT, CHOICES_PER_REQUEST, CONTAINERS, LEVELS, STRINGS, VALUES
from paceline_workers.engine.sampling import grammar
from paceline_workers.server.openai.chat_fields import MESSAGES_LIMIT, TOOLS_LIMIT
from paceline_workers.server.openai.embeddings import INPUTS_LIMIT
from paceline_workers.server.openai.inputs import COUNTED_CHARACTERS
from paceline_workers.server.openai.scoring import TEXTS_LIMIT
from paceline_workers.server.openai.structured import CHOICES_LIMIT
from paceline_workers.server.openai.tokenizing import IDS_LIMIT
from paceline_workers.server.text.threads import WAITING

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "api.md").read_text()


def test_its_tables_are_those_of_the_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check", "--root", str(ROOT)]) == 0
    page = tmp_path / "docs" / "api.md"
    page.parent.mkdir()
    page.write_text(PAGE.replace("| `temperature` |", "| `heat` |"))
    assert main(["--check", "--root", str(tmp_path)]) == 1
    assert "drifted" in capsys.readouterr().out
    assert main(["--root", str(tmp_path)]) == 0
    assert page.read_text() == PAGE


def test_a_page_without_a_table_is_a_fault() -> None:
    with pytest.raises(ValueError, match="table: routes"):
        written(PAGE.replace("<!-- table: routes -->", ""))


@cases(
    ("words", "limit"),
    [
        ("at most {:,}, text only", MESSAGES_LIMIT),
        ("a list of up to {} of either", CHOICES_PER_REQUEST),
        ("at most {} answers, apart in their noise", CHOICES_PER_PROMPT),
        ("a request has at most {} of them in all", CHOICES_PER_REQUEST),
        ("at most {} tools", TOOLS_LIMIT),
        ("`choice` (up to {} texts)", CHOICES_LIMIT),
        ("all texts of a choice together have at most {:,} characters", grammar.LONGEST),
        ("nested at most {} levels deep", LEVELS),
        ("at most {:,} objects and lists", CONTAINERS),
        ("{:,} strings (keys", STRINGS),
        ("{:,} values", VALUES),
        ("up to {:,} of either", INPUTS_LIMIT),
        ("a list of up to {:,} texts", TEXTS_LIMIT),
        ("or when {} texts of over 4,096 characters", WAITING),
        ("at most {:,}, or a longer context: their text", IDS_LIMIT),
        ("at most {:,} characters, or 16 for each token", COUNTED_CHARACTERS),
        ("each header counting for {} bytes more (431)", HEADER_COST),
    ],
)
def test_limits_are_those_of_the_code(words: str, limit: int) -> None:
    assert words.format(limit) in " ".join(PAGE.split())
