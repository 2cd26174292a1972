"""Managed memory pools by cuda-core."""
import ctypes

import pytest
from cuda.core import ManagedMemoryResource, ManagedMemoryResourceOptions

from bindings import MIB, pointer_figure
from core import context, device, stream  # noqa: F401, fixtures


@pytest.mark.parametrize(("place", "kind"), [(None, None), (1, "device"), (None, "host")])
def test_managed_buffers_are_read_by_the_host_and_charged_where_they_shall_lie(device, stream, used, place, kind):
    before = used(1)
    options = ManagedMemoryResourceOptions(preferred_location=place, preferred_location_type=kind)
    pool = ManagedMemoryResource(options)
    buffer = pool.allocate(4 * MIB, stream=stream)
    buffer.fill(b"\3", stream=stream)
    stream.sync()
    assert buffer.is_host_accessible and buffer.is_device_accessible
    assert pointer_figure(int(buffer.handle), "IS_MANAGED")
    assert ctypes.string_at(int(buffer.handle), 4 * MIB) == b"\3" * 4 * MIB
    assert used(1) - before == (4 * MIB if place == 1 else 0)
    buffer.close(stream)
    stream.sync()
    pool.close()
