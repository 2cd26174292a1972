"""cuda-bindings' calls, with what several tests do by them."""
import ctypes

from cuda.bindings import driver as cu

MIB = 1 << 20
FD = cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
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


def mapped(handle, size: int, flags=READ_WRITE, device: int = 0):
    """Reserves addresses and maps the handle there."""
    address = ok(cu.cuMemAddressReserve(size, 0, 0, 0))
    ok(cu.cuMemMap(address, size, 0, handle, 0))
    ok(cu.cuMemSetAccess(address, size, [access(device, flags)], 1))
    return address


def pointer_figure(address, name: str):
    return ok(cu.cuPointerGetAttribute(getattr(cu.CUpointer_attribute, f"CU_POINTER_ATTRIBUTE_{name}"), address))
