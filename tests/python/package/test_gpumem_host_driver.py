"""Buffers of a host store whose memory the driver allocates."""
import gpumem
import numpy as np
import pytest
from gpumem import MIB

from brokered import Broker, context, session  # noqa: F401, fixtures


@pytest.fixture(scope="module", autouse=True)
def broker():
    with Broker('[host]\nsize = "64MiB"\nkind = "driver"\n') as running:
        yield running


def test_a_buffer_is_pinned_at_its_address(session):
    with session.open_host() as host, host.buffer(MIB) as buffer:
        np.asarray(buffer)[:] = 7
        assert buffer.device_address == buffer.address


def test_none_is_pageable(session):
    with pytest.raises(gpumem.InvalidArgument, match="memfd"):
        session.open_host(pinned=False)


def test_a_region_is_pinned_too(session):
    gpumem.publish_arrays(session, "data", {"numbers": np.arange(5)}, device="host", keep=True).release()
    with session.map_region("data") as region:
        assert region.is_pinned
        assert np.asarray(region.arrays()["numbers"]).tolist() == [0, 1, 2, 3, 4]
        assert not np.asarray(region.arrays()["numbers"]).flags.writeable
