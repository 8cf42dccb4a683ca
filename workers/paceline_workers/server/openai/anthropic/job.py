"""From a message's body to a job: that of the chat it asks for, told in Anthropic's form."""

from paceline_workers.server.openai.answers import ResponseShape, WritingShape
from paceline_workers.server.openai.anthropic.answer import MESSAGE, MessageAnswer
from paceline_workers.server.openai.anthropic.request import MessagesRequest
from paceline_workers.server.openai.chats import AnswerFormat, chat
from paceline_workers.server.openai.jobs import GenerationJob, JobInput
from paceline_workers.server.openai.requests import parse
from paceline_workers.server.openai.responses.job import chat_of, renamed
from paceline_workers.server.openai.resumes import split
from paceline_workers.server.openai.served import ServedModel

NAMES = {
    "stop": "stop_sequences",
    "response_format": "output_config.format",
    "reasoning_effort": "output_config.effort",
    "continue_final_message": "messages",
}
"""What fields of the chat are called in a message's body."""


async def messages_job(model: ServedModel, asked: JobInput) -> GenerationJob:
    """A job from the body of `/v1/messages`. Raises RequestError."""
    body, resume = split(asked.body, asked.caller.resume)
    request = parse(MessagesRequest, body)

    def told(shape: ResponseShape, identity: str, created: int, prompt: int) -> WritingShape:
        return MessageAnswer(shape, identity, created, request.model, prompt)

    with renamed(NAMES):
        return await chat(model, chat_of(request.chat(), body), asked, resume, AnswerFormat(MESSAGE, told))
