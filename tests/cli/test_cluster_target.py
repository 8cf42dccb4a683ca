"""Which cluster `kubectl paceline` speaks to, and how it says that there is none."""

from pathlib import Path

import pytest

from paceline_cli.kube.services import named
from paceline_cli.kube.session import SYSTEM, place
from paceline_core.errors import InvalidInput
from paceline_core.kube import ObjectKey

KUBECONFIG = """
current-context: one
contexts:
- {name: one, context: {cluster: c, user: u, namespace: team-a}}
- {name: two, context: {cluster: c, user: u}}
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "config"
    path.write_text(KUBECONFIG)
    return str(path)


@pytest.mark.parametrize(
    ("context", "namespace", "chosen"),
    [("", "", "team-a"), ("one", "", "team-a"), ("two", "", "default"), ("", "other", "other"), ("x", "", "default")],
)
def test_the_namespace_is_the_options_then_the_contexts_then_default(
    file: str, context: str, namespace: str, chosen: str
) -> None:
    assert place(file, context, namespace, SYSTEM).namespace == chosen


def test_of_several_files_the_first_that_exists_is_read(file: str, tmp_path: Path) -> None:
    assert place(f"{tmp_path}/none:{file}", "", "", SYSTEM).kubeconfig == Path(file)


def test_a_kubeconfig_that_is_not_there_is_named_with_the_fix(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"--kubeconfig: .*/none does not exist; name the cluster's kubeconfig"):
        place(f"{tmp_path}/none", "", "", SYSTEM)


@pytest.mark.parametrize("text", ["[", "- 1", "contexts: {a: b}", "contexts: [1]", ""])
def test_a_damaged_kubeconfig_is_left_to_the_login_to_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    assert place(str(path), "", "", SYSTEM).namespace == "default"


@pytest.mark.parametrize("name", ["Team", "a/b", "..", "x" * 64])
def test_what_cannot_be_a_namespace_never_reaches_a_path(file: str, name: str) -> None:
    with pytest.raises(InvalidInput, match="--namespace"):
        place(file, "", name, SYSTEM)
    with pytest.raises(InvalidInput, match="--system-namespace"):
        place(file, "", "", name)


def test_a_service_is_named_alone_or_with_its_namespace(file: str) -> None:
    where = place(file, "", "", SYSTEM)
    assert named("chat", where) == ObjectKey("team-a", "chat")
    assert named("other/chat", where) == ObjectKey("other", "chat")


@pytest.mark.parametrize("name", ["", "Chat", "../secrets/x", "a/b/c", "/chat", "chat?x=1", "chat\n"])
def test_what_cannot_be_a_service_never_reaches_a_path(file: str, name: str) -> None:
    with pytest.raises(InvalidInput, match="is no service's name"):
        named(name, place(file, "", "", SYSTEM))
