"""`GET /v1/models` and `GET /v1/models/{name}`: what the caller may use, in OpenAI's form and vLLM's."""

from collections.abc import Callable
from datetime import datetime
from typing import Any
from urllib.parse import unquote

import orjson

from paceline_core.errors import Code, RequestError
from paceline_core.objects.resolved import ResolvedService
from paceline_gateway.http.message import Head
from paceline_gateway.routes import MODELS_PREFIX
from paceline_gateway.routing.directory import ConfigSnapshot
from paceline_gateway.routing.models import Requester, resolve_model, usable_names

Context = Callable[[str], int]
"""How many tokens the workers of a service take, by its key; 0 where none has said it yet."""


def listing(head: Head, picture: ConfigSnapshot, context: Context) -> bytes:
    """The body of either answer. Raises RequestError `model_not_found`."""
    if head.tenant is None:
        raise RequestError(Code.INTERNAL_ERROR, "The request came in without a tenant.")
    asker = Requester(head.tenant, head.headers)
    if head.path.startswith(MODELS_PREFIX):
        name = unquote(head.path.removeprefix(MODELS_PREFIX))
        found = resolve_model(name, asker, picture, 0.0)[0]
        return orjson.dumps(_model(name, found.service, picture, context))
    names = usable_names(asker, picture)
    models = [_model(name, service, picture, context) for name, service in names.items()]
    return orjson.dumps({"object": "list", "data": models})


def _model(name: str, service: ResolvedService, picture: ConfigSnapshot, context: Context) -> dict[str, Any]:
    created = picture.created.get(service.key, "")
    seconds = int(datetime.fromisoformat(created).timestamp()) if created else 0
    length = context(service.key) or service.engine.max_model_len
    own = {"id": name, "object": "model", "created": seconds, "owned_by": service.namespace}
    return own | {"max_model_len": length}
