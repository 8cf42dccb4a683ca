"""What every launch asks of its tensors before it hands their addresses to a kernel: shape, and no gaps."""

from torch import Tensor


def expect(name: str, tensor: Tensor, *shape: int) -> None:
    """Raise ValueError unless it is contiguous and has this shape; -1 allows any size."""
    if tensor.shape != shape and not _fits(tensor.shape, shape):
        raise ValueError(f"{name} has the shape {list(tensor.shape)}; {list(shape)} is needed")
    if not tensor.is_contiguous():
        raise ValueError(f"{name} has gaps between its rows; pass a contiguous tensor")


def _fits(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    return len(shape) == len(wanted) and all(want in (-1, size) for size, want in zip(shape, wanted, strict=True))
