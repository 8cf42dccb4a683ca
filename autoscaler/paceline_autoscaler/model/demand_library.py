"""The demand of public traces: what a service that has no history of its own yet may come to.

Each trace is scaled to a mean rate of 1. `python -m benchmarks.autoscaling learn` makes the file, and names the traces.
"""

from importlib.resources import files

from pydantic import TypeAdapter

from paceline_autoscaler.model.work_history import WorkHistory

_FILE = "demand_library.json"
LIBRARY = TypeAdapter(WorkHistory).validate_json((files(__package__) / _FILE).read_bytes())
"""All traces with a gap after each; `dispersion` is their mean."""
