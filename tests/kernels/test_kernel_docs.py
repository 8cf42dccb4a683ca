"""docs/kernels.md names what there is."""

import re
from pathlib import Path

from benchmarks.kernels.__main__ import PARTS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "kernels.md").read_text()


def test_every_kernel_stands_in_the_table() -> None:
    folders = {path.parent.name for path in (ROOT / "kernels" / "paceline_kernels").glob("*/launch.py")}
    assert folders == set(re.findall(r"^\| `(\w+)` \|[^|]+\|[^|]+\|$", PAGE.partition("## Pages")[0], re.MULTILINE))


def test_every_part_of_the_benchmark_stands_in_its_table() -> None:
    rows = re.findall(r"^\| (`[^|]+`) \|", PAGE.partition("| Part |")[2], re.MULTILINE)
    assert PARTS.keys() == {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def test_its_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", PAGE)
    assert links
    assert [link for link in links if not (ROOT / "docs" / link).exists()] == []
