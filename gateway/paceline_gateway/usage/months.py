"""Calendar months in UTC, as `2026-11`."""

from datetime import UTC, datetime


def month_of(moment: datetime) -> str:
    """The month that a moment lies in."""
    return f"{moment.astimezone(UTC):%Y-%m}"


def end_of(month: str) -> datetime:
    """The first moment of the month after."""
    year, number = _parts(month)
    return datetime(year + number // 12, number % 12 + 1, 1, tzinfo=UTC)


def before(month: str) -> str:
    """The month before."""
    year, number = _parts(month)
    return f"{year - 1}-12" if number == 1 else f"{year:04}-{number - 1:02}"


def _parts(month: str) -> tuple[int, int]:
    return int(month[:4]), int(month[5:])
