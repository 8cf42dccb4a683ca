"""An environment for each client, made once by pip or npm and kept outside the tree.

One lies in `$XDG_CACHE_HOME/paceline/clients/NAME-HASH`; the hash is that of its requirements and of the Python that
made it, so a changed version makes a new one. The file `.complete` is written last: a folder without it is made anew. A
lock lets one process install at a time. Hole: what the requirements themselves depend on is not pinned, and old folders
are removed by hand.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

LIMIT_S = 900.0
_COMPLETE = ".complete"


class EnvironmentMissing(Exception):
    """A client could not be installed; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Environment:
    """A client's name and the packages it needs, from PyPI or from npm."""

    name: str
    requirements: tuple[str, ...]
    node: bool = False
    torch: bool = False


OPENAI = Environment("openai", ("openai==3.54.0",))
LANGCHAIN = Environment("langchain", ("langchain-openai==1.7.3",))
# Its calls with tools import `mcp`, which it does not ask for.
LITELLM = Environment("litellm", ("litellm==1.106.2", "mcp==2.3.0"))
# Of transformers the tokenizers alone: neither package asks for torch.
LM_EVAL = Environment("lm-eval", ("lm_eval[api]==0.4.13", "transformers==5.23.0"))
INSTRUCTOR = Environment("instructor", ("instructor==1.17.0",))
PYDANTIC_AI = Environment("pydantic-ai", ("pydantic-ai-slim[openai]==2.68.0",))
OPENAI_AGENTS = Environment("openai-agents", ("openai-agents==0.24.0",))
ANTHROPIC = Environment("anthropic", ("anthropic==2.12.0",))
# Its loader is torch's: 5.9 GB with CUDA's libraries; TORCH_INDEX_URL may name an index with builds for the CPU.
GUIDELLM = Environment("guidellm", ("guidellm==0.8.1",), torch=True)
COHERE = Environment("cohere", ("cohere==7.3.1",))
AIPERF = Environment("aiperf", ("aiperf==0.13.0",))
AI_SDK = Environment("ai-sdk", ("ai@6.0.326", "@ai-sdk/openai-compatible@2.0.92", "zod@4.6.7"), node=True)
AI_SDK_FORMS = Environment(
    "ai-sdk-forms", ("ai@6.0.326", "@ai-sdk/openai@3.0.141", "@ai-sdk/anthropic@3.0.140", "zod@4.6.7"), node=True
)


def installed(environment: Environment, cache: Path | None = None) -> Path:
    """The environment's folder; made first if it is not there. Raises EnvironmentMissing."""
    folder = (cache or _cache()) / f"{environment.name}-{_hash(environment)}"
    if not (folder / _COMPLETE).exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with (folder.parent / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / _COMPLETE).exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                _fill(environment, folder)
                (folder / _COMPLETE).touch()
    return folder


def python(environment: Environment) -> Path:
    """The interpreter of a client's environment."""
    return installed(environment) / "bin" / "python"


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "paceline" / "clients"


def _hash(environment: Environment) -> str:
    text = "\n".join((*environment.requirements, "node" if environment.node else sys.version))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _fill(environment: Environment, folder: Path) -> None:
    if environment.node:
        _run(environment, ["npm", "install", "--no-audit", "--no-fund", "--prefix", folder, *environment.requirements])
        return
    _run(environment, [sys.executable, "-m", "venv", folder])
    # What is imported is compiled then: a tenth of what is installed.
    quiet = ["--quiet", "--no-input", "--no-compile", "--disable-pip-version-check"]
    install: list[str | Path] = [folder / "bin" / "python", "-m", "pip", "install", *quiet]
    if environment.torch and (index := os.environ.get("TORCH_INDEX_URL")):
        _run(environment, [*install, "--index-url", index, "torch"])
    _run(environment, [*install, *environment.requirements])


def _run(environment: Environment, command: list[str | Path]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        raise EnvironmentMissing(_refusal(environment, str(error))) from error
    if done.returncode:
        raise EnvironmentMissing(_refusal(environment, done.stderr.strip()[-600:]))


def _refusal(environment: Environment, reason: str) -> str:
    source = "npm and its registry" if environment.node else "pip and a package index (PIP_INDEX_URL)"
    wanted = " ".join(environment.requirements)
    return f"{environment.name} is not installed: the first run needs {source} for {wanted}. It failed with: {reason}"
