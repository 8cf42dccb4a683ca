"""Hop tokens: `<payload>.<signature>`, both base64url; Ed25519; at most five minutes; audience `namespace/service`.

A worker believes class, tenant, deadline headers and `/internal/*` only from a bearer of one. The signer holds a
private key, verifiers a file of public keys by key id, two of each signer during a rotation. Behind each key stand the
issuers that it may sign as, so that whoever holds one part's key is that part and no other. Known hole: no replay
protection inside the five minutes, which the network inside the cluster does not need.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from paceline_core.errors import InvalidInput

HEADER = "x-paceline-hop"
LIFETIME_S = 300
ISSUERS: Final = {"gateway": ("gateway", "admin"), "autoscaler": ("autoscaler",)}
"""By signer, whom its key speaks for; `admin` is who may read a gateway's key (`python -m paceline_gateway.admin`)."""

GATEWAY_AUDIENCE: Final = "paceline/gateway"
"""Of a token for a gateway's admin port; a worker's audience is its service."""

_SKEW_S = 30
_CACHE_LIMIT = 256
_KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class Hop:
    """A verified token: who sent it, for whom, until when (Unix seconds)."""

    issuer: str
    audience: str
    expires: int


def new_hop_key() -> bytes:
    """A fresh private key, 32 raw bytes."""
    return Ed25519PrivateKey.generate().private_bytes_raw()


def read_hop_key(path: Path, field: str = "hop_key") -> bytes:
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
    return _identity(raw), base64.b64encode(raw).decode()


def trusted(public: str, signer: str) -> str:
    """What the trust file says of a key: `<public key> <issuer>...`; who knows of no issuers finds the key."""
    return " ".join((public, *ISSUERS[signer]))


def trust_entry(private: bytes, signer: str) -> tuple[str, str]:
    """One entry of the trust file: the key's id, and what is said of it."""
    kid, public = public_half(private)
    return kid, trusted(public, signer)


class Signer(Protocol):
    """Makes hop tokens."""

    def token(self, audience: str, now: datetime) -> str:
        """A token for `namespace/service`."""
        ...


class HopSigner:
    """Makes tokens, and reuses each until half of its life is over."""

    def __init__(self, private: bytes, issuer: str) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(private)
        self._kid = public_half(private)[0]
        self._issuer = issuer
        self._made: dict[str, tuple[int, str]] = {}

    def token(self, audience: str, now: datetime) -> str:
        """A token for `namespace/service`."""
        moment = int(now.timestamp())
        expires, text = self._made.get(audience, (0, ""))
        if expires - moment < LIFETIME_S // 2:
            expires = moment + LIFETIME_S
            text = self._sign({"iss": self._issuer, "aud": audience, "exp": expires, "kid": self._kid})
            self._made[audience] = (expires, text)
        return text

    def _sign(self, claims: dict[str, str | int]) -> str:
        payload = _encode(json.dumps(claims, separators=(",", ":")).encode())
        return f"{payload}.{_encode(self._key.sign(payload.encode()))}"


@dataclass(frozen=True, slots=True)
class _Known:
    """A public key, and whom its holder may claim to be."""

    key: Ed25519PublicKey
    issuers: frozenset[str]


class HopVerifier:
    """Checks tokens against a trust file's entries for one audience. Raises ValueError for an entry that is none."""

    def __init__(self, trust: Mapping[str, str], audience: str) -> None:
        self._keys = {kid: _read(kid, text) for kid, text in trust.items()}
        self._audience = audience
        self._seen: dict[str, Hop] = {}

    @property
    def known(self) -> bool:
        """Whether there is any key."""
        return bool(self._keys)

    def verify(self, token: str, now: datetime) -> Hop | None:
        """The hop, or None when the token is malformed, foreign, forged or expired."""
        hop = self._seen.get(token) or self._check(token)
        moment = now.timestamp()
        if hop is None or not moment < hop.expires <= moment + LIFETIME_S + _SKEW_S:
            self._seen.pop(token, None)
            return None
        if len(self._seen) >= _CACHE_LIMIT:
            self._seen.clear()
        self._seen[token] = hop
        return hop

    def _check(self, token: str) -> Hop | None:
        payload, _, signature = token.partition(".")
        try:
            claims = json.loads(_decode(payload))
            known = self._keys[claims["kid"]]
            known.key.verify(_decode(signature), payload.encode())
            hop = Hop(str(claims["iss"]), str(claims["aud"]), _moment(claims["exp"]))
        except (ValueError, KeyError, TypeError, RecursionError, binascii.Error, InvalidSignature):
            return None
        return hop if hop.audience == self._audience and hop.issuer in known.issuers else None


def _moment(expires: object) -> int:
    """Unix seconds. Raises ValueError for what is no whole number: JSON readers know of infinity."""
    if type(expires) is not int:
        raise ValueError(expires)
    return expires


def _read(kid: str, text: str) -> _Known:
    public, *issuers = text.split() or [""]
    if not issuers:
        raise ValueError(f"key {kid} names no issuer; write `<public key> gateway` or another one behind it")
    return _Known(Ed25519PublicKey.from_public_bytes(base64.b64decode(public)), frozenset(issuers))


def _identity(public: bytes) -> str:
    return base64.b32encode(public[:5]).decode().lower()


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
