"""docs/install.md: what it shows is what the chart does. Its commands run against a cluster in tests/cluster."""

import re
import shlex

import pytest
import yaml
from tests.chart.rendering import CHART, ROOT, helm, rendered

from paceline_core import __version__

PAGE = (ROOT / "docs/install.md").read_text()
COMMANDS = [
    line
    for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
    if not line.startswith("#")
]
HELM = [line for line in COMMANDS if re.match(r"helm (install|upgrade) ", line)]


def test_the_page_shows_the_images_of_this_version() -> None:
    builds = [shlex.split(line) for line in COMMANDS if line.startswith("docker build")]
    assert {words[3] for words in builds} == {
        f"{part}/Dockerfile" for part in ("operator", "autoscaler", "gateway", "workers")
    }
    assert {words[5] for words in builds} == {
        f"paceline/{part}:{__version__}" for part in ("operator", "autoscaler", "gateway", "worker")
    }


def test_the_page_removes_every_crd() -> None:
    [line] = [line for line in COMMANDS if "delete customresourcedefinitions" in line]
    assert set(line.split()[3:]) == {path.stem for path in (ROOT / "crds").glob("*.yaml")}


@pytest.mark.real
@pytest.mark.parametrize("line", HELM)
def test_every_install_and_upgrade_of_the_page_renders(line: str) -> None:
    words = [word for word in shlex.split(line)[2:] if word not in {"--install", "--wait", "--create-namespace"}]
    if "--timeout" in words:
        del words[words.index("--timeout") : words.index("--timeout") + 2]
    words[words.index("charts/paceline")] = str(CHART)
    done = helm("template", *words)
    assert done.returncode == 0, done.stderr


@pytest.mark.real
def test_the_scrape_jobs_of_the_page_are_those_of_the_small_prometheus() -> None:
    [shown] = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    config = rendered().one("ConfigMap", "paceline-prometheus")["data"]["prometheus.yml"]
    assert yaml.safe_load(shown) == yaml.safe_load(config)["scrape_configs"]
