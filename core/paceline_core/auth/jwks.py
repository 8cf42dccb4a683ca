"""Signing keys (Ed25519, 32 raw bytes) and the JWK sets of their public halves.

A signer holds a private key, a verifier a JWK set with two keys of each signer during a rotation. Each key carries the
issuers that it may sign as (`issuers`), so that a leaked key of one part impersonates that part and no other. A set
with one wrong entry is refused whole: half a set would cut off a signer without a word.
"""

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from paceline_core.errors import InvalidInput

ALGORITHM: Final = "EdDSA"
ISSUERS: Final = {"gateway": ("gateway", "admin"), "autoscaler": ("autoscaler",)}
"""By signer, the issuers of its key; `admin` is `python -m paceline_gateway.admin` beside a gateway's key."""

_CURVE: Final = "Ed25519"
_KEY_BYTES: Final = 32

Jwk = dict[str, Any]
JwkSet = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TrustedKey:
    """A public key, and the issuers that its holder may name."""

    public: Ed25519PublicKey
    issuers: frozenset[str]


def new_signing_key() -> bytes:
    return Ed25519PrivateKey.generate().private_bytes_raw()


def read_signing_key(path: Path, field: str = "signing_key") -> bytes:
    """A private key of 32 raw bytes. Raises InvalidInput naming the field, the file and the fix."""
    try:
        key = path.read_bytes()
    except OSError as error:
        raise InvalidInput(field, f"{path} cannot be read: {error.strerror}") from None
    if len(key) != _KEY_BYTES:
        raise InvalidInput(field, f"{path} holds {len(key)} bytes; a private key has {_KEY_BYTES}")
    return key


def public_half(private: bytes) -> tuple[str, str]:
    """`(key id, public key in base64)`."""
    public = Ed25519PrivateKey.from_private_bytes(private).public_key()
    raw = public.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    return base64.b32encode(raw[:5]).decode().lower(), base64.b64encode(raw).decode()


def jwk(kid: str, public: str, signer: str) -> Jwk:
    """The JSON Web Key of a public key in base64 (RFC 8037), with the issuers of its signer."""
    x = public.translate(str.maketrans("+/", "-_")).rstrip("=")
    return {
        "kty": "OKP",
        "crv": _CURVE,
        "alg": ALGORITHM,
        "use": "sig",
        "kid": kid,
        "x": x,
        "issuers": list(ISSUERS[signer]),
    }


def public_jwk(private: bytes, signer: str) -> Jwk:
    return jwk(*public_half(private), signer)


def jwk_set(keys: Iterable[Jwk]) -> dict[str, Any]:
    """A JWK set, in the order of key ids."""
    return {"keys": sorted(keys, key=lambda key: str(key["kid"]))}


def parse_jwk_set(text: str) -> JwkSet:
    """A JWK set that every entry of is usable. Raises ValueError naming the fault and the fix."""
    document = parse_object(text)
    trusted_keys(document)
    return document


def parse_object(text: str | bytes) -> dict[str, Any]:
    """A JSON object without repeated names, infinities or NaN. Raises ValueError."""
    try:
        found = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - bad input, not a caller's mistake
    return found


def trusted_keys(document: JwkSet) -> dict[str, TrustedKey]:
    """The keys of a set by id. Raises ValueError naming the entry and the fix."""
    keys = document.get("keys")
    if not isinstance(keys, list):
        raise ValueError('write {"keys": [...]}, a JSON Web Key Set')  # noqa: TRY004
    found: dict[str, TrustedKey] = {}
    for position, entry in enumerate(keys):
        place = f"keys[{position}]"
        if not isinstance(entry, dict) or not isinstance(kid := entry.get("kid"), str) or not kid:
            raise ValueError(f"{place} has no kid; write an object with the key's id")
        if kid in found:
            raise ValueError(f"{place} repeats the kid {kid}; remove one of the two")
        found[kid] = _trusted_key(entry, f"{place} ({kid})")
    return found


def _trusted_key(entry: Jwk, place: str) -> TrustedKey:
    issuers = entry.get("issuers")
    if not isinstance(issuers, list) or not issuers or not all(isinstance(one, str) and one for one in issuers):
        raise ValueError(f'{place} names no issuers; write "issuers": ["gateway"] or others')
    kinds = (entry.get("kty"), entry.get("crv"), entry.get("alg", ALGORITHM))
    if kinds != ("OKP", _CURVE, ALGORITHM):
        raise ValueError(f"{place} is no {_CURVE} key; write kty OKP, crv {_CURVE}, alg {ALGORITHM}")
    if "d" in entry:
        raise ValueError(f"{place} holds a private key (d); publish x alone, and rotate this key")
    try:
        public = jwt.PyJWK(entry, ALGORITHM).key
    except jwt.PyJWTError as error:
        raise ValueError(f"{place} cannot be read: {error}") from None
    return TrustedKey(public, frozenset(issuers))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is repeated")
    return found


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON number")
