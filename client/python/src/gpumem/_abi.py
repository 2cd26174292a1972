"""gpumem.h, version 0, for ctypes: the structs and the functions, in its order and by its names."""
from __future__ import annotations

import ctypes
from ctypes import POINTER, c_bool, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint8, c_uint64, c_void_p
from typing import Any, TypeVar

UNKNOWN_SIZE = 2**64 - 1
AT_ONCE = -1

Status = c_int  # an enum in C
Handle = c_void_p
Address = c_uint64
Stream = c_void_p


class Denial(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("reason", c_int), ("device", c_char_p), ("tenant", c_char_p),
                ("asked", c_uint64), ("asked_least", c_uint64), ("tenant_limit", c_uint64),
                ("tenant_guarantee", c_uint64), ("tenant_charged", c_uint64), ("pool", c_uint64), ("free", c_uint64),
                ("kept_for_others", c_uint64), ("charged_to_others", c_uint64), ("waiters_ahead", c_uint64),
                ("waited_ms", c_int64), ("wait_limit_ms", c_int64), ("limiting_tenant", c_char_p),
                ("limiting_limit", c_uint64), ("limiting_charged", c_uint64), ("returning", c_uint64),
                ("asked_back", c_uint64), ("soonest_ms", c_int64), ("soonest_why", c_char_p)]


class Holder(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("is_other_tenant", c_bool), ("session", c_uint64), ("pid", c_int64),
                ("command", c_char_p), ("charged", c_uint64), ("tenant", c_char_p)]


class SessionOptions(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("runtime_folder", c_char_p), ("label", c_char_p), ("timeout_ms", c_int64),
                ("no_job", c_bool)]


class Usage(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("device", c_char_p), ("pool", c_uint64), ("free", c_uint64),
                ("guarantee", c_uint64), ("limit", c_uint64), ("charged", c_uint64), ("available", c_uint64),
                ("pressure", c_uint64), ("pressure_deadline_ms", c_int64), ("pressure_deadline_ns", c_int64)]


class Pressure(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("device", c_char_p), ("bytes", c_uint64), ("deadline_ms", c_int64),
                ("deadline_ns", c_int64)]


class SliceOptions(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("device", c_char_p), ("limit", c_uint64), ("label", c_char_p),
                ("trim_on_pressure", c_bool), ("pinned", c_bool)]


class GrowOptions(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("wait_ms", c_int64), ("least", c_uint64), ("canceller", Handle)]


class GrowStep(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("slice", Handle), ("target", c_uint64), ("least", c_uint64),
                ("committed", c_uint64)]


class JobOptions(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("label", c_char_p), ("limit", c_uint64), ("limit_points", c_uint64),
                ("host_limit", c_uint64), ("host_limit_points", c_uint64)]


class JobAccount(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("peak", c_uint64), ("waited_ms", c_int64), ("denied", c_uint64)]


class IpcHandle(ctypes.Structure):
    _fields_ = [("bytes", c_uint8 * 64)]


class ExportOptions(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("life_ms", c_int64), ("uses", c_uint64)]


class PublishOptions(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("sharing", c_int), ("readers", POINTER(c_char_p)),
                ("reader_count", c_size_t), ("layout", c_uint64), ("digest", c_uint8 * 32), ("life_ms", c_int64),
                ("keep", c_bool), ("linger_ms", c_int64), ("sealed", c_bool)]


class RegionOptions(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("owner", c_char_p), ("version", c_uint64), ("writable", c_bool),
                ("adopt", c_bool), ("wait_ms", c_int64), ("canceller", Handle), ("device", c_char_p),
                ("access", POINTER(c_char_p)), ("access_count", c_size_t), ("newer_than", c_uint64),
                ("pinned", c_bool)]


class ReserveOptions(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("writable", c_bool), ("wait_ms", c_int64), ("life_ms", c_int64),
                ("canceller", Handle)]


class RemapOptions(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("newest", c_bool)]


class RegionInfo(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("version", c_uint64), ("layout", c_uint64), ("digest", c_uint8 * 32)]


class AllocatorOptions(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("device", c_char_p), ("limit", c_uint64), ("label", c_char_p),
                ("wait_ms", c_int64), ("idle_ms", c_int64), ("pageable", c_bool)]


class Placement(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("tag", c_uint8), ("room", c_uint64)]


class Statistics(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("in_use", c_uint64), ("placed", c_uint64), ("cached", c_uint64),
                ("committed", c_uint64), ("returnable", c_uint64), ("reserved", c_uint64), ("peak_in_use", c_uint64),
                ("peak_committed", c_uint64), ("fragmentation", c_double), ("allocations", c_uint64),
                ("cache_hits", c_uint64), ("growths", c_uint64), ("refused", c_uint64), ("moved_extents", c_uint64),
                ("given_back", c_uint64)]


class SizeClass(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("size", c_uint64), ("in_use", c_uint64), ("allocations", c_uint64),
                ("cache_hits", c_uint64)]


class Block(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("address", Address), ("bytes", c_uint64), ("placed", c_uint64),
                ("stream", Stream), ("age_ms", c_int64), ("tag", c_char_p)]


Release = ctypes.CFUNCTYPE(None, c_void_p)


class CupyStream(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("allocator", Handle), ("stream", Stream), ("owner", c_void_p),
                ("retain", Release), ("release", Release)]


class DlpackCalls(ctypes.Structure):
    _fields_ = [("fetch", c_void_p), ("restore", c_void_p), ("ensure", c_void_p), ("release", c_void_p), ("drop", Release),
                ("free", Release)]


HolderVisitor = ctypes.CFUNCTYPE(c_bool, POINTER(Holder), c_void_p)
UsageVisitor = ctypes.CFUNCTYPE(c_bool, POINTER(Usage), c_void_p)
PressureHandler = ctypes.CFUNCTYPE(c_uint64, POINTER(Pressure), c_void_p)
SizeClassVisitor = ctypes.CFUNCTYPE(c_bool, POINTER(SizeClass), c_void_p)
BlockVisitor = ctypes.CFUNCTYPE(c_bool, POINTER(Block), c_void_p)

# Name: what it answers, what it takes.
FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "gpumem_version": (c_char_p, []),
    "gpumem_status_name": (c_char_p, [c_int]),
    "gpumem_last_error": (c_char_p, []),
    "gpumem_last_denial": (c_bool, [POINTER(Denial)]),
    "gpumem_last_denial_holders": (None, [HolderVisitor, c_void_p]),
    "gpumem_session_connect": (Status, [POINTER(SessionOptions), POINTER(Handle)]),
    "gpumem_session_close": (Status, [Handle]),
    "gpumem_session_free": (None, [Handle]),
    "gpumem_session_ping": (Status, [Handle]),
    "gpumem_session_usage": (Status, [Handle, UsageVisitor, c_void_p]),
    "gpumem_session_charge": (Status, [Handle, c_char_p, c_uint64]),
    "gpumem_session_on_pressure": (Status, [Handle, PressureHandler, c_void_p]),
    "gpumem_session_on_pressure_owned": (Status, [Handle, PressureHandler, c_void_p, Release]),
    "gpumem_session_id": (c_uint64, [Handle]),
    "gpumem_session_tenant": (c_char_p, [Handle]),
    "gpumem_session_driver_folder": (c_char_p, [Handle]),
    "gpumem_session_job": (c_uint64, [Handle]),
    "gpumem_canceller_create": (Status, [POINTER(Handle)]),
    "gpumem_canceller_cancel": (Status, [Handle]),
    "gpumem_canceller_free": (None, [Handle]),
    "gpumem_slice_open": (Status, [Handle, POINTER(SliceOptions), POINTER(Handle)]),
    "gpumem_slice_grow": (Status, [Handle, c_uint64, POINTER(GrowOptions), POINTER(c_uint64)]),
    "gpumem_session_grow_all": (Status, [Handle, POINTER(GrowStep), c_size_t, POINTER(GrowOptions)]),
    "gpumem_slice_shrink": (Status, [Handle, c_uint64, POINTER(c_uint64)]),
    "gpumem_slice_release": (Status, [Handle, c_uint64, c_uint64, POINTER(c_uint64)]),
    "gpumem_slice_set_in_use": (Status, [Handle, c_uint64, POINTER(c_bool)]),
    "gpumem_slice_base": (Address, [Handle]),
    "gpumem_slice_limit": (c_uint64, [Handle]),
    "gpumem_slice_granularity": (c_uint64, [Handle]),
    "gpumem_slice_device": (c_char_p, [Handle]),
    "gpumem_slice_ordinal": (c_int, [Handle]),
    "gpumem_slice_committed": (c_uint64, [Handle]),
    "gpumem_slice_close": (Status, [Handle]),
    "gpumem_slice_free": (None, [Handle]),
    "gpumem_session_begin_job": (Status, [Handle, POINTER(JobOptions), POINTER(c_uint64)]),
    "gpumem_session_reserve_for_job": (Status, [Handle, c_char_p, c_uint64, POINTER(GrowOptions)]),
    "gpumem_session_job_account": (Status, [Handle, POINTER(JobAccount)]),
    "gpumem_slice_export": (Status, [Handle, c_uint64, c_uint64, POINTER(ExportOptions), POINTER(IpcHandle)]),
    "gpumem_import_handle": (Status, [Handle, POINTER(IpcHandle), POINTER(Handle)]),
    "gpumem_import_address": (Address, [Handle]),
    "gpumem_import_bytes": (c_uint64, [Handle]),
    "gpumem_import_device": (c_char_p, [Handle]),
    "gpumem_import_ordinal": (c_int, [Handle]),
    "gpumem_slice_publish": (Status, [Handle, c_char_p, c_uint64, c_uint64, POINTER(PublishOptions),
                                      POINTER(c_uint64)]),
    "gpumem_map_region": (Status, [Handle, c_char_p, POINTER(RegionOptions), POINTER(Handle)]),
    "gpumem_import_unmap": (Status, [Handle]),
    "gpumem_import_is_mapped": (c_bool, [Handle]),
    "gpumem_import_is_pinned": (c_bool, [Handle]),
    "gpumem_import_remap": (Status, [Handle, POINTER(RemapOptions)]),
    "gpumem_map_or_reserve": (Status, [Handle, c_char_p, POINTER(ReserveOptions), POINTER(Handle), POINTER(c_uint64)]),
    "gpumem_release_reservation": (Status, [Handle, c_uint64]),
    "gpumem_import_region": (Status, [Handle, POINTER(RegionInfo)]),
    "gpumem_remove_region": (Status, [Handle, c_char_p, c_uint64]),
    "gpumem_import_close": (Status, [Handle]),
    "gpumem_import_free": (None, [Handle]),
    "gpumem_allocator_open": (Status, [Handle, POINTER(AllocatorOptions), POINTER(Handle)]),
    "gpumem_allocate": (Status, [Handle, c_uint64, Stream, POINTER(Address)]),
    "gpumem_allocate_placed": (Status, [Handle, c_uint64, Stream, POINTER(Placement), POINTER(Address)]),
    "gpumem_allocator_export": (Status, [Handle, Address, c_uint64, c_uint64, POINTER(ExportOptions),
                                         POINTER(IpcHandle)]),
    "gpumem_deallocate": (Status, [Handle, Address, c_uint64, Stream]),
    "gpumem_extend": (Status, [Handle, Address, c_uint64, c_uint64, Stream]),
    "gpumem_record_stream": (Status, [Handle, Address, Stream]),
    "gpumem_release_stream": (Status, [Handle, Stream]),
    "gpumem_synchronize": (Status, [Handle, Stream]),
    "gpumem_tag": (Status, [Handle, c_char_p, POINTER(c_uint8)]),
    "gpumem_allocator_trim": (Status, [Handle, c_uint64, POINTER(c_uint64)]),
    "gpumem_allocator_statistics": (Status, [Handle, POINTER(Statistics)]),
    "gpumem_allocator_reset_peaks": (Status, [Handle]),
    "gpumem_allocator_size_classes": (Status, [Handle, SizeClassVisitor, c_void_p]),
    "gpumem_allocator_snapshot": (Status, [Handle, BlockVisitor, c_void_p]),
    "gpumem_allocator_limit": (c_uint64, [Handle]),
    "gpumem_allocator_granularity": (c_uint64, [Handle]),
    "gpumem_allocator_device": (c_char_p, [Handle]),
    "gpumem_allocator_ordinal": (c_int, [Handle]),
    "gpumem_allocator_close": (Status, [Handle]),
    "gpumem_allocator_destroy": (Status, [Handle]),
    "gpumem_allocator_free": (None, [Handle]),
    "gpumem_configure_default": (Status, [POINTER(SessionOptions), POINTER(AllocatorOptions)]),
    "gpumem_default_session": (Status, [POINTER(Handle)]),
    "gpumem_default_allocator": (Status, [c_int, POINTER(Handle)]),
    "gpumem_cupy_malloc": (c_void_p, [c_void_p, c_size_t, c_int]),
    "gpumem_cupy_free": (None, [c_void_p, c_void_p, c_int]),
    "gpumem_dlpack_configure": (None, [POINTER(DlpackCalls)]),
    "gpumem_dlpack_drop": (None, [c_void_p]),
    "gpumem_dlpack_free": (None, [c_void_p]),
}
# Throw C++ exceptions, which only C++ can catch: found by their addresses, never called from here.
NOT_CALLED: dict[str, tuple[Any, list[Any]]] = {
    "gpumem_torch_alloc": (c_void_p, [c_size_t, c_int, Stream]),
    "gpumem_torch_free": (None, [c_void_p, c_size_t, c_int, Stream]),
    "gpumem_torch_record_stream": (None, [c_void_p, Stream]),
    "gpumem_torch_reset": (None, []),
    "gpumem_torch_begin_allocate_to_pool": (None, [c_int, c_uint64, c_uint64, c_void_p]),
}

AnyStruct = TypeVar("AnyStruct", bound=ctypes.Structure)


def sized(struct: type[AnyStruct], **members: Any) -> AnyStruct:
    """As the struct's _INIT macro: its size, the given members, the rest zero."""
    return struct(struct_size=ctypes.sizeof(struct), **members)
