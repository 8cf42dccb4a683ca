"""`paceline up`: one process that plays the API server, keeps the parts running, and takes everything down with it."""
