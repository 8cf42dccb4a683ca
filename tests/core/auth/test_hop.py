import base64
from datetime import timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.every import cases

from paceline_core.auth import HopSigner, HopVerifier, new_hop_key, public_half, trust_entry
from paceline_core.clock import ManualClock

KEY = new_hop_key()
TRUST = dict([trust_entry(KEY, "gateway")])


def signed(audience: str = "default/chat", key: bytes = KEY) -> str:
    return HopSigner(key, "gateway").token(audience, ManualClock().utc())


def test_a_token_names_its_sender_and_its_audience() -> None:
    hop = HopVerifier(TRUST, "default/chat").verify(signed(), ManualClock().utc())
    assert hop is not None
    assert (hop.issuer, hop.audience) == ("gateway", "default/chat")


def test_a_token_for_another_service_is_refused() -> None:
    assert HopVerifier(TRUST, "default/other").verify(signed(), ManualClock().utc()) is None


@pytest.mark.parametrize(
    ("signer", "claimed", "believed"),
    [
        ("gateway", "gateway", True),
        ("gateway", "admin", True),
        ("gateway", "autoscaler", False),
        ("autoscaler", "autoscaler", True),
        ("autoscaler", "gateway", False),
        ("autoscaler", "admin", False),
    ],
)
def test_a_key_speaks_for_its_own_signer_alone(signer: str, claimed: str, believed: bool) -> None:
    now = ManualClock().utc()
    hop = HopVerifier(dict([trust_entry(KEY, signer)]), "default/chat").verify(
        HopSigner(KEY, claimed).token("default/chat", now), now
    )
    assert (hop is not None) is believed


def test_a_key_without_issuers_is_no_entry() -> None:
    kid, public = public_half(KEY)
    with pytest.raises(ValueError, match=f"key {kid} names no issuer; write"):
        HopVerifier({kid: public}, "default/chat")


def test_a_reader_of_bare_keys_still_finds_the_key_before_the_issuers() -> None:
    """Workers that an upgrade left alone read the file as `{id: key}`."""
    kid, public = public_half(KEY)
    assert base64.b64decode(TRUST[kid]) == base64.b64decode(public)


def test_a_token_of_an_unknown_key_is_refused() -> None:
    assert HopVerifier(TRUST, "default/chat").verify(signed(key=new_hop_key()), ManualClock().utc()) is None


@pytest.mark.parametrize("text", ["", ".", "a.b", "e30.e30", "not base64!.x", "bnVsbA.x"])
def test_a_malformed_token_is_refused(text: str) -> None:
    assert HopVerifier(TRUST, "default/chat").verify(text, ManualClock().utc()) is None


def test_a_token_that_is_nested_without_end_is_refused() -> None:
    deep = base64.urlsafe_b64encode(b"[" * 100_000).decode()
    assert HopVerifier(TRUST, "default/chat").verify(f"{deep}.x", ManualClock().utc()) is None


def test_a_changed_byte_breaks_the_signature() -> None:
    token = signed()
    wrong = ("A" if token[3] != "A" else "B").join((token[:3], token[4:]))
    assert HopVerifier(TRUST, "default/chat").verify(wrong, ManualClock().utc()) is None


def test_a_token_ends_after_five_minutes_even_when_seen_before() -> None:
    clock, verifier, token = ManualClock(), HopVerifier(TRUST, "default/chat"), signed()
    assert verifier.verify(token, clock.utc()) is not None
    clock.advance(299)
    assert verifier.verify(token, clock.utc()) is not None
    clock.advance(2)
    assert verifier.verify(token, clock.utc()) is None


def test_a_token_from_the_far_future_is_refused() -> None:
    early = ManualClock().utc() - timedelta(minutes=2)
    assert HopVerifier(TRUST, "default/chat").verify(signed(), early) is None


def test_a_signer_reuses_a_token_until_half_of_its_life_is_over() -> None:
    clock, signer = ManualClock(), HopSigner(KEY, "gateway")
    first = signer.token("default/chat", clock.utc())
    clock.advance(149)
    assert signer.token("default/chat", clock.utc()) == first
    clock.advance(2)
    assert signer.token("default/chat", clock.utc()) != first


def test_both_keys_are_good_during_a_rotation() -> None:
    new = new_hop_key()
    verifier = HopVerifier(TRUST | dict([trust_entry(new, "gateway")]), "default/chat")
    assert all(verifier.verify(signed(key=key), ManualClock().utc()) for key in (KEY, new))


@cases("expires", ["Infinity", "-Infinity", "NaN", "1e400", "1e18", "true", "null", '"9999999999"', "[]", "9" * 400])
def test_an_expiry_that_is_no_moment_ahead_is_no_token(expires: str) -> None:
    """Signed with a trusted key, so that nothing but the expiry is wrong."""
    now = ManualClock().utc()
    kid = public_half(KEY)[0]
    claims = f'{{"iss":"gateway","aud":"default/chat","exp":{expires},"kid":"{kid}"}}'
    payload = base64.urlsafe_b64encode(claims.encode()).rstrip(b"=").decode()
    signature = Ed25519PrivateKey.from_private_bytes(KEY).sign(payload.encode())
    token = f"{payload}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"
    assert HopVerifier(TRUST, "default/chat").verify(token, now) is None
