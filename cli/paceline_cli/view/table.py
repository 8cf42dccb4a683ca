"""A table as kubectl prints one: columns as wide as their widest cell, three spaces between them."""

from collections.abc import Iterator, Sequence


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The header's line and one for each row; an empty cell shows nothing."""
    lines = [header, *rows]
    widths = [max(len(line[index]) for line in lines) for index in range(len(header))]
    for line in lines:
        yield "   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
