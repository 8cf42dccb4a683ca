"""docs/gateway.md against the configuration it describes: each setting once, its default, the chart's value."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import yaml
from pydantic.fields import FieldInfo
from tests.every import cases

from paceline_core.config import Config
from paceline_core.json_limits import CONTAINERS, STRINGS, VALUES
from paceline_core.kube.connect import ClusterConfig
from paceline_core.registry.enums import ClientLimit
from paceline_gateway.api.handlers import CHEAP_BYTES
from paceline_gateway.config import GatewayConfig, HttpLimits, Quota, RedisConfig
from paceline_gateway.http.connection import DROPPED_BODIES
from paceline_gateway.http.limits import SHARE, TURN
from paceline_gateway.http.request_reader import PIPELINE_LIMIT
from paceline_gateway.http.response import EVENT_LIMIT
from paceline_gateway.http.websocket import CONTROLS, FRAGMENTS

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
    "quota.": Quota,
    "quota.redis.": RedisConfig,
    "limits.": HttpLimits,
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


@cases(("name", "field"), list(settings()))
def test_the_page_has_the_default(name: str, field: FieldInfo) -> None:
    assert ROWS[name][0] == written(field)


@cases("value", sorted({chart.strip("`") for _, chart in ROWS.values()} - {"-"}))
def test_the_chart_has_the_value_that_the_page_names(value: str) -> None:
    node = yaml.safe_load((ROOT / "charts" / "paceline" / "values.yaml").read_text())
    for name in value.split("."):
        assert name in node
        node = node[name]


@cases(
    ("words", "bound"),
    [
        ("| {:,}; 128;", CONTAINERS),
        ("128; {:,};", STRINGS),
        ("{:,}, counted before parsing", VALUES),
        ("a body over {} KiB of a tenant with nothing left", CHEAP_BYTES >> 10),
        ("| {} bodies, for `limits.lingering_close_s`", DROPPED_BODIES),
        ("waiting on one connection | {} |", PIPELINE_LIMIT),
        ("| {:,}, and one more for each KiB |", FRAGMENTS),
        ("| {} a second, 64 at once |", CONTROLS),
        ("| {:,} units of about 1 us", TURN),
        ("| {} times what is free of `limits.memory_bytes`", SHARE),
        ("| {} MiB; 1 MiB | reset", EVENT_LIMIT >> 20),
    ],
)
def test_fixed_bounds_are_those_of_the_code(words: str, bound: int) -> None:
    assert words.format(bound) in (ROOT / "docs" / "gateway.md").read_text()


def test_every_shared_limit_is_named_as_its_metric_names_it() -> None:
    text = (ROOT / "docs" / "gateway.md").read_text()
    assert all(f"(`{limit}`)" in text for limit in ClientLimit)
