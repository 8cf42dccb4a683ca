"""The table of bare YAML words, asked of the kubectl that was built; it needs no cluster for it."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.harness.tools import program
from tests.core.yaml_words import READ, REFUSED

pytestmark = pytest.mark.real

HEAD = "apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: a}\nspec:\n"


def kubectl(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """What it makes of the words as values of a map, one below the other."""
    file = folder / "f.yaml"
    file.write_text(HEAD + "".join(f"  w{place}: {word}\n" for place, word in enumerate(words)))
    argv = [str(program("kubectl", "kubernetes")), "label", "--local", "-f", str(file), "-o", "json", "x=y"]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)


def test_kubectl_reads_bare_words_as_the_table_has_them(tmp_path: Path) -> None:
    found: dict[str, Any] = json.loads(kubectl(tmp_path, *READ).stdout)["spec"]
    read = [found.get(f"w{place}") for place in range(len(READ))]
    assert [(type(value), value) for value in read] == [(type(value), value) for value in READ.values()]


def test_kubectl_refuses_the_others(tmp_path: Path) -> None:
    for word in REFUSED:
        refused = kubectl(tmp_path, word)
        assert refused.returncode != 0, word
        assert "error converting YAML to JSON" in refused.stderr
