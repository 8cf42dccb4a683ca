"""The gateway: identity, class queues, routing, the life of a request, the streaming proxy."""
