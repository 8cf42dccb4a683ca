"""The API process's side of the engine process: start it, talk to it, notice its end."""
