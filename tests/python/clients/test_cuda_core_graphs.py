"""Graphs by cuda-core: its graph builder, which captures, and its definitions of nodes."""
import ctypes

from cuda.bindings import driver as cu
from cuda.core import LegacyPinnedMemoryResource
from cuda.core.graph import GraphDefinition

from bindings import MIB, ok
from core import context, device, stream  # noqa: F401, fixtures


def test_a_graph_builder_captures_copies_and_fills(device, stream):
    pinned = LegacyPinnedMemoryResource().allocate(4, stream=stream)
    memory = device.allocate(4, stream=stream)
    stream.sync()
    builder = device.create_graph_builder().begin_building()
    memory.fill(b"\5\0\0\0", stream=builder)
    memory.copy_to(pinned, stream=builder)
    graph = builder.end_building().complete()
    word = ctypes.c_uint.from_address(int(pinned.handle))
    word.value = 0
    graph.upload(stream)
    graph.launch(stream)
    stream.sync()
    assert word.value == 5
    graph.close()
    builder.close()
    memory.close(stream)
    stream.sync()
    ok(cu.cuMemPoolTrimTo(ok(cu.cuDeviceGetMemPool(0)), 0))


def test_builders_fork_and_join(device, stream):
    memory = device.allocate(8, stream=stream)
    stream.sync()
    builder = device.create_graph_builder().begin_building("thread_local")
    memory.fill(b"\1", stream=builder)
    left, right = builder.split(2)
    calls = []
    left.callback(lambda: calls.append("left"))
    right.callback(lambda: calls.append("right"))
    joined = left.join(left, right)
    joined.callback(lambda: calls.append("joined"))
    graph = joined.end_building().complete()
    graph.launch(stream)
    stream.sync()
    assert sorted(calls[:2]) == ["left", "right"] and calls[2:] == ["joined"]
    memory.close(stream)
    stream.sync()
    ok(cu.cuMemPoolTrimTo(ok(cu.cuDeviceGetMemPool(0)), 0))


def test_a_definition_allocates_fills_copies_and_frees(device, stream):
    pinned = LegacyPinnedMemoryResource().allocate(4, stream=stream)
    definition = GraphDefinition()
    allocated = definition.allocate(MIB)
    filled = allocated.memset(allocated.dptr, 9, 4)
    copied = filled.memcpy(pinned, allocated.dptr, 4)
    copied.deallocate(allocated.dptr)
    assert len(definition.nodes()) == 4
    graph = definition.instantiate()
    graph.launch(stream)
    stream.sync()
    assert ctypes.string_at(int(pinned.handle), 4) == b"\t" * 4
    graph.close()
    del allocated, filled, copied, definition
    ok(cu.cuDeviceGraphMemTrim(0))
