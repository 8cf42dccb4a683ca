"""A Redis behind TLS: its certificate is checked, and so is its name."""

from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from tests.gateway.redis_server import redis_server
from tests.ports import free_port

from paceline_core.clock import SystemClock
from paceline_core.errors import Unreachable
from paceline_gateway.config import RedisConfig
from paceline_gateway.quota_store.redis import RedisStore

pytestmark = pytest.mark.real


def certificate(directory: Path) -> tuple[Path, Path]:
    """A certificate of `localhost` that vouches for itself, and its key."""
    key, now = ec.generate_private_key(ec.SECP256R1()), SystemClock().utc()
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    public, private = directory / "tls.crt", directory / "tls.key"
    public.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return public, private


async def said(config: RedisConfig) -> int | str:
    """How many gateways there are, or why that cannot be known."""
    store = RedisStore(config, "paceline-system")
    try:
        return await store.hello("g0", 10.0)
    except Unreachable as error:
        return str(error)
    finally:
        await store.close()


async def test_only_a_server_with_the_right_certificate_and_name_is_believed(tmp_path: Path) -> None:
    public, private = certificate(tmp_path)
    port, secret = free_port(), tmp_path / "password"
    secret.write_text("right\n")
    arguments = ("--tls-port", str(port), "--tls-cert-file", str(public), "--tls-key-file", str(private))
    async with redis_server(
        tmp_path, *arguments, "--tls-ca-cert-file", str(public), "--tls-auth-clients", "no", "--requirepass", "right"
    ):
        url = f"rediss://localhost:{port}/0"
        assert await said(RedisConfig(url=url, ca_file=public, password_file=secret, timeout_s=5.0)) == 1
        for wrong in (
            RedisConfig(url=url, password_file=secret, timeout_s=5.0),
            RedisConfig(url=f"rediss://127.0.0.1:{port}/0", ca_file=public, password_file=secret, timeout_s=5.0),
        ):
            assert "certificate" in str(await said(wrong)).lower()
