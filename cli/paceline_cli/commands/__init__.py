"""Commands, imported when called: one module for one or for several related ones, with an app for each."""

import typer


def command_app(about: str | None = None) -> typer.Typer:
    """A typer app in the program's plain style."""
    return typer.Typer(help=about, add_completion=False, rich_markup_mode=None, no_args_is_help=about is not None)
