"""One module a command, imported when the command is called: each has an `app` with that one command, or a group."""

import typer


def command_app(about: str | None = None) -> typer.Typer:
    """A typer app in the program's plain style."""
    return typer.Typer(help=about, add_completion=False, rich_markup_mode=None, no_args_is_help=about is not None)
