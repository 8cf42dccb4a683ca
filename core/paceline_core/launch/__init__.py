"""How a worker is started: one description, which one adapter makes a pod of and another a supervised process."""

from paceline_core.launch.build import build
from paceline_core.launch.ended import termination_reason
from paceline_core.launch.filtering import invalid_filters
from paceline_core.launch.supported import repeated, unsupported, unsupported_route, unused_fields
from paceline_core.launch.words import to_manifest_field
from paceline_core.launch.worker import Binding, LaunchFile, Probe, Resources, WorkerLaunch

__all__ = [
    "Binding",
    "LaunchFile",
    "Probe",
    "Resources",
    "WorkerLaunch",
    "build",
    "invalid_filters",
    "repeated",
    "termination_reason",
    "to_manifest_field",
    "unsupported",
    "unsupported_route",
    "unused_fields",
]
