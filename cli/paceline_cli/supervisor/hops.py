"""Hop keys of one run: each signer its own private key, and one trust file with all public keys."""

import json
from pathlib import Path

from paceline_cli.supervisor.rundir import RunDir, write_private
from paceline_core.auth import new_hop_key, trust_entry

SIGNERS = ("gateway", "autoscaler")


def key_path(run: RunDir, signer: str) -> Path:
    """Where a signer's private key lies: 32 raw bytes."""
    return run.secrets / f"{signer}.key"


def trust_path(run: RunDir) -> Path:
    """The trust file: public keys in base64 and their issuers, by key id; JSON, which is YAML too."""
    return run.root / "trust.yaml"


def create(run: RunDir) -> None:
    """Make fresh keys for the run."""
    keys = {signer: new_hop_key() for signer in SIGNERS}
    for signer, private in keys.items():
        write_private(key_path(run, signer), private)
    write_private(trust_path(run), json.dumps(dict(trust_entry(private, signer) for signer, private in keys.items())))
