"""Keys of local mode: tenants' API keys, and the signing keys of one run.

API keys are in `<state>/keys.json` as salted hashes and outlive runs; the local tenant's own key is also kept as text,
in `<state>/local.key`, so that the next `paceline up` prints the same one. The gateway watches them as Secrets. Signing
keys are a private key for each signer, and one JWK set with all public keys.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from paceline_core.auth import ApiKeyRecord, jwk_set, key_id, new_key, new_signing_key, public_jwk, verify
from paceline_core.clock import Clock, rfc3339
from paceline_core.errors import InvalidInput, NotFound
from paceline_core.kube import key_namespace_of
from paceline_local import LOCAL_TENANT, NAMESPACE
from paceline_local.apiserver import ObjectStore, key_of
from paceline_local.rundir import PRIVATE_DIR, PRIVATE_FILE, RunDir, write_private

SIGNERS = ("gateway", "autoscaler")


def create_signing_keys(run: RunDir) -> None:
    keys = {signer: new_signing_key() for signer in SIGNERS}
    for signer, private in keys.items():
        write_private(run.signing_key(signer), private)
    bundle = jwk_set(public_jwk(private, signer) for signer, private in keys.items())
    write_private(run.trust_bundle, json.dumps(bundle))


def in_vain(keys: Iterable["StoredKey"], tenants: Collection[str]) -> Iterator[str]:
    """A note if there are keys of tenants that do not exist here."""
    if absent := sorted({key.record.tenant for key in keys} - set(tenants)):
        yield f"keys of {', '.join(absent)} open nothing: no such Tenant here"


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key as stored in the file; `created` is RFC 3339 UTC."""

    record: ApiKeyRecord
    created: str


class KeyFile:
    """The keys of a state directory. Each change rewrites the file under a lock."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._path = state / "keys.json"

    def all(self) -> list[StoredKey]:
        try:
            rows = json.loads(self._path.read_text())["keys"]
            return [StoredKey(ApiKeyRecord(**row["record"]), row["created"]) for row in rows]
        except FileNotFoundError:
            return []
        except (ValueError, KeyError, TypeError):
            raise InvalidInput(str(self._path), "is damaged; remove it and create the keys anew") from None

    def create(self, tenant: str, clock: Clock) -> tuple[ApiKeyRecord, str]:
        """Create a key: its record, and its text, which is not stored."""
        record, text = new_key(tenant)
        self._state.mkdir(mode=PRIVATE_DIR, parents=True, exist_ok=True)
        with self._locked():
            self._write([*self.all(), StoredKey(record, rfc3339(clock.utc()))])
        return record, text

    def revoke(self, identity: str) -> ApiKeyRecord:
        if self._path.exists():
            with self._locked():
                keys = self.all()
                gone = next((key for key in keys if key.record.key_id == identity), None)
                if gone is not None:
                    self._write([key for key in keys if key is not gone])
                    return gone.record
        raise NotFound(f"there is no key {identity!r}; `paceline keys list` shows them")

    def local(self, clock: Clock) -> str:
        """The local tenant's key; created if there is none, or if its record is gone."""
        path = self._state / "local.key"
        text = path.read_text().strip() if path.exists() else ""
        if any(key.record.key_id == key_id(text) and verify(text, key.record) for key in self.all()):
            return text
        _, text = self.create(LOCAL_TENANT, clock)
        write_private(path, text + "\n")
        return text

    def _write(self, keys: list[StoredKey]) -> None:
        rows = [{"record": asdict(key.record), "created": key.created} for key in keys]
        write_private(self._path, json.dumps({"v": 1, "keys": rows}, indent=1) + "\n")

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        handle = os.open(self._state / ".keys.lock", os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def publish_key_secrets(keys: KeyFile, store: ObjectStore) -> None:
    wanted = {key_of(m): m for m in (key.record.manifest(key_namespace_of(NAMESPACE)) for key in keys.all())}
    known = {key_of(manifest) for manifest in store.objects.list("Secret")}
    for key in known - wanted.keys():
        store.objects.remove("Secret", key)
    for key in wanted.keys() - known:
        store.objects.put(wanted[key])
