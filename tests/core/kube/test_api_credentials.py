"""Logging in: in a pod, by a kubeconfig, over TLS; and each mistake as a sentence."""

import shlex
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.core.kube.api_peer import Peer, answer, config_map, kubeconfig

from paceline_core.clock import ManualClock
from paceline_core.errors import InvalidInput, NotFound, Unreachable
from paceline_core.kube import ObjectKey
from paceline_core.kube.client.client import KubeClient
from paceline_core.kube.client.credentials import Access, Credentials
from paceline_core.kube.client.resource import RESOURCES

CONFIG = RESOURCES["ConfigMap"]
HERE = ObjectKey("default", "a")


def certificate(folder: Path, name: str, *addresses: str) -> Path:
    """A self-signed certificate and its key in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime(2026, 1, 1, tzinfo=UTC)
    alternatives = [x509.DNSName(name), *(x509.IPAddress(ip_address(address)) for address in addresses)]
    made = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=4000))
        .not_valid_after(now + timedelta(days=40000))
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    path = folder / f"{name}.pem"
    path.write_bytes(key.private_bytes(*form) + made.public_bytes(serialization.Encoding.PEM))
    return path


@asynccontextmanager
async def secured(server: Path, client: Path | None = None) -> AsyncIterator[Peer]:
    """A peer over TLS that asks for `client` where given."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(server)
    if client is not None:
        context.load_verify_locations(client)
        context.verify_mode = ssl.CERT_REQUIRED
    peer = Peer()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", peer.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    peer.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield peer
    finally:
        await runner.cleanup()


async def asked(access: Access, peer: Peer) -> str:
    """The Authorization header of one request."""
    api = await KubeClient.connect(access)
    peer.answers.append(answer(config_map("a", 1)))
    try:
        await api.get(CONFIG, HERE)
    finally:
        await api.close()
    return peer.asked[-1].headers.get("Authorization", "")


@pytest.fixture
def server(tmp_path: Path) -> Path:
    return certificate(tmp_path, "server", "127.0.0.1")


@pytest.fixture
def account(tmp_path: Path, server: Path) -> Path:
    folder = tmp_path / "account"
    folder.mkdir()
    (folder / "token").write_text("pod-token\n")
    (folder / "ca.crt").write_bytes(server.read_bytes())
    return folder


async def test_a_pods_account_is_used_over_tls(account: Path, server: Path) -> None:
    async with secured(server) as peer:
        port = peer.url.rpartition(":")[2]
        environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": port}
        assert await asked(Access(account=account, environ=environ), peer) == "bearer pod-token"


async def test_outside_a_pod_it_says_what_is_missing(account: Path) -> None:
    with pytest.raises(InvalidInput, match=r"host/port is not set.*name a kubeconfig"):
        await Credentials(Access(account=account, environ={})).renew()
    environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1"}
    (account / "token").unlink()
    with pytest.raises(InvalidInput, match="token file does not exist"):
        await Credentials(Access(account=account, environ=environ)).renew()


async def test_a_client_certificate_proves_who_we_are(tmp_path: Path, server: Path) -> None:
    client = certificate(tmp_path, "client")
    user = {"client-certificate": str(client), "client-key": str(client)}
    async with secured(server, client) as peer:
        path = kubeconfig(tmp_path / "config", user, server=peer.url, **{"certificate-authority": str(server)})
        assert await asked(Access(path), peer) == ""


async def test_an_unknown_authority_is_unreachable_unless_it_need_not_be_known(tmp_path: Path, server: Path) -> None:
    other = certificate(tmp_path, "other", "127.0.0.1")
    async with secured(server) as peer:
        path = kubeconfig(tmp_path / "config", {}, server=peer.url, **{"certificate-authority": str(other)})
        with pytest.raises(Unreachable, match="certificate verify failed"):
            await asked(Access(path), peer)
        kubeconfig(path, {"token": "t"}, server=peer.url, **{"insecure-skip-tls-verify": True})
        assert await asked(Access(path), peer) == "Bearer t"


async def test_the_servers_name_may_differ_from_its_address(tmp_path: Path) -> None:
    named = certificate(tmp_path, "named")
    async with secured(named) as peer:
        trust = {"certificate-authority": str(named)}
        path = kubeconfig(tmp_path / "config", {"token": "t"}, server=peer.url, **trust)
        with pytest.raises(Unreachable, match="IP address mismatch"):
            await asked(Access(path), peer)
        kubeconfig(path, {"token": "t"}, server=peer.url, **trust, **{"tls-server-name": "named"})
        assert await asked(Access(path), peer) == "Bearer t"


async def test_a_new_authority_is_read_when_the_old_one_fails(tmp_path: Path, account: Path, server: Path) -> None:
    clock = ManualClock()
    new = certificate(tmp_path, "new", "127.0.0.1")
    async with secured(new) as peer:
        port = peer.url.rpartition(":")[2]
        environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": port}
        api = await KubeClient.connect(Access(account=account, environ=environ), clock)
        (account / "ca.crt").write_bytes(new.read_bytes())
        clock.advance(60)
        peer.answers.append(answer(config_map("a", 1)))
        await api.get(CONFIG, HERE)
        await api.close()


async def test_a_plugin_gives_the_token(tmp_path: Path, server: Path) -> None:
    said = '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"from-plugin"}}'
    plugin = tmp_path / "plugin"
    plugin.write_text(f"#!/bin/sh\necho {shlex.quote(said)}\n")
    plugin.chmod(0o700)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}}
    async with secured(server) as peer:
        path = kubeconfig(tmp_path / "config", user, server=peer.url, **{"certificate-authority": str(server)})
        assert await asked(Access(path), peer) == "Bearer from-plugin"


@pytest.mark.parametrize("text", ["clusters: [", "", "[]", "clusters: []\n", "current-context: x\ncontexts: []\n"])
async def test_a_file_that_is_no_kubeconfig_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(InvalidInput, match="config: is not a usable kubeconfig"):
        await Credentials(Access(path)).renew()


async def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="absent: is not there"):
        await Credentials(Access(tmp_path / "absent")).renew()


async def test_a_context_is_chosen_by_name(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", {"token": "t"}, server="http://127.0.0.1:9/prefix/")
    credentials = Credentials(Access(path, "it"))
    await credentials.renew()
    assert credentials.server == "http://127.0.0.1:9/prefix"
    with pytest.raises(InvalidInput, match="other"):
        await Credentials(Access(path, "other")).renew()


async def test_a_server_with_a_path_is_asked_below_it(tmp_path: Path, server: Path) -> None:
    async with secured(server) as peer:
        trust = {"certificate-authority": str(server)}
        path = kubeconfig(tmp_path / "config", {"token": "t"}, server=f"{peer.url}/clusters/one", **trust)
        api = await KubeClient.connect(Access(path))
        peer.answers.append(answer({"kind": "Status", "message": "no"}, 404))
        with pytest.raises(NotFound):
            await api.get(CONFIG, HERE)
        assert peer.asked[0].path == "/clusters/one/api/v1/namespaces/default/configmaps/a"
        await api.close()
