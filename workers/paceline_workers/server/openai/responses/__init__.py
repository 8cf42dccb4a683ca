"""OpenAI's Responses API, without storage: turns a body into a chat, and a chat's deltas into items and events."""
