"""The engine process: a loop of plan (pure) -> execute (a backend) -> commit (pure), with one socket for messages."""
