"""One module a command, imported when the command is called: each has a typer `app` with that one command."""
