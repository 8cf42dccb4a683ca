"""`spec.model`: which weights, from where, under which public name."""

from typing import Annotated, Final, Literal

from pydantic import Field

from paceline_core.objects.fields import REVISION_PATTERN, ApiModel, Label, ModelName, Source, bounded, keyed

SCHEMES: Final = ("builtin", "hf", "pvc", "file", "s3", "gs", "oci")

Quantization = Literal["none", "int8", "int4", "fp8"]


class Adapter(ApiModel):
    """One LoRA adapter; clients ask for it as `<model>:<adapter>`."""

    name: Label
    """Name of the adapter, at most 63 characters of a-z, 0-9 and dashes. Example: legal."""
    source: Source
    """Where its weights are, in the same forms as the model's source except builtin. Example: hf://acme/legal-lora."""


class Model(ApiModel):
    """The model to serve. Every field here is part of the service's revision."""

    source: Source
    """Where the weights are: builtin://demo (in the worker's package), hf://org/name, pvc://claim/path, file:///path
    (a path inside the container), s3://bucket/prefix, gs://bucket/prefix or oci://registry/repository:tag."""
    revision: Annotated[str, Field(pattern=REVISION_PATTERN, max_length=128)] | None = None
    """Branch, tag or commit of an hf:// source. Default: main, pinned to its commit when the revision is made."""
    served_name: ModelName | None = None
    """Name clients use in `model`; `namespace/name` of the service always works too. Of several objects that claim a
    name the oldest one's namespace has it. Default: the service's name. Example: llama-3.1-8b."""
    quantization: Quantization | None = None
    """Weight format to convert to while loading. Default: none (as stored)."""
    tokenizer: Source | None = None
    """Where the tokenizer is, if not beside the weights; same forms as source. Example: hf://org/tokenizer."""
    adapters: Annotated[tuple[Adapter, ...], bounded(64), keyed("name")] = ()
    """LoRA adapters served on top of the model, at most 64."""

    @property
    def scheme(self) -> str:
        """The part of the source before `://`."""
        return self.source.partition("://")[0]
