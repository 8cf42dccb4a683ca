from datetime import UTC, datetime

import pytest
from tests.every import cases

from paceline_cli.commands.kube.pause import checked_reason, until
from paceline_core.errors import InvalidInput

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("duration", "moment", "end"),
    [
        ("2h", "", "2026-01-31T14:00:00Z"),
        ("1d", "", "2026-02-01T12:00:00Z"),
        ("", "2026-01-31T18:00:00Z", "2026-01-31T18:00:00Z"),
        ("", "2026-01-31T18:00:00+02:00", "2026-01-31T16:00:00Z"),
    ],
)
def test_a_pause_ends_after_a_time_or_at_one(duration: str, moment: str, end: str) -> None:
    assert until(duration, moment, NOW) == end


@cases(
    ("duration", "moment", "words"),
    [
        ("", "", "--for: give either"),
        ("1h", "2026-02-01T00:00:00Z", "--for: give either"),
        ("soon", "", "--for: 'soon' is not a duration; write it like 30m, 2h or 3d"),
        ("0s", "", "--for: '0s' is not in the future"),
        ("31d", "", "--for: a pause ends within 30 days"),
        ("9" * 30 + "h", "", "--for: .* is not a duration"),
        ("", "tomorrow", "--until: 'tomorrow' is no time; write it like"),
        ("", "2026-01-31T18:00:00", "--until: .* has no time zone; write 2026-01-31T18:00:00Z for UTC"),
        ("", "2026-01-31T11:59:59Z", "--until: .* is not in the future"),
        ("", "2027-01-31T12:00:00Z", "--until: a pause ends within 30 days"),
    ],
)
def test_a_time_that_cannot_be_meant_is_refused_with_the_fix(duration: str, moment: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        until(duration, moment, NOW)


def test_a_reason_is_one_line_of_bounded_length() -> None:
    assert checked_reason("launch\n  day ") == "launch day"
    with pytest.raises(InvalidInput, match="--reason: has 257 characters; keep it to 256"):
        checked_reason("x" * 257)
