"""The one table of request fields: what each route takes, ignores or refuses, beside OpenAI's and vLLM's own."""

from paceline_workers.server.openai.fields.field import Api, FieldRoute, RequestField, Support
from paceline_workers.server.openai.fields.table import FIELDS, field_of, refuse_unsupported

__all__ = ["FIELDS", "Api", "FieldRoute", "RequestField", "Support", "field_of", "refuse_unsupported"]
