"""API keys `pl_<keyid>_<secret>`: the id finds the record, the salted SHA-256 verifies the secret.

The secret has 160 random bits, so one hash round is enough: it cannot be guessed. It is shown once and never stored.
"""

import base64
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from typing import Any

TENANT_LABEL = "paceline.dev/tenant"
_KEY = re.compile(r"^pl_([a-z2-7]{8})_([a-z2-7]{32})$")


@dataclass(frozen=True, slots=True)
class ApiKeyRecord:
    """The stored record of a key; `salt` and `digest` are hex."""

    key_id: str
    tenant: str
    salt: str
    digest: str

    def manifest(self, namespace: str) -> dict[str, Any]:
        fields = {"keyId": self.key_id, "salt": self.salt, "digest": self.digest}
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": f"paceline-key-{self.key_id}",
                "namespace": namespace,
                "labels": {TENANT_LABEL: self.tenant},
            },
            "type": "paceline.dev/api-key",
            "data": {k: base64.b64encode(v.encode()).decode() for k, v in fields.items()},
        }

    @classmethod
    def from_manifest(cls, manifest: dict[str, Any]) -> "ApiKeyRecord":
        """Parse a Secret; raises KeyError or ValueError if it holds no key."""
        data = {name: base64.b64decode(value).decode() for name, value in manifest["data"].items()}
        return cls(data["keyId"], manifest["metadata"]["labels"][TENANT_LABEL], data["salt"], data["digest"])


def new_key(tenant: str) -> tuple[ApiKeyRecord, str]:
    """A new key: the record to store and the text to show once."""
    identity, secret = (base64.b32encode(secrets.token_bytes(size)).decode().lower() for size in (5, 20))
    salt = secrets.token_hex(16)
    record = ApiKeyRecord(identity, tenant, salt, _digest(salt, secret))
    return record, f"pl_{identity}_{secret}"


def key_id(key: str) -> str | None:
    match = _KEY.match(key)
    return match[1] if match else None


def verify(key: str, record: ApiKeyRecord) -> bool:
    """Whether the key's secret is the record's; in constant time."""
    match = _KEY.match(key)
    return match is not None and hmac.compare_digest(_digest(record.salt, match[2]), record.digest)


def _digest(salt: str, secret: str) -> str:
    return hashlib.sha256(bytes.fromhex(salt) + secret.encode()).hexdigest()
