"""Fixtures of the tests of cuda-core, and functions that read a buffer."""
import ctypes

import pytest
from cuda.core import Device, LegacyPinnedMemoryResource


@pytest.fixture
def context():
    for number in 1, 0:  # contexts stay once they are made
        Device(number).set_current()


@pytest.fixture
def device(context):
    return Device()


@pytest.fixture
def stream(device):
    own = device.create_stream()
    yield own
    own.close()


def content(buffer, stream) -> bytes:
    """What a device's buffer holds."""
    pinned = LegacyPinnedMemoryResource().allocate(buffer.size, stream=stream)
    buffer.copy_to(pinned, stream=stream)
    stream.sync()
    held = ctypes.string_at(int(pinned.handle), buffer.size)
    pinned.close()
    return held
