"""The package's ctypes declarations against gpumem.h: every struct, every function, every type."""
import ctypes
import pathlib
import re

import pytest
from gpumem import _abi, _version
from gpumem.errors import Code

ROOT = pathlib.Path(__file__).resolve().parents[3]
HEADER = re.sub(r"/\*.*?\*/", " ", (ROOT / "include/gpumem.h").read_text(), flags=re.S)
STRUCTS = {"session_options": _abi.SessionOptions, "usage": _abi.Usage, "pressure": _abi.Pressure,
           "slice_options": _abi.SliceOptions, "grow_options": _abi.GrowOptions,
           "allocator_options": _abi.AllocatorOptions, "placement": _abi.Placement, "statistics": _abi.Statistics,
           "size_class": _abi.SizeClass, "block": _abi.Block, "denial": _abi.Denial, "holder": _abi.Holder,
           "grow_step": _abi.GrowStep, "job_options": _abi.JobOptions, "job_account": _abi.JobAccount,
           "ipc_handle": _abi.IpcHandle, "export_options": _abi.ExportOptions,
           "publish_options": _abi.PublishOptions, "region_options": _abi.RegionOptions, "region_info": _abi.RegionInfo,
           "reserve_options": _abi.ReserveOptions, "remap_options": _abi.RemapOptions, "cupy_stream": _abi.CupyStream,
           "dlpack_calls": _abi.DlpackCalls}
CALLBACKS = {"usage_visitor": _abi.UsageVisitor, "pressure_handler": _abi.PressureHandler,
             "size_class_visitor": _abi.SizeClassVisitor, "block_visitor": _abi.BlockVisitor,
             "holder_visitor": _abi.HolderVisitor, "release": _abi.Release}
HANDLES = ("session", "slice", "import", "allocator", "canceller")
PLAIN = {"void": None, "bool": ctypes.c_bool, "int": ctypes.c_int, "double": ctypes.c_double,
         "uint8_t": ctypes.c_uint8, "int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64, "size_t": ctypes.c_size_t,
         "char*": ctypes.c_char_p, "void*": ctypes.c_void_p, "gpumem_status": ctypes.c_int,
         "gpumem_sharing": ctypes.c_int, "char**": ctypes.POINTER(ctypes.c_char_p),
         "gpumem_address": ctypes.c_uint64, "gpumem_stream": ctypes.c_void_p}


def plain(kind: str, stars: str):
    """A C type as ctypes: `uint64_t` and ``, `gpumem_usage` and `*`."""
    if kind + stars in PLAIN:
        return PLAIN[kind + stars]
    name = kind.removeprefix("gpumem_")
    if name in CALLBACKS:
        return CALLBACKS[name]
    if name in HANDLES:
        return ctypes.POINTER(ctypes.c_void_p) if stars == "**" else ctypes.c_void_p
    return ctypes.POINTER(STRUCTS.get(name) or PLAIN[kind])


def declared(text: str):
    """The type of `const gpumem_usage* usage`."""
    kind, stars, _ = re.fullmatch(r"(\w+) ?(\**) ?(\w+)", " ".join(re.sub(r"\bconst\b", "", text).split()).replace("* *", "**")).groups()
    return plain(kind, stars)


def member(text: str) -> tuple:
    """Name and type of a struct's `uint64_t uses`, or `unsigned char bytes[64]`."""
    if array := re.fullmatch(r"unsigned char (\w+)\[(\d+)\]", text):
        return array.group(1), ctypes.c_uint8 * int(array.group(2))
    return re.search(r"(\w+)$", text).group(1), declared(text)


def parameters(text: str) -> list:
    return [] if text.strip() == "void" else [declared(part) for part in text.split(",")]


def functions() -> dict:
    found = re.findall(r"^(?:const )?(\w+)(\*?) (gpumem_\w+)\(([^)]*)\)(?: GPUMEM_NOEXCEPT)?;", HEADER, flags=re.M)
    return {name: (plain(kind, star), parameters(takes)) for kind, star, name, takes in found}


def test_the_header_is_read():
    assert len(functions()) > 40
    assert len(re.findall(r"\bgpumem_\w+\(", HEADER)) == len(functions()), "a declaration that this test does not see"


def test_every_function_is_declared_as_in_the_header():
    assert {**_abi.FUNCTIONS, **_abi.NOT_CALLED} == functions()


@pytest.mark.parametrize("name", STRUCTS)
def test_every_struct_is_declared_as_in_the_header(name):
    body = re.search(rf"typedef struct gpumem_{name} \{{(.*?)\}} gpumem_{name};", HEADER, flags=re.S).group(1)
    there = [member(" ".join(text.split())) for text in body.split(";") if text.strip()]
    assert [tuple(field) for field in STRUCTS[name]._fields_] == there


def test_no_struct_is_left_out():
    assert set(re.findall(r"typedef struct gpumem_(\w+) \{", HEADER)) == set(STRUCTS)


@pytest.mark.parametrize("name", CALLBACKS)
def test_every_callback_is_declared_as_in_the_header(name):
    answer, takes = re.search(rf"typedef (\w+) \(\*gpumem_{name}\)\(([^)]*)\);", HEADER).groups()
    assert CALLBACKS[name]._restype_ is PLAIN[answer]
    assert list(CALLBACKS[name]._argtypes_) == parameters(takes)


def test_the_codes_are_those_of_the_header():
    statuses = re.search(r"typedef enum gpumem_status \{(.*?)\}", HEADER, flags=re.S).group(1)
    assert {code.name: code.value for code in Code} == \
        {name: int(value) for name, value in re.findall(r"GPUMEM_(\w+) = (\d+)", statuses)}


def test_the_package_has_the_projects_version():
    assert f"project(gpumem VERSION {_version.__version__} " in (ROOT / "CMakeLists.txt").read_text()
    assert re.search(r"#define GPUMEM_ABI (\d+)", HEADER).group(1) == "0"


# These look at no device.
@pytest.fixture
def kept():
    pass


