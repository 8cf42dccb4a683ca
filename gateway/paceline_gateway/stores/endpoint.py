"""`POST /internal/quota` on the admin port: other gateways' calls to the one that counts for all."""

from fastapi import FastAPI, Request, Response

from paceline_core.auth import TrustBundle
from paceline_core.errors import Code, RequestError
from paceline_gateway.admin.authority import require
from paceline_gateway.stores.peers import PATH, PeerStore

BODY_BYTES = 1 << 20


def add_quota(app: FastAPI, peers: PeerStore, trust: TrustBundle) -> None:
    """Add the route."""

    @app.post(PATH)
    async def exchange(request: Request) -> Response:
        """For a bearer of another gateway's internal token."""
        require(request, trust, "gateway", "a gateway")
        length = request.headers.get("content-length", "")
        if not length.isdigit() or int(length) > BODY_BYTES:
            message = f"Send content-length, {BODY_BYTES} bytes at most."
            raise RequestError(Code.REQUEST_TOO_LARGE, message)
        return Response(peers.serve(await request.body()), media_type="application/json")
