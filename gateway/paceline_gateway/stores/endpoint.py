"""`POST /internal/quota` on the admin port: other gateways' calls to the one that counts for all."""

from fastapi import FastAPI, Request, Response

from paceline_core.auth import TrustFile
from paceline_core.auth.hop import HEADER
from paceline_core.errors import Code, RequestError
from paceline_gateway.stores.peers import AUDIENCE, PATH, PeerStore

BODY_BYTES = 1 << 20


def add_quota(app: FastAPI, peers: PeerStore, trust: TrustFile) -> None:
    """Add the route."""

    @app.post(PATH)
    async def exchange(request: Request) -> Response:
        """For a bearer of another gateway's hop token."""
        hop = trust.hop(request.headers.get(HEADER, ""))
        if hop is None or hop.issuer != "gateway":
            raise RequestError(Code.INVALID_API_KEY, f"Send {HEADER}: a token of a gateway for {AUDIENCE}.")
        length = request.headers.get("content-length", "")
        if not length.isdigit() or int(length) > BODY_BYTES:
            message = f"Send content-length, {BODY_BYTES} bytes at most."
            raise RequestError(Code.REQUEST_TOO_LARGE, message)
        return Response(peers.serve(await request.body()), media_type="application/json")
