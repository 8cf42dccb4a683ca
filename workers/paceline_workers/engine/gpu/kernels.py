"""The kernels that a step is made of, as one argument: a test passes their references, which need no interpreter."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from paceline_kernels.add_rmsnorm.launch import add_rmsnorm
from paceline_kernels.paged_decode.launch import paged_decode
from paceline_kernels.paged_prefill import paged_prefill
from paceline_kernels.rope_append.launch import rope_append
from paceline_kernels.sample.launch import sample
from paceline_kernels.sample.state import SampleOutput
from paceline_kernels.silu_mul.launch import silu_mul
from paceline_kernels.work_list.launch import plan_work


@dataclass(frozen=True, slots=True)
class Kernels:
    """Each is called with the arguments of the launch that it is by default."""

    add_rmsnorm: Callable[..., Tensor] = add_rmsnorm
    rope_append: Callable[..., Tensor] = rope_append
    silu_mul: Callable[..., Tensor] = silu_mul
    plan_work: Callable[..., None] = plan_work
    paged_decode: Callable[..., Tensor] = paged_decode
    paged_prefill: Callable[..., Tensor] = paged_prefill
    sample: Callable[..., SampleOutput] = sample


LAUNCHES = Kernels()
