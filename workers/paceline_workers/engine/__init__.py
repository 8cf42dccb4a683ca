"""The engine process: a loop of plan (pure) -> execute (a backend) -> commit (pure), fed over one socket."""
