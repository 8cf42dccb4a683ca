"""`paceline bench`: an open-loop load generator that checks every stream and judges the promise as a client does."""
