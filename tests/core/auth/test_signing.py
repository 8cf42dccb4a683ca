"""Keys in files: a rotation is seen, a damaged or vanished file costs no trust and one line in the log."""

import base64
import json
import logging
import os
from datetime import timedelta
from pathlib import Path

import pytest

from paceline_core.auth import (
    FileSigner,
    InvalidToken,
    TokenSigner,
    TokenVerifier,
    TrustBundle,
    jwk_set,
    new_signing_key,
    public_jwk,
)
from paceline_core.clock import ManualClock, SystemClock
from paceline_core.errors import InvalidInput


class Keys:
    """A JWK set in a file and signers for it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock()
        self.file = TrustBundle(path, "team/chat", self.clock)
        self._writes = 0

    def write(self, *keys: bytes) -> None:
        self._writes += 1
        self.path.write_text(json.dumps(jwk_set(public_jwk(key, "gateway") for key in keys)))
        os.utime(self.path, ns=(self._writes, self._writes))

    def token(self, key: bytes, audience: str = "team/chat") -> str:
        return TokenSigner(key, "gateway").token(audience, self.clock.utc())


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path / "jwks.json")


def test_a_token_for_this_service_is_trusted(keys: Keys) -> None:
    key = new_signing_key()
    keys.write(key)
    assert keys.file.verify(keys.token(key))
    assert not keys.file.verify(keys.token(key, "team/other"))
    assert not keys.file.verify(keys.token(new_signing_key()))
    assert not keys.file.verify("")


def test_an_expired_token_is_not_trusted(keys: Keys) -> None:
    key = new_signing_key()
    keys.write(key)
    token = keys.token(key)
    keys.clock.advance(timedelta(minutes=6).total_seconds())
    assert not keys.file.verify(token)


def test_a_rotation_is_seen_without_a_restart(keys: Keys) -> None:
    old, new = new_signing_key(), new_signing_key()
    keys.write(old)
    assert keys.file.verify(keys.token(old))
    keys.write(old, new)
    assert keys.file.verify(keys.token(new))
    keys.write(new)
    assert not keys.file.verify(keys.token(old))


@pytest.mark.parametrize(
    "content",
    [
        "[",
        "just text",
        "{}",
        '{"keys": {}}',
        '{"keys": [], "keys": []}',
        '{"keys": [{"kid": ""}]}',
        '{"keys": [{"kid": "a", "kty": "OKP", "crv": "Ed25519", "x": "not base64!", "issuers": ["gateway"]}]}',
        '{"keys": [{"kid": "a", "kty": "OKP", "crv": "Ed25519", "x": "c2hvcnQ", "issuers": ["gateway"]}]}',
        "[" * 100_000,
    ],
)
def test_a_broken_file_keeps_the_last_keys(keys: Keys, content: str) -> None:
    key = new_signing_key()
    keys.write(key)
    assert keys.file.verify(keys.token(key))
    keys.path.write_text(content)
    assert keys.file.verify(keys.token(key))


def test_a_vanished_file_keeps_the_last_keys(keys: Keys) -> None:
    key = new_signing_key()
    keys.write(key)
    assert keys.file.verify(keys.token(key))
    keys.path.unlink()
    assert keys.file.verify(keys.token(key))


def test_without_a_trust_bundle_nobody_is_trusted(keys: Keys) -> None:
    assert not TrustBundle(None, "team/chat", keys.clock).verify(keys.token(new_signing_key()))


def test_a_trusted_token_tells_who_sends_it(keys: Keys) -> None:
    key = new_signing_key()
    keys.write(key)
    claims = keys.file.claims(keys.token(key))
    assert claims is not None
    assert claims.issuer == "gateway"


def test_a_file_that_is_not_there_is_told_before_anybody_asks(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        TrustBundle(tmp_path / "mistyped.json", "team/chat", SystemClock())
    (record,) = caplog.records
    assert "a key file cannot be used" in record.getMessage()


def test_a_file_that_comes_later_is_found(keys: Keys) -> None:
    key = new_signing_key()
    assert not keys.file.verify(keys.token(key))
    keys.write(key)
    assert keys.file.verify(keys.token(key))


@pytest.mark.parametrize("fault", ["vanished", "damaged"])
def test_a_fault_is_told_once_and_once_more_after_it_was_mended(
    keys: Keys, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    key = new_signing_key()
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
    (data / "signing.key").write_bytes(key)
    (folder / "..new").symlink_to(data.name)
    (folder / "..new").rename(folder / "..data")
    if not (folder / "signing.key").is_symlink():
        (folder / "signing.key").symlink_to("..data/signing.key")
    return folder / "signing.key"


def knows(key: bytes, token: str, clock: ManualClock) -> bool:
    try:
        TokenVerifier(jwk_set([public_jwk(key, "gateway")]), "team/chat").verify(token, clock.utc())
    except InvalidToken:
        return False
    return True


def test_a_signer_takes_up_the_key_that_a_mounted_secret_was_swapped_for(tmp_path: Path) -> None:
    clock, old, new = ManualClock(), new_signing_key(), new_signing_key()
    signer = FileSigner(swap(tmp_path, 1, old), "gateway")
    assert knows(old, signer.token("team/chat", clock.utc()), clock)
    swap(tmp_path, 2, new)
    assert knows(new, signer.token("team/chat", clock.utc()), clock)


@pytest.mark.parametrize("content", [None, b"", b"short", base64.b64encode(b"x" * 32)])
def test_a_signer_keeps_its_key_while_the_file_has_none(
    tmp_path: Path, content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    clock, key = ManualClock(), new_signing_key()
    path = tmp_path / "signing.key"
    path.write_bytes(key)
    signer = FileSigner(path, "gateway")
    path.unlink() if content is None else path.write_bytes(content)
    for minutes in (0, 3, 6):
        clock.advance(60 * minutes)
        assert knows(key, signer.token("team/chat", clock.utc()), clock)
    assert len(caplog.records) == 1


def test_a_signer_without_a_key_at_first_says_which_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"signing_key: .*absent cannot be read"):
        FileSigner(tmp_path / "absent", "gateway")
