"""OpenAI's Responses, without a store: bodies become chats, a chat's deltas become items and events."""
