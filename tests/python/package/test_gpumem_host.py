"""Buffers of the host store."""
import ctypes
import os

import gpumem
import numpy as np
import pytest
from gpumem import MIB

from brokered import Broker, context, eventually, kept, session  # noqa: F401, fixtures


@pytest.fixture(scope="module")
def broker():
    with Broker('[host]\nsize = "64MiB"\n[default]\nhost_limit = "32MiB"\n') as running:
        yield running


@pytest.fixture(params=[True, False], ids=["pinned", "pageable"])
def host(request, session, context):
    from bindings import cu, ok

    ok(cu.cuCtxPushCurrent(context))
    with session.open_host(pinned=request.param, idle=0) as memory:
        yield memory
    ok(cu.cuCtxPopCurrent())


def test_every_package_sees_the_same_bytes(host):
    with host.buffer(3 * MIB + 5) as buffer:
        assert buffer.size == buffer.view().nbytes == np.asarray(buffer).nbytes == 3 * MIB + 5
        np.asarray(buffer)[:] = 7
        assert set(buffer.view()[-5:]) == {7}
        assert np.from_dlpack(buffer)[0] == 7
        assert ctypes.string_at(buffer.address, 2) == b"\7\7"


def test_a_view_keeps_its_buffer(host):
    view = host.buffer(MIB).view()
    view[:4] = b"kept"
    assert bytes(view[:4]) == b"kept"
    assert host.statistics().in_use == MIB
    del view
    assert host.statistics().in_use == 0


def test_a_device_reaches_pinned_memory_alone(host):
    with host.buffer(MIB) as buffer:
        if host.is_pinned:
            assert buffer.device_address
        else:
            with pytest.raises(gpumem.FailedPrecondition, match="pinned=True"):
                buffer.device_address


def test_the_tenants_host_limit_holds(host, broker):
    with host.buffer(30 * MIB):
        assert broker.devices()[-1]["uuid"] == "host" and broker.lent() >= 30 * MIB
        with pytest.raises(gpumem.OutOfMemory, match="on host"):
            host.buffer(4 * MIB)
    eventually(lambda: broker.lent() == 0, "nothing lent")


def test_a_buffer_that_is_free_or_a_parents_is_told(host):
    buffer = host.buffer(MIB)
    process = os.fork()
    if process == 0:
        try:
            buffer.view()
        except gpumem.FailedPrecondition as error:
            os._exit(0 if "a forked child does not have it" in str(error) else 1)
        os._exit(2)
    assert os.waitpid(process, 0)[1] == 0
    buffer.free()
    buffer.free()
    with pytest.raises(gpumem.FailedPrecondition, match="has been freed"):
        buffer.view()
