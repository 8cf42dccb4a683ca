"""The API server's address and our credentials: read by kubernetes.aio's loaders, in a pod or from a kubeconfig.

In a pod the token file is read again once a minute, since the kubelet replaces it. Everything else (CA, client
certificate, exec plugin, token of a kubeconfig) is read again by `renew`, after a 401 or a TLS failure; that makes a
new context, so connections with the old one are not used again.
Known hole: the loaders write keys inlined in a kubeconfig to temporary files (mode 0600) that stay until exit.
"""

import asyncio
import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from paceline_core.errors import InvalidInput, Unreachable

LOGIN_LIMIT_S: Final = 30.0
SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach the API server: a kubeconfig, or (None) the pod's `account` and `environ`.

    `context` names one of the kubeconfig's; empty is its current one.
    """

    kubeconfig: Path | None = None
    context: str = ""
    account: Path = SERVICE_ACCOUNT
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)


class Credentials:
    """Data for each request. `server` has no slash at its end; `tls` is None for plain HTTP."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._configuration: Any = None
        self.server = ""
        self.tls: ssl.SSLContext | None = None
        self.server_name: str | None = None
        self.proxy: str | None = None

    async def renew(self) -> None:
        """Read everything again. Raises InvalidInput for unusable input, Unreachable for a plugin that hangs."""
        try:
            async with asyncio.timeout(LOGIN_LIMIT_S):
                found = await _load(self._access)
        except TimeoutError:
            raise Unreachable(f"logging in took longer than {LOGIN_LIMIT_S:g} s; is the exec plugin stuck?") from None
        tls = _context(found) if found.host.startswith("https") else None
        self._configuration, self.tls = found, tls
        self.server = found.host.rstrip("/")
        self.server_name, self.proxy = found.tls_server_name, found.proxy

    def headers(self) -> dict[str, str]:
        """The header with our identity; empty if a client certificate has it."""
        hook: Callable[[Any], None] | None = self._configuration.refresh_api_key_hook
        if hook is not None:
            _checked(lambda: hook(self._configuration), str(self._access.account / "token"))
        token: str | None = self._configuration.api_key.get("BearerToken")
        return {"Authorization": token.strip()} if token else {}


async def _load(access: Access) -> Any:
    from kubernetes.aio.client import Configuration  # noqa: PLC0415 - 0.2 s and 20 MB that local mode does not need

    configuration = Configuration()
    if access.kubeconfig is None:
        from kubernetes.aio.config.incluster_config import InClusterConfigLoader  # noqa: PLC0415

        account = access.account
        files = str(account / "token"), str(account / "ca.crt")
        loader: Any = InClusterConfigLoader(*files, environ=access.environ)  # type: ignore[no-untyped-call]
        _checked(lambda: loader.load_and_set(configuration), f"the service account in {account}")
    else:
        await _from_file(access.kubeconfig, access.context, configuration)
    return configuration


async def _from_file(path: Path, context: str, configuration: Any) -> None:
    from kubernetes.aio.config import ConfigException, load_kube_config  # noqa: PLC0415

    if not path.is_file():  # noqa: ASYNC240 - one check of a local file for each login
        raise InvalidInput(str(path), "is not there; name a kubeconfig")
    try:
        await load_kube_config(  # type: ignore[no-untyped-call]
            str(path), context=context or None, client_configuration=configuration, persist_config=False
        )
    except (ConfigException, yaml.YAMLError, OSError, ValueError, TypeError, AttributeError, KeyError) as error:
        raise InvalidInput(str(path), f"is not a usable kubeconfig: {error}") from None


def _checked(load: Callable[[], None], origin: str) -> None:
    from kubernetes.aio.config import ConfigException  # noqa: PLC0415

    try:
        load()
    except (ConfigException, OSError) as error:
        raise InvalidInput(origin, f"cannot be used: {error}; outside a pod, name a kubeconfig") from None


def _context(configuration: Any) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
        if configuration.cert_file:
            context.load_cert_chain(configuration.cert_file, configuration.key_file)
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput("the API server's CA or the client certificate", f"cannot be used: {error}") from None
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
