"""Who may do what: tenants' API keys, and the tokens of internal hops."""

from paceline_core.auth.files import FileSigner, TrustFile
from paceline_core.auth.hop import (
    Hop,
    HopSigner,
    HopVerifier,
    Signer,
    new_hop_key,
    public_half,
    read_hop_key,
    trust_entry,
    trusted,
)
from paceline_core.auth.keys import KeyRecord, key_id, new_key, verify

__all__ = [
    "FileSigner",
    "Hop",
    "HopSigner",
    "HopVerifier",
    "KeyRecord",
    "Signer",
    "TrustFile",
    "key_id",
    "new_hop_key",
    "new_key",
    "public_half",
    "read_hop_key",
    "trust_entry",
    "trusted",
    "verify",
]
