"""Cross-origin requests of browsers (Fetch, "CORS protocol"): which pages may read answers. Pure.

Off unless origins are configured. A page of a listed origin gets the headers with every answer, refusals included. Its
preflight is answered without a key, since browsers send none with it. Cookies are never a credential here, so no answer
allows them.
"""

from dataclasses import dataclass

from paceline_gateway.http.message import Head, Headers

ANY = "*"
EXPOSED = (
    "x-request-id",
    "retry-after",
    "retry-after-ms",
    "x-should-retry",
    "x-paceline-degraded",
    "x-paceline-quota",
    *(f"x-ratelimit-{what}-{unit}" for unit in ("requests", "tokens") for what in ("limit", "remaining", "reset")),
)
"""Header fields of answers that a page may read in addition to those that every page may."""
_EXPOSED = ", ".join(EXPOSED).encode()
_PREFLIGHT_S = 600


@dataclass(frozen=True, slots=True)
class CorsPolicy:
    """`origins`: as browsers send them, such as `https://chat.example.com`, or `*` for every page."""

    origins: frozenset[str] = frozenset()

    def allows(self, headers: Headers) -> bool:
        """Whether a page of this request's origin may read answers."""
        origin = headers.get(b"origin")
        return (
            bool(self.origins) and origin is not None and not self.origins.isdisjoint((ANY, origin.decode("latin-1")))
        )

    def fields(self, headers: Headers) -> bytes:
        """Header lines of every answer to this request."""
        if not self.origins:
            return b""
        if not self.allows(headers):
            return b"vary: origin\r\n"
        lines = (headers[b"origin"], _EXPOSED)
        return b"access-control-allow-origin: %b\r\naccess-control-expose-headers: %b\r\nvary: origin\r\n" % lines

    def is_preflight(self, head: Head) -> bool:
        """Whether an OPTIONS request is a preflight: the browser checks whether its page may send the real request."""
        return b"access-control-request-method" in head.headers and self.allows(head.headers)


def preflight_fields(headers: Headers, methods: str) -> bytes:
    """Header lines that let a page send its request: `methods` of the route, and any header."""
    asked = headers.get(b"access-control-request-headers", b"")
    allowed = b"access-control-allow-headers: %b\r\n" % asked if asked else b""
    lines = (methods.encode(), allowed, _PREFLIGHT_S)
    return b"access-control-allow-methods: %b\r\n%baccess-control-max-age: %d\r\n" % lines


NO_CORS = CorsPolicy()
