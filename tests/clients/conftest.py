"""One stack for all clients of a session, and how a client's script is run against it."""

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.cli.stackproc import Api
from tests.clients.environments import Environment, installed, python
from tests.clients.served import model_folder, stack

SCRIPTS = Path(__file__).with_name("scripts")
LIMIT_S = 180.0
# What a client would look up elsewhere before it asks us.
_OFFLINE = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "DO_NOT_TRACK": "1",
}


@dataclass(frozen=True)
class Served:
    """The running stack, a folder for what clients write, and the model's folder, whose tokenizer some read."""

    api: Api
    scratch: Path
    model: Path

    def post(self, route: str, **body: Any) -> dict[str, Any]:
        """What the gateway answers, beside the client."""
        headers = {"authorization": f"Bearer {self.api.key}"}
        with httpx.Client(base_url=self.api.endpoint, headers=headers, timeout=LIMIT_S, trust_env=False) as http:
            answer = http.post(route, json={"model": self.api.model, **body})
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def script(self, environment: Environment, name: str, *arguments: str) -> dict[str, Any]:
        """The JSON that a client's script prints last; it is told the model's name and `arguments`."""
        if environment.node:
            command = ["node", str(self._beside_modules(environment, name))]
        else:
            command = [str(python(environment)), str(SCRIPTS / name)]
        return dict(json.loads(self.run([*command, self.api.model, *arguments]).splitlines()[-1]))

    def run(self, command: list[str]) -> str:
        """What a client says on its standard output; a failure shows its last words."""
        ours = {"OPENAI_BASE_URL": f"{self.api.endpoint}/v1", "OPENAI_API_KEY": self.api.key, "NO_PROXY": "127.0.0.1"}
        ours |= {"ANTHROPIC_BASE_URL": self.api.endpoint, "ANTHROPIC_API_KEY": self.api.key}
        own = {"HOME": str(self.scratch), "HF_HOME": str(self.scratch / "hf")}
        kept = {name: value for name, value in os.environ.items() if name in {"PATH", "LANG", "TMPDIR"}}
        done = subprocess.run(
            command,
            env=kept | _OFFLINE | own | ours,
            cwd=self.scratch,
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )
        assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    def _beside_modules(self, environment: Environment, name: str) -> Path:
        """The script where Node finds the packages: it looks in the folders above a file."""
        place = self.scratch / environment.name
        place.mkdir(exist_ok=True)
        (place / "node_modules").unlink(missing_ok=True)
        (place / "node_modules").symlink_to(installed(environment) / "node_modules")
        script = place / name
        script.write_bytes((SCRIPTS / name).read_bytes())
        return script


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Gateway and worker with the demo model."""
    scratch = tmp_path_factory.mktemp("clients")
    with stack(scratch) as api:
        yield Served(api, scratch, model_folder(scratch))
