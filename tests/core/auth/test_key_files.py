"""Keys in files: a rotation is seen, a damaged or vanished file costs no trust and one line in the log."""

import base64
import json
import logging
import os
from datetime import timedelta
from pathlib import Path

import pytest

from paceline_core.auth import FileSigner, HopSigner, HopVerifier, TrustFile, new_hop_key, trust_entry
from paceline_core.clock import ManualClock, SystemClock
from paceline_core.errors import InvalidInput


class Keys:
    """A trust file and signers for it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock()
        self.file = TrustFile(path, "team/chat", self.clock)
        self._writes = 0

    def write(self, *keys: bytes) -> None:
        self._writes += 1
        self.path.write_text(json.dumps(dict(trust_entry(key, "gateway") for key in keys)))
        os.utime(self.path, ns=(self._writes, self._writes))

    def token(self, key: bytes, audience: str = "team/chat") -> str:
        return HopSigner(key, "gateway").token(audience, self.clock.utc())


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path / "trust.json")


def test_a_signed_hop_to_this_service_is_trusted(keys: Keys) -> None:
    key = new_hop_key()
    keys.write(key)
    assert keys.file.verify(keys.token(key))
    assert not keys.file.verify(keys.token(key, "team/other"))
    assert not keys.file.verify(keys.token(new_hop_key()))
    assert not keys.file.verify("")


def test_an_expired_hop_is_not_trusted(keys: Keys) -> None:
    key = new_hop_key()
    keys.write(key)
    token = keys.token(key)
    keys.clock.advance(timedelta(minutes=6).total_seconds())
    assert not keys.file.verify(token)


def test_a_rotation_is_seen_without_a_restart(keys: Keys) -> None:
    old, new = new_hop_key(), new_hop_key()
    keys.write(old)
    assert keys.file.verify(keys.token(old))
    keys.write(old, new)
    assert keys.file.verify(keys.token(new))
    keys.write(new)
    assert not keys.file.verify(keys.token(old))


@pytest.mark.parametrize(
    "content",
    ["[", "just text", '{"kid": "not base64! gateway"}', '{"kid": "c2hvcnQ= gateway"}', '{"kid": ""}', '{"kid": null}'],
)
def test_a_broken_file_keeps_the_last_keys(keys: Keys, content: str) -> None:
    key = new_hop_key()
    keys.write(key)
    assert keys.file.verify(keys.token(key))
    keys.path.write_text(content)
    assert keys.file.verify(keys.token(key))


def test_a_vanished_file_keeps_the_last_keys(keys: Keys) -> None:
    key = new_hop_key()
    keys.write(key)
    assert keys.file.verify(keys.token(key))
    keys.path.unlink()
    assert keys.file.verify(keys.token(key))


def test_without_a_trust_file_nobody_is_trusted(keys: Keys) -> None:
    assert not TrustFile(None, "team/chat", keys.clock).verify(keys.token(new_hop_key()))


def test_a_trusted_hop_tells_who_sends_it(keys: Keys) -> None:
    key = new_hop_key()
    keys.write(key)
    hop = keys.file.hop(keys.token(key))
    assert hop is not None
    assert hop.issuer == "gateway"


def test_a_file_that_is_not_there_is_told_before_anybody_asks(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        TrustFile(tmp_path / "mistyped.json", "team/chat", SystemClock())
    (record,) = caplog.records
    assert "a key file cannot be used" in record.getMessage()


def test_a_file_that_comes_later_is_found(keys: Keys) -> None:
    key = new_hop_key()
    assert not keys.file.verify(keys.token(key))
    keys.write(key)
    assert keys.file.verify(keys.token(key))


@pytest.mark.parametrize("fault", ["vanished", "damaged"])
def test_a_fault_is_told_once_and_once_more_after_it_was_mended(
    keys: Keys, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    key = new_hop_key()
    keys.write(key)
    with caplog.at_level(logging.WARNING):
        for told in (1, 2):
            assert keys.file.verify(keys.token(key))
            keys.path.unlink() if fault == "vanished" else keys.path.write_text("[")
            assert all(keys.file.verify(keys.token(key)) for _ in range(5))
            assert len(caplog.records) == told
            keys.write(key)


def swap(folder: Path, generation: int, key: bytes) -> Path:
    """Write a file as the kubelet refreshes a mounted Secret: a new folder, and one rename of the link to it."""
    data = folder / f"..{generation}"
    data.mkdir(parents=True)
    (data / "hop.key").write_bytes(key)
    (folder / "..new").symlink_to(data.name)
    (folder / "..new").rename(folder / "..data")
    if not (folder / "hop.key").is_symlink():
        (folder / "hop.key").symlink_to("..data/hop.key")
    return folder / "hop.key"


def knows(key: bytes, token: str, clock: ManualClock) -> bool:
    return HopVerifier(dict([trust_entry(key, "gateway")]), "team/chat").verify(token, clock.utc()) is not None


def test_a_signer_takes_up_the_key_that_a_mounted_secret_was_swapped_for(tmp_path: Path) -> None:
    clock, old, new = ManualClock(), new_hop_key(), new_hop_key()
    signer = FileSigner(swap(tmp_path, 1, old), "gateway")
    assert knows(old, signer.token("team/chat", clock.utc()), clock)
    swap(tmp_path, 2, new)
    assert knows(new, signer.token("team/chat", clock.utc()), clock)


@pytest.mark.parametrize("content", [None, b"", b"short", base64.b64encode(b"x" * 32)])
def test_a_signer_keeps_its_key_while_the_file_has_none(
    tmp_path: Path, content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    clock, key = ManualClock(), new_hop_key()
    path = tmp_path / "hop.key"
    path.write_bytes(key)
    signer = FileSigner(path, "gateway")
    path.unlink() if content is None else path.write_bytes(content)
    for minutes in (0, 3, 6):
        clock.advance(60 * minutes)
        assert knows(key, signer.token("team/chat", clock.utc()), clock)
    assert len(caplog.records) == 1


def test_a_signer_without_a_key_at_first_says_which_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"hop_key: .*absent cannot be read"):
        FileSigner(tmp_path / "absent", "gateway")
