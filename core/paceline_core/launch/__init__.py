"""How a worker is started: one description, which one adapter makes a pod of and another a supervised process."""

from paceline_core.launch.build import build
from paceline_core.launch.ended import how_it_ended
from paceline_core.launch.filtering import wrong_filters
from paceline_core.launch.supported import idle, repeated, unsupported, unsupported_route
from paceline_core.launch.words import in_manifest_words
from paceline_core.launch.worker import Binding, LaunchFile, Probe, Resources, WorkerLaunch

__all__ = [
    "Binding",
    "LaunchFile",
    "Probe",
    "Resources",
    "WorkerLaunch",
    "build",
    "how_it_ended",
    "idle",
    "in_manifest_words",
    "repeated",
    "unsupported",
    "unsupported_route",
    "wrong_filters",
]
