"""The API process's side of the engine process: starts it, exchanges messages with it, detects its end."""
