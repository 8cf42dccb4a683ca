"""The table of request fields: which OpenAI, vLLM and other fields each route serves, ignores or refuses."""

from paceline_workers.server.openai.fields.field import Api, FieldRoute, RequestField, Support
from paceline_workers.server.openai.fields.table import FIELDS, field_of, refuse_unsupported

__all__ = ["FIELDS", "Api", "FieldRoute", "RequestField", "Support", "field_of", "refuse_unsupported"]
