import base64
import hashlib
import hmac
import json
from datetime import timedelta
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from tests.every import cases

from paceline_core.auth import (
    InvalidToken,
    TokenClaims,
    TokenSigner,
    TokenVerifier,
    jwk,
    jwk_set,
    new_signing_key,
    public_half,
    public_jwk,
)
from paceline_core.auth.internal_token import LEEWAY_S, MAX_TOKEN_CHARS
from paceline_core.auth.signing import LIFETIME_S
from paceline_core.clock import ManualClock

KEY = new_signing_key()
KID = public_half(KEY)[0]
KEYS = jwk_set([public_jwk(KEY, "gateway")])
NOW = ManualClock().utc()
SOON = int(NOW.timestamp()) + 60
HEADER = {"alg": "EdDSA", "kid": KID, "typ": "JWT"}
CLAIMS: dict[str, Any] = {"iss": "gateway", "aud": "default/chat", "exp": SOON}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def signed(audience: str = "default/chat", key: bytes = KEY) -> str:
    return TokenSigner(key, "gateway").token(audience, NOW)


def encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def written(header: str, payload: str, key: bytes = KEY) -> str:
    """A token with a true signature over whatever stands in its header and its payload."""
    text = f"{encoded(header.encode())}.{encoded(payload.encode())}"
    return f"{text}.{encoded(Ed25519PrivateKey.from_private_bytes(key).sign(text.encode()))}"


def verified(token: str, audience: str = "default/chat", verifier: TokenVerifier | None = None) -> TokenClaims:
    return (verifier or TokenVerifier(KEYS, audience)).verify(token, NOW)


def fault(token: str, audience: str = "default/chat") -> str:
    with pytest.raises(InvalidToken) as caught:
        verified(token, audience)
    assert str(caught.value).startswith(f"{caught.value.fault}: ")
    return caught.value.fault


def test_a_token_names_its_sender_and_its_audience() -> None:
    claims = verified(signed())
    assert (claims.issuer, claims.audience) == ("gateway", "default/chat")


def test_any_reader_of_jwts_reads_a_token_with_the_published_key() -> None:
    text = json.dumps(KEYS)
    (key,) = jwt.PyJWKSet.from_json(text).keys
    claims = jwt.decode(signed(), key, ["EdDSA"], {"verify_exp": False}, audience="default/chat")
    assert claims == {"iss": "gateway", "aud": "default/chat", "exp": int(NOW.timestamp()) + LIFETIME_S}
    assert jwt.get_unverified_header(signed()) == HEADER
    assert key.key_id == KID


def test_a_published_key_is_written_in_base64url_without_padding() -> None:
    assert jwk("a", "+/+/AA==", "gateway")["x"] == "-_-_AA"


def test_a_token_for_another_service_is_refused() -> None:
    assert fault(signed(), "default/other") == "wrong_audience"


@cases(
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
    verifier = TokenVerifier(jwk_set([public_jwk(KEY, signer)]), "default/chat")
    token = TokenSigner(KEY, claimed).token("default/chat", NOW)
    if believed:
        assert verified(token, verifier=verifier).issuer == claimed
    else:
        with pytest.raises(InvalidToken, match="wrong_issuer"):
            verified(token, verifier=verifier)


@cases(
    ("change", "words"),
    [
        ({"issuers": None}, f"\\({KID}\\) names no issuers; write"),
        ({"issuers": []}, "names no issuers"),
        ({"issuers": "gateway"}, "names no issuers"),
        ({"issuers": [1]}, "names no issuers"),
        ({"kid": None}, r"keys\[0\] has no kid"),
        ({"kid": 7}, "has no kid"),
        ({"kty": "oct", "k": "c2VjcmV0"}, "is no Ed25519 key; write kty OKP"),
        ({"crv": "Ed448"}, "is no Ed25519 key"),
        ({"alg": "HS256"}, "is no Ed25519 key"),
        ({"x": "c2hvcnQ"}, "cannot be read"),
        ({"x": None}, "cannot be read"),
        ({"d": encoded(KEY)}, "holds a private key"),
    ],
)
def test_an_entry_that_is_no_public_key_of_an_issuer_refuses_the_set(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        TokenVerifier({"keys": [public_jwk(KEY, "gateway") | change]}, "default/chat")


@cases(
    ("keys", "words"),
    [({}, "JSON Web Key Set"), ({"keys": {}}, "Key Set"), ({"keys": ["x"]}, "no kid"), ({"keys": None}, "Key Set")],
)
def test_what_is_no_key_set_is_refused(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        TokenVerifier(keys, "default/chat")


def test_a_key_id_twice_refuses_the_set() -> None:
    with pytest.raises(ValueError, match=f"repeats the kid {KID}"):
        TokenVerifier({"keys": [public_jwk(KEY, "gateway"), public_jwk(KEY, "autoscaler")]}, "default/chat")


def test_a_token_of_an_unknown_key_is_refused() -> None:
    assert fault(signed(key=new_signing_key())) == "unknown_key"


@cases("kid", [None, 7, ["a"], {}, "", "x" * 100])
def test_a_key_id_that_is_none_is_an_unknown_key(kid: object) -> None:
    assert fault(written(json.dumps(HEADER | {"kid": kid}), json.dumps(CLAIMS))) == "unknown_key"


def test_a_token_of_a_known_key_id_and_another_key_has_a_bad_signature() -> None:
    assert fault(written(json.dumps(HEADER), json.dumps(CLAIMS), new_signing_key())) == "bad_signature"


@cases("text", ["", ".", "a.b", "not base64!.x", "bnVsbA.x", "bnVsbA.e30.x", "é.é.é", "\x00"])
def test_a_malformed_token_is_refused(text: str) -> None:
    assert fault(text) == "malformed"


@cases("text", ["e30", "e30.e30", "e30.e30.e30", "e30..", "e30.e30.e30.e30"])
def test_a_token_without_a_key_id_is_refused(text: str) -> None:
    assert fault(text) == "unknown_key"


@cases("cut", [lambda t: t.rpartition(".")[0], lambda t: t + ".x", lambda t: f"{t}=", lambda t: f" {t}"])
def test_a_token_of_too_few_or_too_many_parts_is_malformed(cut: Any) -> None:
    assert fault(cut(signed())) == "malformed"


def test_a_token_that_is_nested_without_end_is_refused() -> None:
    deep = encoded(b"[" * (MAX_TOKEN_CHARS // 2))
    assert fault(f"{deep}.x.x") == "malformed"
    assert fault(written(json.dumps(HEADER), "[" * (MAX_TOKEN_CHARS // 2))) == "malformed"


@cases("size", [MAX_TOKEN_CHARS + 1, 100_000, 10_000_000])
def test_a_huge_token_is_refused_unread(size: int) -> None:
    assert fault(signed().ljust(size, "A")) == "too_long"


def test_a_valid_token_beyond_the_limit_is_refused_and_the_longest_name_is_within_it() -> None:
    assert fault(written(json.dumps(HEADER), json.dumps(CLAIMS | {"more": "x" * MAX_TOKEN_CHARS}))) == "too_long"
    longest = f"{'n' * 63}/{'s' * 253}"
    assert verified(signed(longest), longest).audience == longest


def test_a_changed_byte_breaks_the_signature() -> None:
    """In the claims, so that the header still names the key."""
    header, payload, signature = signed().split(".")
    other = json.dumps(CLAIMS | {"iss": "admin"})
    assert fault(f"{header}.{encoded(other.encode())}.{signature}") == "bad_signature"
    assert fault(f"{header}.{payload}.{encoded(bytes(64))}") == "bad_signature"


@given(st.data())
def test_no_token_with_a_changed_character_is_believed(data: st.DataObject) -> None:
    token = signed()
    place = data.draw(st.integers(0, len(token) - 1))
    character = data.draw(st.characters(codec="utf-8").filter(lambda one: one != token[place]))
    with pytest.raises(InvalidToken):
        verified(token[:place] + character + token[place + 1 :])


@given(st.text(max_size=MAX_TOKEN_CHARS + 10))
def test_any_text_ends_in_a_refusal(text: str) -> None:
    with pytest.raises(InvalidToken):
        verified(text)


@given(st.dictionaries(st.sampled_from(["alg", "kid", "typ", "b64", "crit", "jwk"]), JSON), JSON)
def test_any_signed_header_and_payload_is_believed_or_refused(header: dict[str, Any], payload: Any) -> None:
    """A true signature over anything at all: no other exception, and never other claims than those required."""
    try:
        claims = verified(written(json.dumps(HEADER | header), json.dumps(payload)))
    except InvalidToken:
        return
    assert (claims.issuer, claims.audience) == ("gateway", "default/chat")


@cases(
    "alg", ["none", "None", "", None, "HS256", "HS512", "RS256", "ES256", "eddsa", "Ed448", 0, ["EdDSA"], {"EdDSA": 1}]
)
def test_no_algorithm_but_eddsa_is_taken_though_the_signature_is_true(alg: object) -> None:
    assert fault(written(json.dumps(HEADER | {"alg": alg}), json.dumps(CLAIMS))) in {"wrong_algorithm", "malformed"}


def test_a_header_without_an_algorithm_is_refused() -> None:
    assert fault(written(json.dumps({"kid": KID}), json.dumps(CLAIMS))) == "wrong_algorithm"


@cases("alg", ["none", "HS256"])
def test_an_unsigned_token_is_refused(alg: str) -> None:
    text = f"{encoded(json.dumps(HEADER | {'alg': alg}).encode())}.{encoded(json.dumps(CLAIMS).encode())}"
    assert fault(f"{text}.") == "wrong_algorithm"


@cases("form", ["raw", "pem", "base64"])
def test_the_public_key_is_no_secret_of_an_hmac(form: str) -> None:
    """The classic confusion: who knows the public key signs with it as if it were a shared secret."""
    public = Ed25519PrivateKey.from_private_bytes(KEY).public_key()
    pem = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    secret = {"raw": public.public_bytes_raw(), "pem": pem, "base64": public_half(KEY)[1].encode()}[form]
    header = encoded(json.dumps(HEADER | {"alg": "HS256"}).encode())
    text = f"{header}.{encoded(json.dumps(CLAIMS).encode())}"
    signature = hmac.new(secret, text.encode(), hashlib.sha256).digest()
    assert fault(f"{text}.{encoded(signature)}") == "wrong_algorithm"


@given(st.text(max_size=12).filter(lambda alg: alg != "EdDSA"))
def test_a_tampered_algorithm_is_refused(alg: str) -> None:
    """Over the signature of the true header."""
    _, payload, signature = signed().split(".")
    header = encoded(json.dumps(HEADER | {"alg": alg}).encode())
    assert fault(f"{header}.{payload}.{signature}") == "wrong_algorithm"


@cases("claim", ["iss", "aud", "exp"])
@cases("gone", [True, False])
def test_a_missing_claim_is_refused(claim: str, gone: bool) -> None:
    claims = {name: value for name, value in CLAIMS.items() if name != claim} if gone else CLAIMS | {claim: None}
    assert fault(written(json.dumps(HEADER), json.dumps(claims))) == "missing_claim"


@given(st.sets(st.sampled_from(["iss", "aud", "exp"])))
def test_claims_are_believed_when_all_are_there_and_only_then(kept: set[str]) -> None:
    token = written(json.dumps(HEADER), json.dumps({name: CLAIMS[name] for name in sorted(kept)}))
    if len(kept) == len(CLAIMS):
        assert verified(token).expires == SOON
    else:
        assert fault(token) == "missing_claim"


@cases(
    ("claim", "value", "expected"),
    [
        ("aud", ["default/chat"], "wrong_audience"),
        ("aud", 7, "wrong_audience"),
        ("aud", "", "missing_claim"),
        ("iss", ["gateway"], "wrong_issuer"),
        ("iss", "", "wrong_issuer"),
        ("iss", 7, "wrong_issuer"),
    ],
)
def test_a_claim_of_another_type_is_refused(claim: str, value: object, expected: str) -> None:
    assert fault(written(json.dumps(HEADER), json.dumps(CLAIMS | {claim: value}))) == expected


@cases("payload", ["null", "[]", '"text"', "7", "{", ""])
def test_a_payload_that_is_no_object_is_refused(payload: str) -> None:
    assert fault(written(json.dumps(HEADER), payload)) == "malformed"


def doubled(content: dict[str, Any], name: str, first: object, *, last: bool) -> str:
    """JSON with one name twice: the true value comes last or first."""
    odd, rest = f"{json.dumps(name)}: {json.dumps(first)}", json.dumps(content)[1:-1]
    return f"{{{odd}, {rest}}}" if last else f"{{{rest}, {odd}}}"


@pytest.mark.parametrize("last", [True, False])
@given(name=st.sampled_from(sorted(CLAIMS)), value=st.sampled_from([None, "admin", "default/chat", SOON]))
def test_a_claim_twice_is_refused(last: bool, name: str, value: object) -> None:
    assert fault(written(json.dumps(HEADER), doubled(CLAIMS, name, value, last=last))) == "malformed"


@pytest.mark.parametrize("last", [True, False])
@given(name=st.sampled_from(sorted(HEADER)), value=st.sampled_from(["none", "HS256", "EdDSA", KID]))
def test_a_header_field_twice_is_refused(last: bool, name: str, value: object) -> None:
    assert fault(written(doubled(HEADER, name, value, last=last), json.dumps(CLAIMS))) == "malformed"


@cases("more", [{"crit": ["exp"]}, {"b64": False}, {"b64": False, "crit": ["b64"]}, {"crit": []}])
def test_a_header_that_changes_how_a_token_is_read_is_refused(more: dict[str, Any]) -> None:
    assert fault(written(json.dumps(HEADER | more), json.dumps(CLAIMS))) == "malformed"


def test_a_key_in_the_header_is_no_key() -> None:
    """Neither `jwk` nor `x5c` nor `jku` chooses what a token is checked with."""
    other = new_signing_key()
    header = HEADER | {"jwk": {"kty": "OKP", "x": public_jwk(other, "gateway")["x"]}, "jku": "http://127.0.0.1/"}
    assert fault(written(json.dumps(header), json.dumps(CLAIMS), other)) == "bad_signature"


def test_a_token_ends_after_five_minutes_even_when_seen_before() -> None:
    clock, verifier, token = ManualClock(), TokenVerifier(KEYS, "default/chat"), signed()
    assert verifier.verify(token, clock.utc()).expires == int(NOW.timestamp()) + LIFETIME_S
    clock.advance(299)
    assert verifier.verify(token, clock.utc()).issuer == "gateway"
    clock.advance(1)
    for _ in range(2):
        with pytest.raises(InvalidToken, match="expired: it ended 0 s ago"):
            verifier.verify(token, clock.utc())
        clock.advance(0.4)


def test_a_token_from_the_far_future_is_refused() -> None:
    early = NOW - timedelta(minutes=2)
    with pytest.raises(InvalidToken, match=r"bad_expiry: .*compare the clocks"):
        TokenVerifier(KEYS, "default/chat").verify(signed(), early)


@cases(("ahead_s", "believed"), [(LEEWAY_S, True), (LEEWAY_S + 1, False)])
def test_a_signer_may_be_ahead_by_the_leeway(ahead_s: int, believed: bool) -> None:
    verifier, token = TokenVerifier(KEYS, "default/chat"), signed()
    if believed:
        assert verifier.verify(token, NOW - timedelta(seconds=ahead_s)).issuer == "gateway"
    else:
        with pytest.raises(InvalidToken, match="bad_expiry"):
            verifier.verify(token, NOW - timedelta(seconds=ahead_s))


def test_the_clock_that_counts_is_the_one_that_is_given() -> None:
    """Not the machine's: a token of long ago is good at its own time, though it says when it was made."""
    past = NOW - timedelta(days=4000)
    exp = int(past.timestamp()) + 10
    token = written(json.dumps(HEADER), json.dumps(CLAIMS | {"exp": exp, "iat": SOON * 2, "nbf": SOON * 2}))
    assert TokenVerifier(KEYS, "default/chat").verify(token, past).expires == exp


def test_a_signer_reuses_a_token_until_half_of_its_life_is_over() -> None:
    clock, signer = ManualClock(), TokenSigner(KEY, "gateway")
    first = signer.token("default/chat", clock.utc())
    clock.advance(149)
    assert signer.token("default/chat", clock.utc()) == first
    clock.advance(2)
    assert signer.token("default/chat", clock.utc()) != first


def test_both_keys_are_good_during_a_rotation() -> None:
    new = new_signing_key()
    verifier = TokenVerifier(jwk_set(public_jwk(key, "gateway") for key in (KEY, new)), "default/chat")
    assert {verified(signed(key=key), verifier=verifier).issuer for key in (KEY, new)} == {"gateway"}


@cases(
    ("expires", "expected"),
    [
        ("Infinity", "malformed"),
        ("-Infinity", "malformed"),
        ("NaN", "malformed"),
        ("1e400", "bad_expiry"),
        ("1e18", "bad_expiry"),
        ("true", "bad_expiry"),
        ("null", "missing_claim"),
        ('"9999999999"', "bad_expiry"),
        ("[]", "bad_expiry"),
        ("9" * 400, "bad_expiry"),
        ("-1", "expired"),
        ("0", "expired"),
    ],
)
def test_an_expiry_that_is_no_moment_ahead_is_no_token(expires: str, expected: str) -> None:
    """Signed with a trusted key, so that nothing but the expiry is wrong."""
    payload = f'{{"iss":"gateway","aud":"default/chat","exp":{expires}}}'
    assert fault(written(json.dumps(HEADER), payload)) == expected
