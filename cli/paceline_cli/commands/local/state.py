"""The option `--state`, and requests to the parts of a local run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer

from paceline_core.errors import NotFound, Unreachable
from paceline_local.rundir import read_record

DEFAULT = Path(".paceline")
LIMIT_S = 5.0

State = Annotated[Path, typer.Option("--state", metavar="DIR", help="Directory of the local run.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def ask(state: Path, method: str, path: str) -> Any:
    """Call the supervisor of a run; raises NotFound if nothing runs there, Unreachable if it does not answer."""
    record = read_record(state)
    transport = httpx.HTTPTransport(uds=record.socket)
    try:
        with httpx.Client(transport=transport, base_url="http://supervisor", timeout=LIMIT_S) as http:
            answer = http.request(method, path)
    except httpx.HTTPError as error:
        gone = f"the run in {state} does not answer ({type(error).__name__}); its process was {record.pid}"
        raise NotFound(f"{gone}, start it again with `paceline up`") from None
    if answer.is_error:
        raise Unreachable(f"the supervisor answered {answer.status_code} to {method} {path}")
    return answer.json() if answer.content else None


def served(run: Mapping[str, Any], service: str) -> str:
    """`namespace/name` of a service of the run; raises NotFound with the existing names."""
    key = service if "/" in service else f"default/{service}"
    there = [f"{d['metadata']['namespace']}/{d['metadata']['name']}" for d in run["services"]]
    if key not in there:
        raise NotFound(f"{key} is not served here; the services are {', '.join(there)}")
    return key


def get(part: str, url: str) -> Any:
    """Read from a part's admin port; raises Unreachable, and NotFound with what the part says."""
    try:
        answer = httpx.get(url, timeout=LIMIT_S, trust_env=False)
        if answer.status_code == httpx.codes.NOT_FOUND:
            raise NotFound(f"the {part} says: {answer.json()['error']}; try again in a moment")
        answer.raise_for_status()
    except httpx.ConnectError:
        raise Unreachable(f"the {part} is restarting; try again in a moment") from None
    except httpx.HTTPError as error:
        raise Unreachable(f"{url} did not answer: {error}") from None
    return answer.json()
