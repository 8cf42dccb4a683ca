"""Who may do what at the admin port: the bearer of an internal token of the right issuer."""

from fastapi import Request

from paceline_core.auth import TrustBundle
from paceline_core.auth.internal_token import GATEWAY_AUDIENCE, HEADER
from paceline_core.errors import Code, RequestError


def require(request: Request, trust: TrustBundle, issuer: str, who: str, how: str = "") -> None:
    """Raise RequestError unless it bears a token of this issuer; `who` names it, `how` says where to get one."""
    claims = trust.claims(request.headers.get(HEADER, ""))
    if claims is None or claims.issuer != issuer:
        raise RequestError(Code.INVALID_API_KEY, f"Send {HEADER}: a token of {who} for {GATEWAY_AUDIENCE}{how}.")
