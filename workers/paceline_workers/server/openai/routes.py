"""The generating routes, and what makes jobs of their bodies."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from paceline_workers.server.openai.anthropic.job import messages_job
from paceline_workers.server.openai.chat_job import chat_job
from paceline_workers.server.openai.jobs import GenerationJob, JobInput, completion_job
from paceline_workers.server.openai.responses.job import responses_job
from paceline_workers.server.openai.served_model import ServedModel

MakeJob = Callable[[ServedModel, JobInput], Coroutine[Any, Any, GenerationJob]]

SOCKETS: Mapping[str, MakeJob] = {"/v1/chat/completions": chat_job, "/v1/completions": completion_job}
"""Those that take WebSocket connections too."""
GENERATING: Mapping[str, MakeJob] = {**SOCKETS, "/v1/responses": responses_job, "/v1/messages": messages_job}
"""All generating routes."""
