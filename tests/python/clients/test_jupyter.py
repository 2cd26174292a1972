"""A Jupyter kernel that borrows, installed by the commands of docs/run.md and started by jupyter_client: it computes on
its slice, is interrupted, restarts, and leaves no session behind."""
import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import types

import pytest
from jupyter_client.manager import KernelManager

from brokered import eventually

MIB = 1 << 20
PATIENCE = 120
BUILD = pathlib.Path(os.environ["GPUMEM_BUILD"])
PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs/run.md"
COMPUTE = f"""
import sys
sys.path.insert(0, {str(pathlib.Path(__file__).parents[1])!r})
from bindings import MIB, cu, ok, read, use
use(0)
here = ok(cu.cuMemAlloc(64 * MIB))
ok(cu.cuMemsetD8(here, 7, 64 * MIB))
assert read(int(here) + 64 * MIB - 3, 3) == bytes([7] * 3)
print(ok(cu.cuMemGetInfo())[1] // MIB)
"""


def block_of_the_page(language: str) -> str:
    section = PAGE.read_text().split("## In a notebook")[1]
    text = re.search(rf"```{language}\n(.*?)```", section, re.S)[1]
    assert text.count("8GiB") == 1, "the limit"
    return re.sub(r"^\$ ", "", text.replace("8GiB", "256MiB"), flags=re.M)  # the simulated device is smaller


@pytest.fixture
def manager(tmp_path, monkeypatch):
    for name, value in {"HOME": tmp_path, "JUPYTER_RUNTIME_DIR": tmp_path / "run", "IPYTHONDIR": tmp_path,
                        "JUPYTER_CONFIG_DIR": tmp_path / "config"}.items():
        monkeypatch.setenv(name, str(value))
    active = {**os.environ, "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-ec", block_of_the_page("")], env=active, check=True)
    # The kernel's own environment is active nowhere.
    monkeypatch.setenv("PATH", f"{BUILD / 'client/cli'}:/usr/bin:/bin")
    started = KernelManager(kernel_name="gpumem")
    started.start_kernel()
    yield started
    started.shutdown_kernel(now=True)


@contextlib.contextmanager
def client_of(manager):
    client = manager.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=PATIENCE)
        yield client
    finally:
        client.stop_channels()


def run(client, code: str) -> str:
    """What the code prints. It must end well."""
    said = []
    reply = client.execute_interactive(code, timeout=PATIENCE, store_history=False,
                                       output_hook=lambda message: said.append(message["content"].get("text", "")))
    assert reply["content"]["status"] == "ok", reply["content"]
    return "".join(said)


def sessions() -> list[dict]:
    listed = subprocess.run([BUILD / "client/cli/gpumem", "ps", "--json"], capture_output=True, text=True, check=True)
    return [one for one in json.loads(listed.stdout)["sessions"] if one["label"] == "notebook"]


def await_sessions(count: int) -> None:
    eventually(lambda: len(sessions()) == count, f"{count} notebooks")


def test_it_computes_is_interrupted_and_restarts(manager):
    with client_of(manager) as client:
        assert run(client, COMPUTE) == "256\n"
        await_sessions(1)
        client.execute("print('begun', flush=True)\nwhile True: pass", store_history=False, stop_on_error=False)
        said = ""
        while "begun" not in said:
            said += client.get_iopub_msg(timeout=PATIENCE)["content"].get("text", "")
        manager.interrupt_kernel()
        reply = client.get_shell_msg(timeout=PATIENCE)["content"]
        assert (reply["status"], reply["ename"]) == ("error", "KeyboardInterrupt")
        assert run(client, "print(read(here, 1)[0])") == "7\n", "its memory is as it was"
    manager.restart_kernel()
    await_sessions(0)
    with client_of(manager) as client:
        assert run(client, COMPUTE) == "256\n"
    manager.shutdown_kernel()
    await_sessions(0)


def test_the_server_that_a_hub_starts_sees_its_limit(tmp_path):
    configuration = types.SimpleNamespace(Spawner=types.SimpleNamespace())
    exec(block_of_the_page("python"), {"c": configuration})  # pylint: disable=exec-used
    server = tmp_path / "jupyterhub-singleuser"
    server.write_text(f"#!{sys.executable}\n{COMPUTE}")
    server.chmod(0o755)
    path = f"{tmp_path}:{BUILD / 'client/cli'}:{os.environ['PATH']}"
    done = subprocess.run(configuration.Spawner.cmd, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=True)
    assert done.stdout == "256\n", done.stderr
