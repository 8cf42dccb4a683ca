"""The four kinds of paceline.dev/v1alpha1: models, rules, names, defaults, CRDs.

`validate` parses what a person wrote, `read` what an API server has accepted, `resolve` fills in the defaults.
Needs only pydantic; `paceline_core.manifests` reads YAML.
"""

from paceline_core.objects.accelerator import AcceleratorProfile
from paceline_core.objects.defaults import resolve, resolve_route, resolve_tenant
from paceline_core.objects.field_errors import FieldError, ManifestError
from paceline_core.objects.metadata import API_VERSION, GROUP, VERSION, Condition, ObjectMeta
from paceline_core.objects.naming import (
    deployment_name,
    pod_labels,
    revision,
    selector_labels,
    workers_service_name,
)
from paceline_core.objects.resolved import (
    ResolvedClass,
    ResolvedEngine,
    ResolvedPool,
    ResolvedRoute,
    ResolvedService,
    ResolvedTenant,
    Target,
)
from paceline_core.objects.route import InferenceRoute
from paceline_core.objects.service import InferenceService
from paceline_core.objects.tenant import Tenant
from paceline_core.objects.validate import KINDS, AnyObject, read, validate

__all__ = [
    "API_VERSION",
    "GROUP",
    "KINDS",
    "VERSION",
    "AcceleratorProfile",
    "AnyObject",
    "Condition",
    "FieldError",
    "InferenceRoute",
    "InferenceService",
    "ManifestError",
    "ObjectMeta",
    "ResolvedClass",
    "ResolvedEngine",
    "ResolvedPool",
    "ResolvedRoute",
    "ResolvedService",
    "ResolvedTenant",
    "Target",
    "Tenant",
    "deployment_name",
    "pod_labels",
    "read",
    "resolve",
    "resolve_route",
    "resolve_tenant",
    "revision",
    "selector_labels",
    "validate",
    "workers_service_name",
]
