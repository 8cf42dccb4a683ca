"""What a scrape brought."""

from collections.abc import Iterator

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample


def samples(page: bytes, name: str) -> Iterator[Sample]:
    """Those of `name`; only their lines are parsed, since a page has some hundred others."""
    lines = "".join(f"{line}\n" for line in page.decode().splitlines() if line.startswith(name))
    for family in text_string_to_metric_families(lines):
        yield from (sample for sample in family.samples if sample.name == name)
