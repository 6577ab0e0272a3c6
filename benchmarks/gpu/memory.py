"""What CUDA's allocator counts; None where there is none."""

from __future__ import annotations

import torch


def allocated(device: torch.device) -> int | None:
    """Bytes that tensors hold now."""
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else None


def begin_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak(device: torch.device) -> int | None:
    """Most bytes that tensors held at once since ``begin_peak``."""
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
