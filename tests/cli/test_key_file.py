import errno
import json
import os
from pathlib import Path

import pytest

from paceline_cli.main import app
from paceline_core.auth import ApiKeyRecord, verify
from paceline_core.clock import ManualClock
from paceline_core.errors import InvalidInput, NotFound
from paceline_local import LOCAL_TENANT
from paceline_local.apiserver import ObjectStore
from paceline_local.keys import KeyFile, in_vain, publish_key_secrets


def test_a_key_is_kept_as_a_hash_alone(tmp_path: Path) -> None:
    record, text = KeyFile(tmp_path).create("team", ManualClock())
    stored = (tmp_path / "keys.json").read_text()
    assert verify(text, record)
    assert text not in stored
    assert text.rpartition("_")[2] not in stored
    assert (tmp_path / "keys.json").stat().st_mode & 0o777 == 0o600


def test_keys_survive_the_process_that_made_them(tmp_path: Path) -> None:
    first, _ = KeyFile(tmp_path).create("a", ManualClock())
    second, _ = KeyFile(tmp_path).create("b", ManualClock())
    assert [key.record for key in KeyFile(tmp_path).all()] == [first, second]
    assert KeyFile(tmp_path).all()[0].created == "2026-01-01T00:00:00Z"


def test_a_revoked_key_is_gone(tmp_path: Path) -> None:
    keys = KeyFile(tmp_path)
    record, _ = keys.create("a", ManualClock())
    assert keys.revoke(record.key_id) == record
    assert keys.all() == []
    with pytest.raises(NotFound, match="keys list"):
        keys.revoke(record.key_id)


def test_the_local_key_stays_the_same_from_run_to_run(tmp_path: Path) -> None:
    text = KeyFile(tmp_path).local(ManualClock())
    assert KeyFile(tmp_path).local(ManualClock()) == text
    assert (tmp_path / "local.key").stat().st_mode & 0o777 == 0o600
    assert [key.record.tenant for key in KeyFile(tmp_path).all()] == [LOCAL_TENANT]


def test_a_revoked_local_key_is_replaced(tmp_path: Path) -> None:
    keys = KeyFile(tmp_path)
    text = keys.local(ManualClock())
    keys.revoke(keys.all()[0].record.key_id)
    assert keys.local(ManualClock()) != text


@pytest.mark.parametrize("text", ["", "{", "[]", '{"keys": [{}]}', '{"keys": 3}'])
def test_a_damaged_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "keys.json").write_text(text)
    with pytest.raises(InvalidInput, match=r"keys\.json: is damaged; remove it"):
        KeyFile(tmp_path).all()


def test_the_gateway_sees_every_key_as_a_secret_and_no_revoked_one(tmp_path: Path) -> None:
    keys, store = KeyFile(tmp_path), ObjectStore()
    kept, _ = keys.create("a", ManualClock())
    revoked, _ = keys.create("b", ManualClock())
    publish_key_secrets(keys, store)
    assert len(store.objects.list("Secret")) == 2
    keys.revoke(revoked.key_id)
    publish_key_secrets(keys, store)
    (manifest,) = store.objects.list("Secret")
    assert ApiKeyRecord.from_manifest(manifest) == kept
    assert manifest["metadata"]["namespace"] == "paceline-system-tenant-keys"


def test_keys_of_tenants_that_are_not_here_are_noted_together(tmp_path: Path) -> None:
    keys = KeyFile(tmp_path)
    for tenant in ("b", "a", "here", "a"):
        keys.create(tenant, ManualClock())
    assert list(in_vain(keys.all(), ["here"])) == ["keys of a, b open nothing: no such Tenant here"]
    assert list(in_vain(keys.all(), ["here", "a", "b"])) == []


def test_the_file_says_its_version(tmp_path: Path) -> None:
    KeyFile(tmp_path).create("a", ManualClock())
    assert json.loads((tmp_path / "keys.json").read_text())["v"] == 1


def test_a_file_without_room_is_named_and_leaves_no_other(tmp_path: Path) -> None:
    (tmp_path / f".keys.json.{os.getpid()}").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device") as refused:
        KeyFile(tmp_path).create("a", ManualClock())
    assert (refused.value.errno, refused.value.filename) == (errno.ENOSPC, str(tmp_path / "keys.json"))
    assert [path.name for path in tmp_path.iterdir()] == [".keys.lock"]


def test_a_folder_that_a_key_made_is_noted_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = tmp_path / "typo"
    notes = []
    for _ in range(2):
        with pytest.raises(SystemExit):
            app(["keys", "create", "team", "--state", str(state)])
        notes.append(capsys.readouterr().err)
    assert notes == [f"note: {state} is a new folder; only a run with this --state takes the key\n", ""]


def test_revoking_makes_no_folder(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no key"):
        KeyFile(tmp_path / "typo").revoke("abc")
    assert list(tmp_path.iterdir()) == []
