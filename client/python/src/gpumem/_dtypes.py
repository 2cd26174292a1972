"""The types of elements that arrays in a region may have: one name for each, and what other packages call it."""
from __future__ import annotations

import dataclasses

from .errors import InvalidArgument


@dataclasses.dataclass(frozen=True)
class Dtype:
    name: str  # as NumPy's and ml_dtypes'
    itemsize: int  # bytes
    dlpack: int  # DLDataTypeCode
    typestr: str | None  # of the array interfaces; None: they have none
    safetensors: str | None  # in a file's header; None: there is none

    @property
    def bits(self) -> int:
        return 8 * self.itemsize


_INT, _UINT, _FLOAT, _BFLOAT, _COMPLEX, _BOOL, _E4M3FN, _E5M2, _E8M0FNU = 0, 1, 2, 4, 5, 6, 10, 12, 14

DTYPES: dict[str, Dtype] = {one.name: one for one in (
    Dtype("bool", 1, _BOOL, "|b1", "BOOL"),
    Dtype("int8", 1, _INT, "|i1", "I8"),
    Dtype("int16", 2, _INT, "<i2", "I16"),
    Dtype("int32", 4, _INT, "<i4", "I32"),
    Dtype("int64", 8, _INT, "<i8", "I64"),
    Dtype("uint8", 1, _UINT, "|u1", "U8"),
    Dtype("uint16", 2, _UINT, "<u2", "U16"),
    Dtype("uint32", 4, _UINT, "<u4", "U32"),
    Dtype("uint64", 8, _UINT, "<u8", "U64"),
    Dtype("float16", 2, _FLOAT, "<f2", "F16"),
    Dtype("float32", 4, _FLOAT, "<f4", "F32"),
    Dtype("float64", 8, _FLOAT, "<f8", "F64"),
    Dtype("bfloat16", 2, _BFLOAT, None, "BF16"),
    Dtype("float8_e4m3fn", 1, _E4M3FN, None, "F8_E4M3"),
    Dtype("float8_e5m2", 1, _E5M2, None, "F8_E5M2"),
    Dtype("float8_e8m0fnu", 1, _E8M0FNU, None, "F8_E8M0"),
    Dtype("complex64", 8, _COMPLEX, "<c8", "C64"),
    Dtype("complex128", 16, _COMPLEX, "<c16", None),
)}
_BY_TYPESTR = {one.typestr: one for one in DTYPES.values() if one.typestr}
_BY_DLPACK = {(one.dlpack, one.bits): one for one in DTYPES.values()}


def dtype_of(name: object) -> Dtype:
    """By its name. Raises InvalidArgument."""
    found = DTYPES.get(name) if isinstance(name, str) else None
    if found is None:
        raise InvalidArgument(f"no type of elements is called {str(name)[:40]!r}; there are {', '.join(DTYPES)}")
    return found


def dtype_of_typestr(typestr: str) -> Dtype:
    """By the array interfaces' name of it. Raises InvalidArgument."""
    found = _BY_TYPESTR.get(typestr) or _BY_TYPESTR.get("|" + typestr[1:])
    if found is None:
        raise InvalidArgument(f"elements of the type {typestr[:40]!r} cannot be published (big-endian ones cannot, either)")
    return found


def dtype_of_dlpack(code: int, bits: int, lanes: int) -> Dtype:
    """By DLPack's. Raises InvalidArgument."""
    found = _BY_DLPACK.get((code, bits)) if lanes == 1 else None
    if found is None:
        raise InvalidArgument(f"elements of DLPack's type {code}, {bits} bits, {lanes} lanes, cannot be published")
    return found
