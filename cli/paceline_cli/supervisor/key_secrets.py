"""The key file as the Secrets that a gateway watches: every record there is, and none that is not."""

from paceline_cli.supervisor.keys import KeyFile
from paceline_cli.supervisor.site import NAMESPACE
from paceline_cli.supervisor.store import ObjectStore, key_of
from paceline_core.kube import key_namespace_of

KIND = "Secret"


def publish(keys: KeyFile, store: ObjectStore) -> None:
    """Make the Secrets equal to the key file."""
    wanted = {key_of(m): m for m in (key.record.manifest(key_namespace_of(NAMESPACE)) for key in keys.all())}
    known = {key_of(manifest) for manifest in store.objects.list(KIND)}
    for key in known - wanted.keys():
        store.objects.remove(KIND, key)
    for key in wanted.keys() - known:
        store.objects.put(wanted[key])
