"""Internal tokens: JSON Web Tokens between gateway, autoscaler and workers, signed with Ed25519 (`alg: EdDSA`).

Claims: `iss`, `aud` (`namespace/service`) and `exp`, at most five minutes ahead; the header's `kid` names the key. A
worker accepts class, tenant, deadline headers and `/internal/*` only with such a token. PyJWT checks signature and
claims; expiry is checked here, because PyJWT reads the system's clock and a cached token expires too. `exp` has no
leeway; LEEWAY_S is how far a signer's clock may be ahead. Known hole: a token can be replayed within its five minutes;
the network inside the cluster does not need more protection.

A signing key is 32 raw bytes; its public half is in a JWK set. A signer has a private key, a verifier a set with two
keys of each signer during a rotation. Each key has the issuers that it may sign as (`issuers`), so that a leaked key of
one part impersonates only that part. A set with one wrong entry is refused as a whole: a partial set would cut off a
signer silently.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from jwt.types import Options
from jwt.utils import base64url_decode

from paceline_core.auth.signing import ALGORITHM, LIFETIME_S, ReloadedFile, public_half
from paceline_core.clock import Clock
from paceline_core.errors import InvalidInput, PacelineError
from paceline_core.telemetry import get_logger

ISSUERS: Final = {"gateway": ("gateway", "admin"), "autoscaler": ("autoscaler",)}
"""The issuers of each signer's key; `admin` is `python -m paceline_gateway.admin` with a gateway's key."""

_CURVE: Final = "Ed25519"
_log = get_logger(__name__)

Jwk = dict[str, Any]
JwkSet = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TrustedKey:
    """A public key, and the issuers that its owner may use."""

    public: Ed25519PublicKey
    issuers: frozenset[str]


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
    return {"keys": sorted(keys, key=lambda key: str(key["kid"]))}


def parse_jwk_set(text: str) -> JwkSet:
    """Parse a JWK set; every entry must be usable. Raises ValueError naming the fault and the fix."""
    document = parse_object(text)
    trusted_keys(document)
    return document


def parse_object(text: str | bytes) -> dict[str, Any]:
    """Parse a JSON object without repeated names, infinities or NaN. Raises ValueError."""
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


HEADER = "x-paceline-internal-token"
GATEWAY_AUDIENCE: Final = "paceline/gateway"
"""The audience of a token for a gateway's admin port; a worker's audience is its service."""

LEEWAY_S = 30
MAX_TOKEN_CHARS = 1024
"""The longest accepted token; one for the longest namespace and name has about 630."""

_CACHE_LIMIT = 256
_OPTIONS: Final[Options] = {
    "require": ["iss", "aud", "exp"],
    "strict_aud": True,
    "verify_exp": False,
    "verify_iat": False,
    "verify_nbf": False,
}

TokenFault = Literal[
    "too_long",
    "malformed",
    "wrong_algorithm",
    "unknown_key",
    "bad_signature",
    "missing_claim",
    "wrong_audience",
    "wrong_issuer",
    "bad_expiry",
    "expired",
]
_FAULTS: Final[tuple[tuple[type[jwt.PyJWTError], TokenFault], ...]] = (
    (jwt.InvalidAlgorithmError, "wrong_algorithm"),
    (jwt.InvalidSignatureError, "bad_signature"),
    (jwt.MissingRequiredClaimError, "missing_claim"),
    (jwt.InvalidAudienceError, "wrong_audience"),
    (jwt.InvalidIssuerError, "wrong_issuer"),
)


class InvalidToken(PacelineError):
    """An internal token that is not accepted; `fault` says why."""

    def __init__(self, fault: TokenFault, message: str) -> None:
        super().__init__(f"{fault}: {message}")
        self.fault = fault


@dataclass(frozen=True, slots=True)
class TokenClaims:
    """Claims of a verified token; `expires` in Unix seconds."""

    issuer: str
    audience: str
    expires: int


class TokenVerifier:
    """Checks tokens for one audience against a JWK set. Raises ValueError for an entry that cannot be used."""

    def __init__(self, keys: JwkSet, audience: str) -> None:
        self._keys = trusted_keys(keys)
        self._audience = audience
        self._jwt = _StrictJwt()
        self._verified: dict[str, TokenClaims] = {}

    @property
    def known(self) -> bool:
        return bool(self._keys)

    def verify(self, token: str, now: datetime) -> TokenClaims:
        """The token's claims. Raises InvalidToken for one that is malformed, foreign, forged or expired."""
        claims = self._verified.get(token) or self._check(token)
        moment = now.timestamp()
        if not moment < claims.expires <= moment + LIFETIME_S + LEEWAY_S:
            self._verified.pop(token, None)
            if claims.expires <= moment:
                raise InvalidToken("expired", f"it ended {moment - claims.expires:.0f} s ago")
            ahead = f"exp is more than {LIFETIME_S} s ahead; compare the clocks of both nodes"
            raise InvalidToken("bad_expiry", ahead)
        if len(self._verified) >= _CACHE_LIMIT:
            self._verified.clear()
        self._verified[token] = claims
        return claims

    def _check(self, token: str) -> TokenClaims:
        """Check signature and claims. The key id only chooses the key: the algorithm is fixed."""
        if len(token) > MAX_TOKEN_CHARS:
            raise InvalidToken("too_long", f"{len(token)} characters; a token has at most {MAX_TOKEN_CHARS}")
        try:
            header = parse_object(base64url_decode(token.partition(".")[0]))
            known = self._keys.get(str(header.get("kid")))
            if known is None:
                raise InvalidToken("unknown_key", "the header's kid is not in the JWK set")
            claims = self._jwt.decode(
                token, known.public, [ALGORITHM], _OPTIONS, audience=self._audience, issuer=known.issuers
            )
        except jwt.PyJWTError as error:
            fault: TokenFault = next((name for kind, name in _FAULTS if isinstance(error, kind)), "malformed")
            raise InvalidToken(fault, str(error)) from None
        except ValueError as error:
            raise InvalidToken("malformed", str(error)) from None
        expires = claims["exp"]
        if type(expires) is not int:
            raise InvalidToken("bad_expiry", "exp is not a whole number of seconds")
        return TokenClaims(claims["iss"], claims["aud"], expires)


class _StrictJwt(jwt.PyJWT):
    """Parses claims as strictly as key sets: PyJWT accepts repeated names and takes the last."""

    def _decode_payload(self, decoded: dict[str, Any]) -> dict[str, Any]:
        return parse_object(decoded["payload"])


class TrustBundle:
    """Verifies internal tokens for one audience with a JWK set in a file. Without a path no token is accepted.

    A path without a file is logged at once, not only when a gateway is refused.
    """

    def __init__(self, path: Path | None, audience: str, clock: Clock) -> None:
        empty = TokenVerifier(jwk_set([]), audience)
        self._file = ReloadedFile(path, lambda path: TokenVerifier(_keys(path), audience), empty) if path else None
        self._clock = clock
        if self._file is not None:
            self._file.current()

    @property
    def known(self) -> bool:
        return self._file is not None and self._file.current().known

    def claims(self, token: str) -> TokenClaims | None:
        """The claims of a valid token for this audience, else None; the reason is logged at level debug."""
        if not token or self._file is None:
            return None
        try:
            return self._file.current().verify(token, self._clock.utc())
        except InvalidToken as error:
            _log.debug("an internal token is refused", extra={"reason": str(error)})
            return None

    def verify(self, token: str) -> bool:
        return self.claims(token) is not None


def _keys(path: Path) -> JwkSet:
    try:
        return parse_jwk_set(path.read_text())
    except ValueError as error:
        raise InvalidInput(str(path), f"is no JWK set of public keys: {error}") from None
