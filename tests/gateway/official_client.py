"""The official client, which retries what may be retried."""

from typing import Any

import openai
import pytest
from tests.gateway.stand import Stand


def where(stand: Stand, retries: int) -> dict[str, Any]:
    """What it has to be told of a gateway."""
    return {"api_key": stand.key, "base_url": f"http://127.0.0.1:{stand.port}/v1", "max_retries": retries}


async def refused(stand: Stand) -> openai.RateLimitError:
    """What it hears when a quota is used up for good."""
    async with openai.AsyncOpenAI(**where(stand, 3)) as client:
        with pytest.raises(openai.RateLimitError) as caught:
            await client.chat.completions.create(model="chat", messages=[{"role": "user", "content": "hi"}])
    assert caught.value.code == "insufficient_quota"
    assert caught.value.response.headers["x-should-retry"] == "false"
    return caught.value
