"""`POST /v1/messages/count_tokens`: how many tokens a message's prompt has, counted as its answer would count them."""

from msgspec import Struct

from paceline_workers.server.conduct import ServerDeps
from paceline_workers.server.openai.anthropic.job import NAMES
from paceline_workers.server.openai.anthropic.request import CountTokensRequest
from paceline_workers.server.openai.lengths import refuse_uncountable
from paceline_workers.server.openai.requests import parse
from paceline_workers.server.openai.responses.job import chat_of, renamed


class Counted(Struct, frozen=True):
    """The count."""

    input_tokens: int


async def count_tokens(parts: ServerDeps, body: bytes) -> Counted:
    """The length of a prompt, which may be over what the model takes. Raises RequestError."""
    asked, model = parse(CountTokensRequest, body), parts.model
    model.known(asked.model)
    context = parts.engine.ready().max_model_len
    with renamed(NAMES):
        chat = chat_of(asked.chat(), body)
        model.parser(chat.offered, chat.forced, chat.most_calls)
        text = model.render(chat.messages, chat.offered, chat.rendering(chat.documents, chat.reasoning_effort))
        refuse_uncountable(text, context, "messages")
    return Counted(len(await model.tokenizer.encode(text, special=False)))
