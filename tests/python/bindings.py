"""cuda-bindings' calls, with what several tests do by them."""
import ctypes

from cuda.bindings import driver as cu

MIB = 1 << 20
FD = cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
READ = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READ
READ_WRITE = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE


def ok(answer: tuple):
    """The values that a call returned besides its result. The call must have succeeded."""
    result, *values = answer
    assert result == cu.CUresult.CUDA_SUCCESS, result.name
    return values[0] if len(values) == 1 else tuple(values)


def use(device: int):
    """Makes the device's primary context the thread's own."""
    ok(cu.cuInit(0))
    ok(cu.cuCtxSetCurrent(ok(cu.cuDevicePrimaryCtxRetain(device))))


def write(address, content: bytes) -> None:
    ok(cu.cuMemcpyHtoD(address, content, len(content)))


def read(address, size: int) -> bytes:
    content = bytearray(size)
    ok(cu.cuMemcpyDtoH((ctypes.c_char * size).from_buffer(content), address, size))
    return bytes(content)


def location(device: int) -> cu.CUmemLocation:
    place = cu.CUmemLocation()
    place.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    place.id = device
    return place


def access(device: int, flags=READ_WRITE) -> cu.CUmemAccessDesc:
    wanted = cu.CUmemAccessDesc()
    wanted.location = location(device)
    wanted.flags = flags
    return wanted


def extent_properties(device: int = 0) -> cu.CUmemAllocationProp:
    wanted = cu.CUmemAllocationProp()
    wanted.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.requestedHandleTypes = FD
    wanted.location = location(device)
    return wanted


def mapped(handle, size: int, flags=READ_WRITE, device: int = 0):
    """Reserves addresses and maps the handle there."""
    address = ok(cu.cuMemAddressReserve(size, 0, 0, 0))
    ok(cu.cuMemMap(address, size, 0, handle, 0))
    ok(cu.cuMemSetAccess(address, size, [access(device, flags)], 1))
    return address


def unmap(address, size: int) -> None:
    ok(cu.cuMemUnmap(address, size))
    ok(cu.cuMemAddressFree(address, size))


def pool_of(device: int = 0, handle_type=FD, limit: int = 0) -> cu.CUmemoryPool:
    wanted = cu.CUmemPoolProps()
    wanted.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.handleTypes = handle_type
    wanted.location = location(device)
    wanted.maxSize = limit
    return ok(cu.cuMemPoolCreate(wanted))


def pool_figure(pool, name: str) -> int:
    attribute = getattr(cu.CUmemPool_attribute, f"CU_MEMPOOL_ATTR_{name}")
    return int(ok(cu.cuMemPoolGetAttribute(pool, attribute)))


def pointer_figure(address, name: str):
    return ok(cu.cuPointerGetAttribute(getattr(cu.CUpointer_attribute, f"CU_POINTER_ATTRIBUTE_{name}"), address))


def to_bytes(ticket) -> bytes:
    """A ticket for another process (memory, event, pointer of a pool) as it travels."""
    return ctypes.string_at(ticket.getPtr(), 64)


def from_bytes(kind, content: bytes):
    ticket = kind()
    ctypes.memmove(ticket.getPtr(), content, 64)
    return ticket
