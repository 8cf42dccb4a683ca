"""Signing keys of one run: a private key for each signer, and one JWK set with all public keys."""

import json
from pathlib import Path

from paceline_cli.supervisor.rundir import RunDir, write_private
from paceline_core.auth import jwk_set, new_signing_key, public_jwk

SIGNERS = ("gateway", "autoscaler")


def key_path(run: RunDir, signer: str) -> Path:
    """The file of a signer's private key: 32 raw bytes."""
    return run.secrets / f"{signer}.key"


def trust_bundle_path(run: RunDir) -> Path:
    """The file of the JWK set that all parts verify with."""
    return run.root / "jwks.json"


def create(run: RunDir) -> None:
    """Make fresh keys for the run."""
    keys = {signer: new_signing_key() for signer in SIGNERS}
    for signer, private in keys.items():
        write_private(key_path(run, signer), private)
    bundle = jwk_set(public_jwk(private, signer) for signer, private in keys.items())
    write_private(trust_bundle_path(run), json.dumps(bundle))
