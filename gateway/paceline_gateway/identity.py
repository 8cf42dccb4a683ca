"""API key -> tenant, tenant -> class. Pure, over the directory's picture.

A key is proved by one SHA-256 against its record. A head that repeats on its connection is not proved again before the
picture changes (`Head.judged`), so a revoked key is refused at once. Which part of a key was wrong is not told.
"""

from collections.abc import Mapping

from paceline_core.auth import key_id, verify
from paceline_core.errors import Code, RequestError
from paceline_core.objects.resolved import ResolvedTenant
from paceline_core.registry.enums import RequestClass
from paceline_gateway.routing.directory import ConfigSnapshot

_MISSING = "No API key was sent; send the header `Authorization: Bearer pl_...`."
_CHALLENGE = {"www-authenticate": "Bearer"}
_WRONG = "The API key is not valid; check it, or ask for a new one."


def authenticate(headers: Mapping[bytes, bytes], picture: ConfigSnapshot) -> ResolvedTenant:
    """The tenant whose key this is. Raises RequestError `invalid_api_key`."""
    key = _bearer(headers)
    if key is None:
        raise RequestError(Code.INVALID_API_KEY, _MISSING, headers=_CHALLENGE)
    record = picture.keys.get(key_id(key) or "")
    tenant = picture.tenants.get(record.tenant) if record is not None else None
    if record is None or tenant is None or not verify(key, record):
        raise RequestError(Code.INVALID_API_KEY, _WRONG, headers=_CHALLENGE)
    return tenant


def sent_key_id(headers: Mapping[bytes, bytes]) -> str | None:
    """The id within the key that is sent, known or not: eight letters and digits; None if it is no key."""
    return key_id(_bearer(headers) or "")


def choose_class(headers: Mapping[bytes, bytes], tenant: ResolvedTenant) -> RequestClass:
    """The class asked for with `x-paceline-class`, or the tenant's default. Raises RequestError."""
    asked = headers.get(b"x-paceline-class")
    if asked is None:
        return tenant.default_class
    name = asked.decode("latin-1").strip().lower()
    if name not in set(RequestClass):
        message = f"x-paceline-class must be one of {', '.join(tenant.classes)}, not `{name[:32]}`."
        raise RequestError(Code.INVALID_REQUEST, message, param="x-paceline-class")
    return _open(RequestClass(name), tenant)


def reauthorize(headers: Mapping[bytes, bytes], name: RequestClass, service: str, picture: ConfigSnapshot) -> None:
    """Whether one who waits for this service in this class still may, keys and tenants having changed since.

    Raises RequestError.
    """
    tenant = authenticate(headers, picture)
    _open(name, tenant)
    if not tenant.allows(service):
        raise RequestError(Code.MODEL_NOT_FOUND, "The model is not open to you any more.", param="model")


def _bearer(headers: Mapping[bytes, bytes]) -> str | None:
    scheme, _, value = headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() == b"bearer":
        return value.strip().decode("latin-1")
    own = headers.get(b"x-api-key")  # as Anthropic's clients send it
    return None if own is None else own.strip().decode("latin-1")


def _open(name: RequestClass, tenant: ResolvedTenant) -> RequestClass:
    if name not in tenant.classes:
        message = f"The class `{name}` is not open to you; you may use {', '.join(tenant.classes)}."
        raise RequestError(Code.CLASS_FORBIDDEN, message, param="x-paceline-class")
    return name
