"""A block of an allocator's memory."""
from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, SupportsIndex

from ._handle import Handle
from ._library import leave
from ._values import StreamLike, size_of
from .errors import FailedPrecondition

if TYPE_CHECKING:
    from .allocator import Allocator


class Block(Handle):
    """Memory of an allocator, until free(), the end of its `with`, or until it is forgotten: then in the order of the
    stream it was allocated on, which it keeps alive. A block that is left when the interpreter ends goes with the
    process.

    Other packages take it as an array of bytes (`__cuda_array_interface__`): cupy.asarray(block),
    numba.cuda.as_cuda_array(block), torch.as_tensor(block, device="cuda"). Other streams than the
    block's to which they give work are named to record_stream, or ordered before the block is freed.
    Threads  any, one at a time.
    """

    __slots__ = ("_allocator", "_address", "_size", "_stream", "_handle", "_is_free", "__weakref__")

    def __init__(self, allocator: Allocator, address: int, size: int, stream: StreamLike, handle: int):
        """Use Allocator.allocate. `handle`: the stream's."""
        self._is_free = False
        self._allocator, self._address, self._size = allocator, address, size
        self._stream, self._handle = stream, handle

    @property
    def address(self) -> int:
        """A CUdeviceptr in value; a multiple of 256. Raises FailedPrecondition when it is free."""
        self._must_be_in_use()
        return self._address

    @property
    def size(self) -> int:
        """Bytes, as asked for."""
        return self._size

    @property
    def stream(self) -> StreamLike:
        """As it was allocated with."""
        return self._stream

    @property
    def allocator(self) -> Allocator:
        return self._allocator

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        # The protocol has 1 for the legacy default stream, and no 0.
        return {"shape": (self._size,), "typestr": "|u1", "data": (self.address, False), "version": 3,
                "stream": self._handle or 1}

    def extend(self, size: SupportsIndex, stream: StreamLike = None) -> None:
        """Makes it `size` bytes long, in place; what it holds stays. To more: never fails for want of addresses
        within the room it was allocated with. To less: the end is given up, and what room there was. Raises
        OutOfMemory, GpumemError (ABORTED: something else lies behind it, and there is no room)."""
        self._must_be_in_use()
        wanted = size_of(size, "size")
        self._allocator.extend_address(self._address, self._size, wanted, self._handle if stream is None else stream)
        self._size = wanted

    def export_handle(self, offset: SupportsIndex = 0, size: SupportsIndex = 0, *, life: float = 60.0,
                      uses: SupportsIndex = 1) -> bytes:
        """A handle, 64 bytes, of [address + offset, address + offset + size), with which another session of the tenant
        maps that memory, as Slice.export_handle's; `size`: 0 for the rest of the block. The whole extents that it lies
        in are mapped there, with what else lies in them. Keep the block while others use it: when it is free, the
        memory serves other blocks. Raises as Slice.export_handle; FailedPrecondition when it is free."""
        self._must_be_in_use()
        return self._allocator.export_address(self._address, offset, size, life=life, uses=uses)

    def record_stream(self, stream: StreamLike) -> None:
        """Work of `stream`, too, uses the block. When the block is freed, its memory serves nobody until the device
        has come to the end of the work given to `stream` until then. The stream must live until the block is freed."""
        self._must_be_in_use()
        self._allocator.record_stream(self._address, stream)

    def free(self, stream: StreamLike = None) -> None:
        """Frees it: work given so far to `stream` (None: the one it was allocated on) may still use it. Again:
        nothing."""
        if not self._is_free:
            self._is_free = True
            try:
                self._allocator.deallocate(self._address, self._size, self._handle if stream is None else stream)
            except BaseException:
                self._is_free = False
                raise

    def _must_be_in_use(self) -> None:
        if self._is_free:
            raise FailedPrecondition("this block has been freed")

    def __enter__(self) -> Block:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        leave(self.free, error)

    def __repr__(self) -> str:
        return f"<gpumem.Block of {self._size} bytes, " + ("freed>" if self._is_free else f"at {self._address:#x}>")

    def __del__(self, is_finalizing: Any = sys.is_finalizing) -> None:
        # Defaults and slots only: the module's names may be gone. A block of a parent process, or of an allocator
        # that was destroyed, is nothing to free.
        if is_finalizing() or getattr(self, "_is_free", True):
            return
        self._is_free = True
        self._allocator.forget_address(self._address, self._size, self._handle)
