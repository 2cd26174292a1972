"""Reads the declarations of NVIDIA's headers, for the generators beside this file."""
import re
import subprocess
from typing import NamedTuple

SIZES = ("bytesize", "ByteCount", "size")


class Call(NamedTuple):
    name: str
    parameters: list[str]  # as declared: "CUdeviceptr *dptr"

    @property
    def arguments(self) -> list[str]:
        return [re.search(r"(\w+)(\[\d*\])?$", parameter).group(1) for parameter in self.parameters]

    @property
    def signature(self) -> str:
        return f"{self.name}({', '.join(self.parameters)})"

    @property
    def size(self) -> str:
        """The expression for the bytes that the call is about; 0 where it has none by value."""
        for parameter, argument in zip(self.parameters, self.arguments):
            if argument in SIZES and "*" not in parameter:
                return argument
        element = re.match(r"cuMemsetD(8|16|32)", self.name)
        return f"N * {int(element[1]) // 8}" if element and "N" in self.arguments else "0"


def preprocessed(compiler: str, includes: list[str], source: str) -> str:
    """`source` as the preprocessor leaves it, on one line."""
    folders = [f"-I{folder}" for folder in includes]
    text = subprocess.run([compiler, "-xc++", "-E", "-P", *folders, "-"], input=source, check=True,
                          capture_output=True, text=True).stdout
    return re.sub(r"\s+", " ", text)


def declared_calls(compiler: str, includes: list[str], source: str, result: str, prefix: str) -> list[Call]:
    """The functions that `source` declares with this result and names that begin so, by name."""
    text = preprocessed(compiler, includes, source)
    calls = {}
    for name, inside in re.findall(rf"\b{result} ({prefix}[A-Z]\w*) ?\(([^;{{}}]*?)\) ?;", text):
        parameters = [p.strip() for p in inside.split(",")]
        calls[name] = Call(name, [] if parameters in ([""], ["void"]) else parameters)
    return sorted(calls.values())


def names_and_stubs(calls: list[Call], exported: list[Call], result: str, refusal: str) -> list[str]:
    """The lines that name the exported calls in the gate's order and give every api::NAME a weak refusal."""
    lines = ['#pragma GCC diagnostic ignored "-Wunused-parameter"', "using namespace gpumem::sim;",
             "namespace gpumem::sim {", "const char* const kCallNames[] = {"]
    lines += [f'    "{call.name}",' for call in exported]
    lines += ["    nullptr};", "namespace api {"]
    lines += [f'[[gnu::weak]] {result} {call.signature} {{ say_not_simulated("{call.name}"); return {refusal}; }}'
              for call in calls]
    return lines + ["}  // namespace api", "}  // namespace gpumem::sim"]


def entry(index: int, call: Call, result: str, base: str, scope: str = "") -> str:
    """The exported function: through the gate to api::BASE."""
    return (f"{result} {call.signature} {{ {scope}const Gate gate({index}, {call.size}); "
            f"if (gate.is_closed()) return static_cast<{result}>(gate.result()); "
            f"return api::{base}({', '.join(call.arguments)}); }}")
