"""GPU memory borrowed from gpumemd, the broker of this machine.

    with gpumem.Session.connect(label="train") as session, session.open_allocator() as allocator:
        with allocator.allocate(256 * gpumem.MIB) as block:
            ...  # block.address: a CUdeviceptr in value

Sizes are bytes, times are seconds. Failures raise a GpumemError with a code and a message that says what to do.
Under frameworks: gpumem.cupy, gpumem.numba, gpumem.cuda_core and gpumem.torch, imported by name.
"""
import pkgutil

from ._library import version
from ._version import __version__
from .allocator import Allocator, BlockInfo, SizeClass, Statistics
from .arrays import Array, Arrays
from .block import Block
from .errors import (Code, FailedPrecondition, GpumemError, InvalidArgument, LibraryNotFound, NotFound, OutOfMemory,
                     PermissionDenied, StaleLayout, Unavailable)
from .host import HostBuffer, HostMemory
from .ipc import Import
from .pressure import Pressure
from .process import configure_default, default_allocator, default_session
from .publish import Publication, Replicas, map_nearest, map_or_publish_arrays, publish_arrays, publish_replicas
from .region import Region, Reservation, Sharing
from .session import DeviceUsage, Session
from .slice import Slice

# The broker's gRPC interface is the protobuf package gpumem.v1. Code that protoc generated from it lies in a folder
# `gpumem` of its own on sys.path, and is imported as gpumem.v1.
__path__ = pkgutil.extend_path(__path__, __name__)

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

__all__ = [
    "GIB", "KIB", "MIB", "Allocator", "Array", "Arrays", "Block", "BlockInfo", "Code", "DeviceUsage",
    "FailedPrecondition",
    "GpumemError", "HostBuffer", "HostMemory", "Import", "InvalidArgument", "LibraryNotFound", "NotFound", "OutOfMemory", "PermissionDenied", "Pressure",
    "Publication", "Region", "Replicas", "Reservation", "Session", "Sharing", "SizeClass", "Slice", "StaleLayout", "Statistics",
    "Unavailable",
    "__version__", "configure_default", "default_allocator", "default_session",
    "map_nearest", "map_or_publish_arrays", "publish_arrays", "publish_replicas", "version",
]
