"""The management library as the acceptance needs it: figures and states of devices, never a setting."""
import ctypes
import dataclasses
import pathlib
from collections.abc import Callable

NVML_SUCCESS = 0
NVML_ERROR_INSUFFICIENT_SIZE = 7
NOT_AVAILABLE = (1 << 64) - 1


class Unavailable(Exception):
    """There is no management library, or no device behind it."""


class Memory(ctypes.Structure):
    """nvmlMemory_t, in bytes."""
    _fields_ = [("total", ctypes.c_uint64), ("free", ctypes.c_uint64), ("used", ctypes.c_uint64)]


class ProcessInfo(ctypes.Structure):
    """nvmlProcessInfo_t as versions 2 and 3 of the call fill it."""
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_uint64), ("gpu_instance", ctypes.c_uint),
                ("compute_instance", ctypes.c_uint)]


@dataclasses.dataclass(frozen=True)
class User:
    """A process that the library names. `used` is None where the driver does not tell."""
    pid: int
    kind: str
    used: int | None


class Device:
    """One GPU. What this driver does not know or tell is None."""

    def __init__(self, library: ctypes.CDLL, handle: ctypes.c_void_p):
        self._library = library
        self._handle = handle
        self.uuid = self._text("nvmlDeviceGetUUID") or ""
        self.name = self._text("nvmlDeviceGetName") or ""

    def memory(self) -> Memory:
        """Raises Unavailable."""
        memory = Memory()
        if self._call("nvmlDeviceGetMemoryInfo", ctypes.byref(memory)) != NVML_SUCCESS:
            raise Unavailable(f"the memory of {self.uuid} is not told")
        return memory

    def persistence_mode(self) -> str | None:
        return self._choice("nvmlDeviceGetPersistenceMode", {0: "off", 1: "on"})

    def compute_mode(self) -> str | None:
        return self._choice("nvmlDeviceGetComputeMode",
                            {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"})

    def mig_mode(self) -> str | None:
        now, pending = ctypes.c_uint(), ctypes.c_uint()
        if self._call("nvmlDeviceGetMigMode", ctypes.byref(now), ctypes.byref(pending)) != NVML_SUCCESS:
            return None
        return "on" if now.value else "off"

    def processes(self) -> list[User]:
        """Everybody that the library names on this device."""
        users = []
        for kind in ("Compute", "Graphics", "MPSCompute"):
            for version in ("_v3", "_v2"):
                found = self._processes(f"nvmlDeviceGet{kind}RunningProcesses{version}")
                if found is not None:
                    users += [User(p.pid, kind.lower(), None if p.used == NOT_AVAILABLE else p.used) for p in found]
                    break
        return users

    def _processes(self, call: str) -> list[ProcessInfo] | None:
        room = 64
        while room <= 65536:
            infos = (ProcessInfo * room)()
            count = ctypes.c_uint(room)
            result = self._call(call, ctypes.byref(count), infos)
            if result == NVML_SUCCESS:
                return list(infos[: count.value])
            if result != NVML_ERROR_INSUFFICIENT_SIZE:
                return None
            room *= 4  # processes may start between two calls
        return None

    def _text(self, call: str) -> str | None:
        buffer = ctypes.create_string_buffer(256)
        done = self._call(call, buffer, ctypes.c_uint(len(buffer)))
        return buffer.value.decode() if done == NVML_SUCCESS else None

    def _choice(self, call: str, names: dict[int, str]) -> str | None:
        value = ctypes.c_uint()
        if self._call(call, ctypes.byref(value)) != NVML_SUCCESS:
            return None
        return names.get(value.value, str(value.value))

    def _call(self, name: str, *arguments: object) -> int | None:
        function: Callable[..., int] | None = getattr(self._library, name, None)
        return None if function is None else function(self._handle, *arguments)


class Nvml:
    """The library of `folder`, or the system's. While it is open, the driver keeps every GPU initialised."""

    def __init__(self, folder: str = ""):
        """Raises Unavailable."""
        path = str(pathlib.Path(folder, "libnvidia-ml.so.1")) if folder else "libnvidia-ml.so.1"
        try:
            self._library = ctypes.CDLL(path)
        except OSError as error:
            raise Unavailable(str(error)) from error
        started = self._library.nvmlInit_v2()
        if started != NVML_SUCCESS:
            self._library.nvmlErrorString.restype = ctypes.c_char_p
            raise Unavailable(f"nvmlInit: {self._library.nvmlErrorString(started).decode()}")
        self.devices = self._find_devices()
        if not self.devices:
            raise Unavailable("the management library sees no GPU")

    def __enter__(self) -> "Nvml":
        return self

    def __exit__(self, *_: object) -> None:
        self._library.nvmlShutdown()

    def _find_devices(self) -> list[Device]:
        count = ctypes.c_uint()
        if self._library.nvmlDeviceGetCount_v2(ctypes.byref(count)) != NVML_SUCCESS:
            return []
        devices = []
        for index in range(count.value):
            handle = ctypes.c_void_p()
            if self._library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(handle)) == NVML_SUCCESS:
                devices.append(Device(self._library, handle))
        return devices

    def device(self, uuid: str) -> Device:
        """Raises Unavailable."""
        for device in self.devices:
            if device.uuid == uuid:
                return device
        raise Unavailable(f"no GPU {uuid}")

    def driver_version(self) -> str | None:
        buffer = ctypes.create_string_buffer(96)
        done = self._library.nvmlSystemGetDriverVersion(buffer, ctypes.c_uint(len(buffer)))
        return buffer.value.decode() if done == NVML_SUCCESS else None

    def cuda_version(self) -> str | None:
        version = ctypes.c_int()
        if self._library.nvmlSystemGetCudaDriverVersion(ctypes.byref(version)) != NVML_SUCCESS:
            return None
        return f"{version.value // 1000}.{version.value % 1000 // 10}"
