"""What is believed of a request's headers, and of whom."""

import json
import os
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline_core.auth import HopSigner, new_hop_key, trust_entry
from paceline_core.clock import ManualClock
from paceline_core.registry import RequestClass
from paceline_workers.server.callers import Caller, caller
from paceline_workers.server.trust import TrustFile

HINTS = {"x-paceline-class": "batch", "x-paceline-tenant": "acme", "x-paceline-deadline-ms": "1500"}


def read(headers: dict[str, str], *, trusted: bool) -> Caller:
    return caller([(name.encode(), value.encode()) for name, value in headers.items()], lambda _: trusted)


def test_a_trusted_hop_is_believed() -> None:
    known = read({**HINTS, "x-request-id": "r-1"}, trusted=True)
    assert known == Caller("r-1", trusted=True, request_class=RequestClass.BATCH, tenant="acme", deadline_s=1.5)


def test_anybody_else_only_names_the_request() -> None:
    assert read({**HINTS, "x-request-id": "r-1"}, trusted=False) == Caller("r-1")


@pytest.mark.parametrize("name", ["", "a" * 65, "a b", "a\n", "é", "../x"])
def test_a_harmful_request_id_is_replaced(name: str) -> None:
    replaced = read({"x-request-id": name}, trusted=False).request_id
    assert replaced != name
    assert replaced.isalnum()


def test_an_unknown_class_is_interactive() -> None:
    assert read({"x-paceline-class": "royal"}, trusted=True).request_class is RequestClass.INTERACTIVE


@pytest.mark.parametrize(
    ("text", "seconds"), [("250", 0.25), ("0", 0.001), ("-5", 0.001), ("soon", 0.0), ("1.5", 0.0), ("9" * 40, 0.0)]
)
def test_a_deadline_is_what_remains(text: str, seconds: float) -> None:
    assert read({"x-paceline-deadline-ms": text}, trusted=True).deadline_s == seconds


@given(st.dictionaries(st.sampled_from([*HINTS, "x-request-id"]), st.text(st.characters(max_codepoint=255))))
def test_no_header_breaks_the_reading(headers: dict[str, str]) -> None:
    pairs = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    assert caller(pairs, lambda _: True).deadline_s >= 0


class Keys:
    """A trust file and signers for it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock()
        self.file = TrustFile(path, "team/chat", self.clock)
        self._writes = 0

    def write(self, *keys: bytes) -> None:
        self._writes += 1
        self.path.write_text(json.dumps(dict(trust_entry(key) for key in keys)))
        os.utime(self.path, ns=(self._writes, self._writes))

    def token(self, key: bytes, audience: str = "team/chat") -> str:
        return HopSigner(key, "gateway").token(audience, self.clock.utc())


@pytest.fixture
def keys(folder: Path) -> Keys:
    return Keys(folder / "trust.json")


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


@pytest.mark.parametrize("content", ["[", "just text", '{"kid": "not base64!"}', '{"kid": "c2hvcnQ="}'])
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
