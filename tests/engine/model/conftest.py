"""A model folder, whole and to be damaged."""

import shutil
from pathlib import Path

import pytest
from tests.engine import reference


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return reference.write(tmp_path_factory.mktemp("whole"), "llama").folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return shutil.copytree(whole, tmp_path / "model")
