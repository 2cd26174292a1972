"""torch.cuda._utils."""
import device as simulated


def _get_device_index(device: int | None, optional: bool = False) -> int:
    assert optional or device is not None
    return simulated.current_device() if device is None else device
