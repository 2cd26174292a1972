"""Graphs by cuda-bindings: captured from streams, and built node by node."""
import ctypes

import pytest
from cuda.bindings import driver as cu

from bindings import MIB, location, ok, use

WORD = 4
RELAXED = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
GLOBAL = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL


@pytest.fixture
def context():
    use(0)


@pytest.fixture
def stream(context):
    own = ok(cu.cuStreamCreate(1))
    yield own
    ok(cu.cuStreamDestroy(own))


@pytest.fixture
def words(stream):
    """Two words of pinned memory."""
    address = ok(cu.cuMemAllocHost(2 * WORD))
    words = (ctypes.c_uint * 2).from_address(address)
    words[:] = 0, 0
    yield words
    ok(cu.cuMemFreeHost(address))


def graph_figure(name: str) -> int:
    attribute = getattr(cu.CUgraphMem_attribute, f"CU_GRAPH_MEM_ATTR_{name}")
    return int(ok(cu.cuDeviceGetGraphMemAttribute(0, attribute)))


def submit(stream, words) -> None:
    """Work that copies a word to memory of its own and back, and adds a word that is filled there."""
    memory = ok(cu.cuMemAllocAsync(MIB, stream))
    source = ctypes.addressof(words)
    ok(cu.cuMemcpyHtoDAsync(memory, source, WORD, stream))
    ok(cu.cuMemsetD32Async(int(memory) + WORD, 7, 1, stream))
    ok(cu.cuMemcpyDtoHAsync(source, memory, 2 * WORD, stream))
    ok(cu.cuMemFreeAsync(memory, stream))


def launch(graph, stream, words) -> None:
    """Launches the graph twice, sees what it did, and destroys it with its memory."""
    executable = ok(cu.cuGraphInstantiate(graph, 0))
    for value in 3, 4:
        words[:] = value, 0
        ok(cu.cuGraphLaunch(executable, stream))
        ok(cu.cuStreamSynchronize(stream))
        assert list(words) == [value, 7]
    assert graph_figure("USED_MEM_CURRENT") >= MIB
    ok(cu.cuGraphExecDestroy(executable))
    ok(cu.cuGraphDestroy(graph))
    ok(cu.cuDeviceGraphMemTrim(0))
    assert graph_figure("RESERVED_MEM_CURRENT") == 0


def test_a_stream_is_captured_into_a_new_graph(stream, words):
    ok(cu.cuStreamBeginCapture(stream, GLOBAL))
    submit(stream, words)
    assert ok(cu.cuStreamIsCapturing(stream)) == cu.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE
    graph = ok(cu.cuStreamEndCapture(stream))
    assert list(words) == [0, 0]
    launch(graph, stream, words)


def test_a_stream_is_captured_into_a_graph_that_is_there(stream, words):
    graph = ok(cu.cuGraphCreate(0))
    first = ok(cu.cuGraphAddEmptyNode(graph, [], 0))
    ok(cu.cuStreamBeginCaptureToGraph(stream, graph, [first], [cu.CUgraphEdgeData()], 1, RELAXED))
    submit(stream, words)
    status, number, captured, dependencies, edges, count = ok(cu.cuStreamGetCaptureInfo(stream))
    assert status == cu.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE
    assert int(captured) == int(graph) and int(number) > 0 and count == 1
    assert int(ok(cu.cuStreamEndCapture(stream))) == int(graph)
    _, node_count = ok(cu.cuGraphGetNodes(graph))
    assert node_count == 6
    launch(graph, stream, words)


def test_a_graph_is_built_node_by_node(stream, words):
    graph, context = ok(cu.cuGraphCreate(0)), ok(cu.cuCtxGetCurrent())
    allocation = cu.CUDA_MEM_ALLOC_NODE_PARAMS()
    allocation.poolProps.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    allocation.poolProps.location = location(0)
    allocation.bytesize = MIB
    allocated = ok(cu.cuGraphAddMemAllocNode(graph, [], 0, allocation))
    memory = int(allocation.dptr)

    fill = cu.CUDA_MEMSET_NODE_PARAMS()
    fill.dst, fill.value, fill.elementSize, fill.width, fill.height = memory + WORD, 7, WORD, 1, 1
    filled = ok(cu.cuGraphAddMemsetNode(graph, [allocated], 1, fill, context))

    def copy(to_device: bool) -> cu.CUDA_MEMCPY3D:
        wanted = cu.CUDA_MEMCPY3D()
        device, host = cu.CUmemorytype.CU_MEMORYTYPE_DEVICE, cu.CUmemorytype.CU_MEMORYTYPE_HOST
        wanted.WidthInBytes, wanted.Height, wanted.Depth = WORD if to_device else 2 * WORD, 1, 1
        wanted.srcMemoryType, wanted.dstMemoryType = (host, device) if to_device else (device, host)
        if to_device:
            wanted.srcHost, wanted.dstDevice = ctypes.addressof(words), memory
        else:
            wanted.dstHost, wanted.srcDevice = ctypes.addressof(words), memory
        return wanted

    there = ok(cu.cuGraphAddMemcpyNode(graph, [allocated], 1, copy(True), context))
    back = ok(cu.cuGraphAddMemcpyNode(graph, [filled, there], 2, copy(False), context))
    ok(cu.cuGraphAddMemFreeNode(graph, [back], 1, memory))
    launch(graph, stream, words)
