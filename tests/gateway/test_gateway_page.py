"""docs/gateway.md against the configuration it describes: each setting once, its default, the chart's value."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from pydantic.fields import FieldInfo

from paceline_core.config import Config
from paceline_core.kube.connect import ClusterConfig
from paceline_gateway.config import GatewayConfig, Hedging, Limits, Quota, RedisConfig

ROOT = Path(__file__).parents[2]
ROWS = {
    name: (default, chart)
    for name, default, chart in re.findall(
        r"^\| `([a-z_.]+)` \| (.+?) \| (.+?) \| .*\|$", (ROOT / "docs" / "gateway.md").read_text(), re.MULTILINE
    )
}
PARTS: dict[str, type[Config]] = {
    "": GatewayConfig,
    "cluster.": ClusterConfig,
    "hedging.": Hedging,
    "quota.": Quota,
    "quota.redis.": RedisConfig,
    "limits.": Limits,
}


def settings() -> Iterator[tuple[str, FieldInfo]]:
    for prefix, part in PARTS.items():
        yield from ((f"{prefix}{name}", field) for name, field in part.model_fields.items())


def written(field: FieldInfo) -> str:
    """A default as the page has it."""
    if field.is_required():
        return "required"
    if field.default_factory is not None:
        return "the host's"
    value = field.get_default()
    if isinstance(value, Config):
        return "below"
    return "none" if value is None else f"`{json.dumps(value)}`"


def test_the_page_has_every_setting_and_no_other() -> None:
    assert list(ROWS) == [name for name, _ in settings()]


@pytest.mark.parametrize(("name", "field"), list(settings()), ids=lambda it: it if isinstance(it, str) else "")
def test_the_page_has_the_default(name: str, field: FieldInfo) -> None:
    assert ROWS[name][0] == written(field)


@pytest.mark.parametrize("value", sorted({chart.strip("`") for _, chart in ROWS.values()} - {"-"}))
def test_the_chart_has_the_value_that_the_page_names(value: str) -> None:
    node = yaml.safe_load((ROOT / "charts" / "paceline" / "values.yaml").read_text())
    for name in value.split("."):
        assert name in node
        node = node[name]
