"""The adapter for PyTorch, under a fake of its interface. Each test is a process of its own."""
import sys

import pytest

from bindings import MIB
from brokered import broker, eventually, kept  # noqa: F401, the first and the last are fixtures
from children import child


@pytest.fixture
def context():
    """None here: the children have them."""


@pytest.fixture(autouse=True)
def fake(monkeypatch):
    monkeypatch.setattr(sys, "path", ["fakes", *sys.path])  # which children have from their parent


def use_tensors(channel):
    import gpumem
    import gpumem.torch
    import numpy as np

    gpumem.torch.enable(label="tensors", limit=64 * MIB)
    gpumem.torch.enable()
    import torch

    tensor = torch.arange(MIB, device="cuda")
    allocator = gpumem.default_allocator(0)
    assert [(info.address, info.bytes) for info in allocator.snapshot()] == [(tensor.data_ptr(), 8 * MIB)]
    channel.send("made")
    channel.recv()
    assert np.array_equal(tensor.cpu(), np.arange(MIB))
    del tensor
    assert allocator.statistics().in_use == 0
    assert allocator.trim() > 0


def test_tensors_lie_in_borrowed_memory(broker):
    with child(use_tensors) as other:
        assert other.recv() == "made"
        assert [session["label"] for session in broker.sessions()] == ["tensors"]
        assert broker.lent() >= 8 * MIB
        other.send("go on")


def enable_too_late(channel):
    import gpumem
    import gpumem.torch
    import torch

    torch.cuda.init()
    with pytest.raises(gpumem.FailedPrecondition, match="before the first CUDA tensor"):
        gpumem.torch.enable()
    torch.cuda._initialized = False
    torch.cuda.memory._in_use = True
    with pytest.raises(gpumem.FailedPrecondition, match="already initialized"):
        gpumem.torch.enable()
    channel.send("told")


def test_enabling_it_too_late_is_an_error():
    with child(enable_too_late) as other:
        assert other.recv() == "told"


def enable_without_a_broker(channel):
    import gpumem
    import gpumem.torch

    with pytest.raises(gpumem.Unavailable):
        gpumem.torch.enable(runtime_folder="/nonexistent")
    channel.send("told")


def test_without_a_broker_it_is_enabling_that_fails():
    with child(enable_without_a_broker) as other:
        assert other.recv() == "told"
