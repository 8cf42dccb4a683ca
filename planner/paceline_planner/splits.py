"""How one replica is split over devices: tensor, pipeline and expert parallelism, by arithmetic.

    tensor     every matrix is cut into so many parts; two all-reduces of the activations a layer
    pipeline   the layers are cut into so many stages; each batch passes them in turn, one batch a stage at a time
    expert     the experts are spread over so many of the tensor devices, whole; tokens are sent to them and back

A pipeline makes no step faster: one batch takes as long as on `tensor` devices, but as many batches as stages run at
once. Each is a *lane*: an engine of its own with its part of the slots and of the KV cache.
Known hole: experts are chosen evenly, and stages take equally long.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from paceline_core.errors import InvalidInput
from paceline_planner.hardware import Accelerator
from paceline_planner.shapes import ModelShape

MOST_DEVICES = 8
"""The devices of a usual node, over which a replica is split at most."""


@dataclass(frozen=True, slots=True)
class DeviceSplit:
    tensor: int = 1
    pipeline: int = 1
    expert: int = 1

    @property
    def devices(self) -> int:
        return self.tensor * self.pipeline

    def __str__(self) -> str:
        """`tensor 4, pipeline 2`; `-` for one device."""
        degrees = {"tensor": self.tensor, "pipeline": self.pipeline, "expert": self.expert}
        return ", ".join(f"{name} {degree}" for name, degree in degrees.items() if degree > 1) or "-"


ONE_DEVICE = DeviceSplit()


def check_split(shape: ModelShape, accelerator: Accelerator, split: DeviceSplit) -> None:
    """Raises InvalidInput unless each device gets whole heads, layers and experts, and the devices are linked."""
    tensor, pipeline, expert = split.tensor, split.pipeline, split.expert
    if tensor < 1 or shape.kv_heads % tensor:
        raise InvalidInput("tensor", f"{tensor} devices cannot share the {shape.kv_heads} KV heads of {shape.name}")
    if not 1 <= pipeline <= shape.layers:
        raise InvalidInput("pipeline", f"{pipeline} stages cannot share the {shape.layers} layers of {shape.name}")
    if expert < 1 or tensor % expert:
        raise InvalidInput("expert", f"{expert} must divide the {tensor} devices that share a layer")
    if expert > 1 and (shape.experts is None or shape.experts.count % expert):
        count = shape.experts.count if shape.experts else "no"
        raise InvalidInput("expert", f"{expert} devices cannot share the {count} experts of {shape.name}")
    if split.devices > 1 and not accelerator.link:
        raise InvalidInput("tensor", f"{accelerator.name} has no link to others of its node; use 1")


def splits(shape: ModelShape, accelerator: Accelerator, most: int = MOST_DEVICES) -> Iterator[DeviceSplit]:
    """All splits over up to `most` devices, those of fewer devices first, tensor before pipeline."""
    degrees = [degree for degree in (1, 2, 4, 8) if degree <= most]
    found = [DeviceSplit(tensor, pipeline) for tensor in degrees for pipeline in degrees]
    if shape.experts is not None:
        found += [DeviceSplit(tensor, 1, tensor) for tensor in degrees[1:]]
    for split in sorted(found, key=lambda one: (one.devices, one.pipeline, one.expert)):
        try:
            check_split(shape, accelerator, split)
        except InvalidInput:
            continue
        if split.devices <= most:
            yield split


def stage_layers(shape: ModelShape, split: DeviceSplit) -> int:
    """Layers of the largest stage."""
    return -(-shape.layers // split.pipeline)


def stage_weight_bytes(shape: ModelShape, split: DeviceSplit) -> int:
    """Bytes of the largest stage: its layers, and one of the vocabulary's matrices; all of both without a pipeline."""
    if split.pipeline == 1:
        return shape.weight_bytes
    vocabulary = shape.vocabulary * shape.weight_dtype.size
    layers = (shape.weight_bytes - vocabulary) * stage_layers(shape, split) // shape.layers
    return layers + shape.vocabulary_matrix * shape.weight_dtype.size


def stage_kv_bytes_per_token(shape: ModelShape, split: DeviceSplit) -> int:
    """Bytes of keys and values of one token in the largest stage."""
    return shape.kv_bytes_per_token * stage_layers(shape, split) // shape.layers
