"""`paceline bench`: an open-loop load generator that checks every stream and judges a promise as its client."""
