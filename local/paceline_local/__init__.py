"""`paceline up`: one process that plays the API server, keeps the parts running, and takes everything down with it."""

HOST = "127.0.0.1"
NAMESPACE = "paceline-system"
LOCAL_TENANT = "local"
"""The tenant of the key that `paceline up` prints."""
