"""Who may do what at the admin port: the bearer of a hop token of the right issuer."""

from fastapi import Request

from paceline_core.auth import TrustFile
from paceline_core.auth.hop import GATEWAY_AUDIENCE, HEADER
from paceline_core.errors import Code, RequestError


def require(request: Request, trust: TrustFile, issuer: str, who: str, how: str = "") -> None:
    """Raise RequestError unless it bears a token of this issuer; `who` names it, `how` says where to get one."""
    hop = trust.hop(request.headers.get(HEADER, ""))
    if hop is None or hop.issuer != issuer:
        raise RequestError(Code.INVALID_API_KEY, f"Send {HEADER}: a token of {who} for {GATEWAY_AUDIENCE}{how}.")
