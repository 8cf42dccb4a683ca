"""`python -m paceline_gateway.admin METHOD PATH [JSON]`: sends an authorized request to the gateway on this host.

PACELINE_CONFIG names the gateway's own file, so whoever can read its signing key is authorized: in a pod, anyone who
may `exec` there. Prints the answer. Exit status: 0 done, 1 refused or no answer, 2 the input is wrong.
"""

import sys
from collections.abc import Sequence

import httpx

from paceline_core.auth import TokenSigner, read_signing_key
from paceline_core.auth.internal_token import GATEWAY_AUDIENCE, HEADER
from paceline_core.clock import SystemClock
from paceline_core.config import from_environment
from paceline_core.errors import InvalidInput, PacelineError, Unreachable
from paceline_gateway.admin.control import ISSUER
from paceline_gateway.config import GatewayConfig

LIMIT_S = 5.0
_USAGE = "write METHOD PATH [JSON], such as: POST /v1/drain"
_ANY = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - not bound but replaced


def main(arguments: Sequence[str]) -> int:
    """Send one request; returns the exit status."""
    try:
        answer = _ask(from_environment(GatewayConfig), arguments)
    except PacelineError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2 if isinstance(error, InvalidInput) else 1
    sys.stdout.write(answer.text.rstrip() + "\n")
    return 1 if answer.is_error else 0


def _ask(config: GatewayConfig, arguments: Sequence[str]) -> httpx.Response:
    if len(arguments) not in (2, 3) or not arguments[1].startswith("/"):
        raise InvalidInput("arguments", _USAGE)
    method, path, *body = arguments
    token = TokenSigner(read_signing_key(config.signing_key), ISSUER).token(GATEWAY_AUDIENCE, SystemClock().utc())
    url = f"http://{_ANY.get(config.admin.host, config.admin.host)}:{config.admin.port}{path}"
    try:
        return httpx.request(
            method.upper(), url, headers={HEADER: token}, content="".join(body), timeout=LIMIT_S, trust_env=False
        )
    except httpx.HTTPError as error:
        raise Unreachable(f"the gateway at {url} did not answer ({type(error).__name__}); is it up?") from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
