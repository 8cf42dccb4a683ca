"""Authentication: tenants' API keys, and internal tokens between the parts."""

from paceline_core.auth.api_keys import ApiKeyRecord, key_id, new_key, verify
from paceline_core.auth.internal_token import (
    InvalidToken,
    JwkSet,
    TokenClaims,
    TokenVerifier,
    TrustBundle,
    jwk,
    jwk_set,
    public_jwk,
)
from paceline_core.auth.signing import FileSigner, Signer, TokenSigner, new_signing_key, public_half, read_signing_key

__all__ = [
    "ApiKeyRecord",
    "FileSigner",
    "InvalidToken",
    "JwkSet",
    "Signer",
    "TokenClaims",
    "TokenSigner",
    "TokenVerifier",
    "TrustBundle",
    "jwk",
    "jwk_set",
    "key_id",
    "new_key",
    "new_signing_key",
    "public_half",
    "public_jwk",
    "read_signing_key",
    "verify",
]
