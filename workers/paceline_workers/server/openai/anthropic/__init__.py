"""Anthropic's Messages: bodies become chats, a chat's deltas become content blocks and events."""
