"""Internal tokens: JSON Web Tokens between gateway, autoscaler and workers, signed with Ed25519 (`alg: EdDSA`).

Claims: `iss`, `aud` (`namespace/service`) and `exp`, at most five minutes ahead; the header's `kid` names the key. A
worker believes class, tenant, deadline headers and `/internal/*` only from a bearer of one. PyJWT checks signature and
claims; expiry is checked here, because PyJWT reads the system's clock and a cached token expires too. There is no
leeway behind `exp`; LEEWAY_S is how far a signer's clock may be ahead. Known hole: no replay protection inside the five
minutes, which the network inside the cluster does not need.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, Protocol

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from jwt.types import Options
from jwt.utils import base64url_decode

from paceline_core.auth.jwks import ALGORITHM, JwkSet, parse_object, public_half, trusted_keys
from paceline_core.errors import PacelineError

HEADER = "x-paceline-internal-token"
GATEWAY_AUDIENCE: Final = "paceline/gateway"
"""Of a token for a gateway's admin port; a worker's audience is its service."""

LIFETIME_S = 300
LEEWAY_S = 30
MAX_TOKEN_CHARS = 1024
"""A token for the longest namespace and name has about 630."""

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
    """An internal token that is not believed; `fault` says why."""

    def __init__(self, fault: TokenFault, message: str) -> None:
        super().__init__(f"{fault}: {message}")
        self.fault = fault


@dataclass(frozen=True, slots=True)
class TokenClaims:
    """Claims of a verified token; `expires` in Unix seconds."""

    issuer: str
    audience: str
    expires: int


class Signer(Protocol):
    def token(self, audience: str, now: datetime) -> str: ...


class TokenSigner:
    """Makes tokens, and reuses each until half of its life is over."""

    def __init__(self, private: bytes, issuer: str) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(private)
        self._header = {"kid": public_half(private)[0]}
        self._issuer = issuer
        self._made: dict[str, tuple[int, str]] = {}

    def token(self, audience: str, now: datetime) -> str:
        moment = int(now.timestamp())
        expires, text = self._made.get(audience, (0, ""))
        if expires - moment < LIFETIME_S // 2:
            expires = moment + LIFETIME_S
            claims = {"iss": self._issuer, "aud": audience, "exp": expires}
            text = jwt.encode(claims, self._key, ALGORITHM, self._header)
            self._made[audience] = (expires, text)
        return text


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
        """Signature and claims. The key id chooses the key and nothing else: the algorithm is ours."""
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
    """Reads claims as strictly as key sets: PyJWT lets the last of two equal names win."""

    def _decode_payload(self, decoded: dict[str, Any]) -> dict[str, Any]:
        return parse_object(decoded["payload"])
