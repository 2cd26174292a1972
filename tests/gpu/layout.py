"""Where the programs lie: in an unpacked bundle or in a build folder."""
import dataclasses
import pathlib

HERE = pathlib.Path(__file__).resolve().parent
# Program: where it may lie in a build folder.
IN_BUILD = {
    "gpumemd": ["daemon"],
    "gpumem": ["client/cli"],
    "gpumem-sim": ["sim"],
    "driver_contract": ["tests/contract/driver", "tests/contract"],
    "gpumem_bench": ["bench"],
    "gpumem_driver_calls": ["bench"],
    "gpumem_shim_bench": ["bench/shim"],
}


@dataclasses.dataclass(frozen=True)
class Layout:
    """The folder of a bundle (`is_bundle`) or of a build."""
    root: pathlib.Path
    is_bundle: bool

    def program(self, name: str) -> pathlib.Path:
        """Raises FileNotFoundError."""
        folders = ["bin"] if self.is_bundle else IN_BUILD[name]
        for folder in folders:
            path = self.root / folder / name
            if path.is_file():
                return path
        raise FileNotFoundError(f"no {name} in {self.root}; is it built?")

    def library(self) -> pathlib.Path:
        """libgpumem, as programs load it."""
        return self.root / ("lib" if self.is_bundle else "client") / "libgpumem.so.0"

    def shim(self) -> pathlib.Path:
        """The folder of the drop-in libcuda.so.1."""
        return self.root / ("lib/gpumem/shim" if self.is_bundle else "client/shim/lib")

    def differences(self) -> pathlib.Path:
        """The list of the tests of the driver contract that differ through the drop-in driver."""
        name = "contract_differences.txt"
        return HERE / name if self.is_bundle else HERE.parent / "shim_programs" / name

    def python_package(self) -> pathlib.Path:
        """The folder of the package `gpumem`, for PYTHONPATH."""
        return self.root / "share/gpumem/python" if self.is_bundle else HERE.parents[1] / "client/python/src"

    def examples(self) -> pathlib.Path:
        return self.root / "share/gpumem/examples" if self.is_bundle else HERE.parents[1] / "client/examples"

    def demo(self) -> list[str]:
        """The demo, and its words that say where the programs are."""
        if self.is_bundle:
            return [str(HERE.parent / "demo" / "demo.py"), "--prefix", str(self.root)]
        return [str(HERE.parents[1] / "client" / "demo" / "demo.py"), "--build", str(self.root)]
