"""`python -m paceline_cli`: the same as `paceline`."""

from paceline_cli.main import app

app()
