"""PyTorch processes that share one region of weights. Stages: regions.py."""
from typing import Any, Dict, List

import regions


def way_on(device: str) -> regions.Way:
    import gpumem.torch
    import torch

    torch.zeros(1, device=device)  # PyTorch's start is no part of a load

    def load(arrays: Dict[str, Any]) -> Dict[str, Any]:
        loaded = {name: torch.from_numpy(array).to(device) for name, array in arrays.items()}
        if device == "cuda":
            torch.cuda.synchronize()
        return loaded

    def compute(weights: List[Any]) -> bytes:
        at = torch.linspace(-1, 1, 8 * regions.WIDTH, device=device).reshape(8, regions.WIDTH)
        for weight in weights:
            at = torch.tanh(at @ weight)
        return bytes(at.cpu().numpy().tobytes())

    return regions.Way(load, gpumem.torch.tensors, lambda tensor: int(tensor.data_ptr()), compute)


regions.play("torch", lambda torch: bool(torch.cuda.is_available()), way_on)
