"""`paceline up`: one process that serves as the API server, supervises the parts, and stops everything at its end."""

HOST = "127.0.0.1"
NAMESPACE = "paceline-system"
LOCAL_TENANT = "local"
"""The tenant of the key that `paceline up` prints."""
