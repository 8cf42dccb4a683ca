"""The chart's values: every one explained, every one in the schema, every typo refused by name."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from tests.chart.rendering import CHART, ROOT, helm, rendered, template
from tests.every import cases
from tools.dashboards.rules import RUNBOOKS

VALUES = (CHART / "values.yaml").read_text()
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
HELMS_OWN = {"global", "paceline-crds"}


def test_every_value_is_explained_by_the_comment_above_it() -> None:
    lines = VALUES.splitlines()
    bare = []
    for number, line in enumerate(lines):
        if re.match(r" *[a-zA-Z]+: *\S", line) and not line.startswith(" " * 6):
            bare += [] if lines[number - 1].strip().startswith("#") or _listed(line) else [line.strip()]
    assert bare == []


def test_every_value_is_in_the_schema_and_the_schema_knows_no_other() -> None:
    assert set(_leaves(yaml.safe_load(VALUES))) == set(_properties(SCHEMA))


def test_no_object_of_the_schema_takes_keys_that_nobody_reads() -> None:
    open_ones = [
        path for path, node in _nodes(SCHEMA, "") if node.get("type") == "object" and "additionalProperties" not in node
    ]
    assert open_ones == [".tolerations[]", ".global", ".paceline-crds.global"]


def test_the_install_page_has_a_row_for_every_value() -> None:
    page = (ROOT / "docs/install.md").read_text()
    rows = set(re.findall(r"^\| `([a-zA-Z.]+)`", page, re.MULTILINE))
    wanted = {
        re.sub(r"^(operator|autoscaler|gateway|worker|prometheus)\.(replicas|image|resources)$", r"PART.\2", leaf)
        for leaf in _leaves(yaml.safe_load(VALUES))
    }
    assert rows == wanted


@pytest.mark.real
@cases("tool", ["helm", "helm3"])
@cases(
    ("said", "names"),
    [
        ("gateway.replica=3", "replica"),
        ("gatway.replicas=3", "gatway"),
        ("watchNamespaces=chat", "watchNamespaces"),
        ("watchNamespaces={Chat}", "watchNamespaces"),
        ("logLevel=info", "logLevel"),
        ("operator.replicas=two", "replicas"),
        ("prometheus.url=prometheus:9090", "url"),
        ("prometheus.retention.time=forever", "time"),
        ("image.pullPolicy=Sometimes", "pullPolicy"),
        ("gateway.drainSeconds=0", "drainSeconds"),
        ("gateway.service.port=80000", "port"),
        ("monitoring.labels.team=7", "team"),
        ("autoscaler.resources.request.cpu=1", "request"),
        ("paceline-crds.install=false", "install"),
        ("gateway.replicas=0", "replicas"),
        ("gateway.corsOrigins={chat.example.com}", "corsOrigins"),
        ("gateway.resources.requests.cpu=lots", "cpu"),
        ("gateway.resources.limits.memory=2GB", "memory"),
        ("operator.resources.limits.memory=-1Gi", "memory"),
        ("prometheus.storage=much", "storage"),
        ("monitoring.runbooks=wiki/runbooks", "runbooks"),
        ("autoscaler.ledger.size=1", "size"),
        ("autoscaler.ledger.persistence.accessModes={ReadOnlyMany}", "accessModes"),
        ("autoscaler.ledger.persistence.existingClaim=A", "existingClaim"),
    ],
)
def test_what_cannot_be_right_is_refused_and_named(said: str, names: str, tool: str) -> None:
    done = helm("template", "paceline", str(CHART), "--set", said, tool=tool)
    assert done.returncode != 0
    assert names in done.stderr.partition("paceline:")[2]


@pytest.mark.real
def test_alerts_and_panels_link_to_the_runbooks_that_an_install_names() -> None:
    wiki = "https://wiki.example.com/paceline"
    chart = template("--set", f"monitoring.runbooks={wiki}")
    rules = "".join(chart.one("ConfigMap", "paceline-prometheus-rules")["data"].values())
    board = "".join(chart.one("ConfigMap", "paceline-dashboard-service")["data"].values())
    assert f"{wiki}/PacelineServiceDown.md" in rules
    assert f"{wiki}/PacelineScaleStuck.md" in board
    assert "paceline.dev/docs" not in rules + board
    plain = "".join(rendered().one("ConfigMap", "paceline-prometheus-rules")["data"].values())
    assert f"{RUNBOOKS}/PacelineServiceDown.md" in plain


def _listed(line: str) -> bool:
    """Lines of a block whose key carries the comment: requests and limits under `resources`."""
    return line.strip().startswith(("requests:", "limits:"))


def _leaves(values: dict[str, Any], path: str = "") -> Iterator[str]:
    for key, value in values.items():
        here = f"{path}.{key}".lstrip(".")
        if isinstance(value, dict) and value and key != "resources":
            yield from _leaves(value, here)
        else:
            yield here


def _properties(node: dict[str, Any], path: str = "") -> Iterator[str]:
    for key, inner in node["properties"].items():
        here = f"{path}.{key}".lstrip(".")
        if here in HELMS_OWN:
            continue
        if "properties" in inner:
            yield from _properties(inner, here)
        else:
            yield here


def _nodes(node: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, node
    for key, inner in node.get("properties", {}).items():
        yield from _nodes(inner, f"{path}.{key}")
    if "items" in node:
        yield from _nodes(node["items"], f"{path}[]")
