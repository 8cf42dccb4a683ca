"""Turns the body of a message into the job of the equivalent chat, with the answer in Anthropic's form.

`POST /v1/messages/count_tokens` counts the tokens of a message's prompt exactly as answering it would.
"""

from msgspec import Struct

from paceline_workers.server.openai.anthropic.answer import MESSAGE, MessageAnswer
from paceline_workers.server.openai.anthropic.request import CountTokensRequest, MessagesRequest
from paceline_workers.server.openai.chat_job import AnswerFormat, chat
from paceline_workers.server.openai.inputs import refuse_uncountable
from paceline_workers.server.openai.jobs import GenerationJob, JobInput
from paceline_workers.server.openai.response_writer import ResponseShape, WritingShape
from paceline_workers.server.openai.responses.job import chat_of, renamed
from paceline_workers.server.openai.resume import split
from paceline_workers.server.openai.served_model import ServedModel
from paceline_workers.server.openai.validation import parse
from paceline_workers.server.request_handler import ServerDeps

NAMES = {
    "stop": "stop_sequences",
    "response_format": "output_config.format",
    "reasoning_effort": "output_config.effort",
    "continue_final_message": "messages",
}
"""Maps the chat's field names to those of a message's body."""


async def messages_job(model: ServedModel, asked: JobInput) -> GenerationJob:
    """A job from the body of `/v1/messages`. Raises RequestError."""
    body, resume = split(asked.body, asked.caller.resume)
    request = parse(MessagesRequest, body)

    def message_answer(shape: ResponseShape, identity: str, created: int, prompt: int) -> WritingShape:
        return MessageAnswer(shape, identity, created, request.model, prompt)

    with renamed(NAMES):
        return await chat(model, chat_of(request.chat(), body), asked, resume, AnswerFormat(MESSAGE, message_answer))


class Counted(Struct, frozen=True):
    """The token count."""

    input_tokens: int


async def count_tokens(parts: ServerDeps, body: bytes) -> Counted:
    """The length of a prompt, which may exceed the model's context. Raises RequestError."""
    asked, model = parse(CountTokensRequest, body), parts.model
    model.known(asked.model)
    context = parts.engine.ready().max_model_len
    with renamed(NAMES):
        chat = chat_of(asked.chat(), body)
        model.parser(chat)  # refuses tools that the model cannot call
        text = model.render(chat.messages, chat)
        refuse_uncountable(text, context, "messages")
    return Counted(len(await model.tokenizer.encode(text, special=False)))
