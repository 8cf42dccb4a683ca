"""The official client, which retries what may be retried."""

import openai
import pytest
from tests.gateway.stand import Stand


async def refused(stand: Stand) -> openai.RateLimitError:
    """What it hears when a quota is used up for good."""
    client = openai.AsyncOpenAI(api_key=stand.key, base_url=f"http://127.0.0.1:{stand.port}/v1", max_retries=3)
    async with client:
        with pytest.raises(openai.RateLimitError) as caught:
            await client.chat.completions.create(model="chat", messages=[{"role": "user", "content": "hi"}])
    assert caught.value.code == "insufficient_quota"
    assert caught.value.response.headers["x-should-retry"] == "false"
    return caught.value
