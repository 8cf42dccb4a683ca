"""Anthropic's Messages API: turns a body into a chat, and a chat's deltas into content blocks and events."""
