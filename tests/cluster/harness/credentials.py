"""Who is who in a run: one authority, the API server's certificate, a token for each part, and kubeconfig files.

The certificate names loopback too, so that a client outside reaches the API server through the forwarder with the
same trust as a pod inside. Dates are fixed and wide: a run is thrown away long before they matter.
"""

import datetime as dt
import ipaddress
import json
import secrets
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.cluster.harness.space import FIRST_SERVICE_IP, NODE_IP

ADMIN = "harness"
NODE = "node0"
USERS = {
    ADMIN: (ADMIN, "system:masters"),
    "controller-manager": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
    "kubelet": (f"system:node:{NODE}", "system:nodes"),
    "proxy": ("system:kube-proxy", ""),
    "dns": ("harness-dns", "system:masters"),
    "kwok": ("harness-kwok", "system:masters"),
}
INSIDE = f"https://{NODE_IP}:6443"

_FROM, _TO = dt.datetime(2020, 1, 1, tzinfo=dt.UTC), dt.datetime(2120, 1, 1, tzinfo=dt.UTC)
_NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)
_ADDRESSES = ("127.0.0.1", NODE_IP, FIRST_SERVICE_IP)


@dataclass(frozen=True, slots=True)
class Credentials:
    """The files that say who is who."""

    folder: Path
    tokens: dict[str, str]

    def file(self, name: str) -> str:
        """The path of one of the files."""
        return str(self.folder / name)

    def kubeconfig(self, who: str, server: str = INSIDE) -> Path:
        """Write the kubeconfig of one of the users and say where it is."""
        path = self.folder / f"{who}.kubeconfig"
        path.write_text(json.dumps(self._config(who, server), indent=1))
        path.chmod(0o600)
        return path

    def _config(self, who: str, server: str) -> dict[str, object]:
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": server, "certificate-authority": self.file("ca.crt")}}],
            "users": [{"name": who, "user": {"token": self.tokens[who]}}],
            "contexts": [{"name": who, "context": {"cluster": "c", "user": who}}],
            "current-context": who,
        }


def make_credentials(folder: Path) -> Credentials:
    """Make all keys, certificates and tokens of a run."""
    folder.mkdir(mode=0o700)
    authority, authority_key = _certificate("paceline test authority", None, None)
    serving, serving_key = _certificate("kube-apiserver", authority, authority_key)
    _write(folder / "ca.crt", authority.public_bytes(serialization.Encoding.PEM))
    _write(folder / "apiserver.crt", serving.public_bytes(serialization.Encoding.PEM))
    _write(folder / "apiserver.key", _pem(serving_key))
    _write(folder / "sa.key", _pem(ec.generate_private_key(ec.SECP256R1())))
    tokens = {who: secrets.token_hex(16) for who in USERS}
    rows = [f'{tokens[who]},{user},{who},"{group}"' for who, (user, group) in USERS.items()]
    _write(folder / "tokens.csv", "\n".join(rows).encode())
    return Credentials(folder, tokens)


def _certificate(
    name: str, issuer: x509.Certificate | None, issuer_key: ec.EllipticCurvePrivateKey | None
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = x509.CertificateBuilder(
        issuer_name=issuer.subject if issuer else subject,
        subject_name=subject,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=_FROM,
        not_valid_after=_TO,
    )
    builder = builder.add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    if issuer is not None:
        builder = builder.add_extension(_alternatives(), critical=False)
    return builder.sign(issuer_key or key, hashes.SHA256()), key


def _alternatives() -> x509.SubjectAlternativeName:
    addresses = [x509.IPAddress(ipaddress.ip_address(address)) for address in _ADDRESSES]
    return x509.SubjectAlternativeName([*(x509.DNSName(name) for name in _NAMES), *addresses])


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    plain = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, plain)


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    path.chmod(0o600)
