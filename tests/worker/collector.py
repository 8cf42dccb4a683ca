"""An OTLP collector on loopback: it decodes what it is sent, or refuses it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue


@dataclass(frozen=True)
class Span:
    """One decoded span; ids in hex, times in seconds."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    start: float
    end: float
    error: bool
    attributes: dict[str, Any]
    events: list[str]
    resource: dict[str, Any]


@dataclass
class Collector:
    """`status` is what it answers from now on; `spans` are those it took."""

    status: int = 200
    endpoint: str = ""
    posts: int = 0
    spans: list[Span] = field(default_factory=list)

    def take(self, path: str, body: bytes) -> int:
        """One POST."""
        self.posts += 1
        if path != "/v1/traces" or self.status != 200:
            return self.status if path == "/v1/traces" else 404
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            resource = _attributes(group.resource.attributes)
            self.spans += [_span(span, resource) for scope in group.scope_spans for span in scope.spans]
        return 200


def _span(span: Any, resource: dict[str, Any]) -> Span:
    return Span(
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.start_time_unix_nano / 1e9,
        span.end_time_unix_nano / 1e9,
        span.status.code == 2,
        _attributes(span.attributes),
        [event.name for event in span.events],
        resource,
    )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    return [_value(one) for one in value.array_value.values] if kind == "array_value" else getattr(value, str(kind))


@contextmanager
def collecting(status: int = 200) -> Iterator[Collector]:
    """A collector that listens."""
    collector = Collector(status)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            self.send_response(collector.take(self.path, body))
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield collector
        server.shutdown()
