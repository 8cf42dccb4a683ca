"""The launch of a worker: one description, from which one adapter makes a pod and another a supervised process."""

from paceline_core.launch.build import (
    Binding,
    LaunchFile,
    Probe,
    Resources,
    WorkerLaunch,
    build,
    termination_reason,
    to_manifest_field,
)
from paceline_core.launch.unsupported import invalid_filters, repeated, unsupported, unsupported_route, unused_fields

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
