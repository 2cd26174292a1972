"""The broker by clients that are not ours: Python's grpcio with code generated from proto/, and grpcurl, which reads
proto/ itself. GRPC_PYTHON is the Python of the first, GRPCURL the second."""
import json
import os
import pathlib
import subprocess

import pytest

from brokered import broker, eventually, kept  # noqa: F401, fixtures

HERE = pathlib.Path(__file__).parents[1]
PROTO = HERE.parents[1] / "proto"
PYTHON = os.environ["GRPC_PYTHON"]
GRPCURL = pathlib.Path(os.environ["GRPCURL"])
MIB = 1 << 20


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    """A folder with the Python code of the broker's gRPC interface."""
    folder = tmp_path_factory.mktemp("generated")
    files = sorted(path.relative_to(PROTO) for path in PROTO.glob("gpumem/v1/*.proto"))
    subprocess.run([PYTHON, "-m", "grpc_tools.protoc", f"-I{PROTO}", f"--python_out={folder}",
                    f"--grpc_python_out={folder}", *files], check=True)
    return folder


@pytest.fixture
def start(generated, broker):
    """start(STEP): program.py, without anything of gpumem but the generated code."""

    def start(step: str) -> subprocess.Popen:
        return subprocess.Popen([PYTHON, HERE / "grpc_session/program.py", f"{broker.runtime}/api.sock", step],
                                env={**os.environ, "PYTHONPATH": str(generated)}, stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, text=True)

    return start


def test_grpcio_has_a_session_from_its_opening_to_its_end(start, broker):
    with start("whole") as program:
        said, _ = program.communicate()
    assert program.returncode == 0
    assert json.loads(said) == {
        "granted": 6 * MIB, "refused": 8, "asked": 128 * MIB, "charged": [6 * MIB],
        "listed": [["foreign", program.pid, 1]], "tenant": True, "returned": True, "closed": True}
    eventually(broker.at_rest, "a broker at rest")


def test_what_a_killed_client_held_is_free_again(start, broker):
    with start("held") as program:
        assert program.stdout.readline() == "held\n"
        assert broker.lent() == 32 * MIB
        program.kill()
    eventually(broker.at_rest, "a broker at rest")


@pytest.fixture
def grpcurl(broker):
    """grpcurl(ARGUMENT..., said=REQUESTS): what it answers, message by message."""
    if not GRPCURL.exists():
        pytest.skip("grpcurl is not built: .cache/grpcurl/set-up.txt says why")

    def grpcurl(*arguments: str, said: str = "") -> str:
        words = [GRPCURL, "-plaintext", "-unix", "-max-time", "60", "-emit-defaults",
                 "-import-path", PROTO, "-proto", "gpumem/v1/broker.proto"]
        named = [f"{broker.runtime}/api.sock", *arguments]
        options = ["-d", "@"] if said else []
        return subprocess.run([*words, *options, *named], input=said, check=True, stdout=subprocess.PIPE, text=True).stdout

    return grpcurl


def messages(text: str) -> list:
    """The JSON objects that follow each other in `text`."""
    decoder, found = json.JSONDecoder(), []
    while text := text.strip():
        one, end = decoder.raw_decode(text)
        found.append(one)
        text = text[end:]
    return found


# The requests are written at once. A slice's number is found in a session before: the next one has the next.
def test_grpcurl_has_a_session(grpcurl, broker):
    device = broker.devices()[0]["uuid"]
    opening = [{"id": 1, "open": {"label": "curl"}}, {"id": 2, "open_slice": {"device": device}}]

    def session(*requests: dict) -> dict:
        said = "\n".join(json.dumps(one) for one in [*opening, *requests])
        return {int(one["id"]): one for one in messages(grpcurl("gpumem.v1.Broker/Session", said=said))}

    slice = int(session()[2]["sliceOpened"]["slice"]) + 1
    grow = {"id": 3, "grow": {"parts": [{"slice": slice, "bytes": 2 * MIB}]}}
    answers = session(grow, {"id": 4, "ping": {}}, {"id": 5, "describe": {}})
    assert int(answers[2]["sliceOpened"]["slice"]) == slice
    assert [int(lease["size"]) for lease in answers[3]["granted"]["leases"]] == [2 * MIB], answers[3]
    lease = int(answers[3]["granted"]["leases"][0]["id"])
    assert "done" in answers[4]
    assert int(answers[5]["described"]["slices"][0]["charged"]) == 2 * MIB
    back = {"id": 4, "give_back": {"slice": slice + 1, "leases": [lease + 1]}}
    again = session({"id": 3, "grow": {"parts": [{"slice": slice + 1, "bytes": 2 * MIB}]}}, back)
    assert "done" in again[4], again


def test_grpcurl_lists(grpcurl, broker):
    status = messages(grpcurl("gpumem.v1.Monitor/GetStatus"))[0]
    assert [one["uuid"] for one in status["devices"]] == [one["uuid"] for one in broker.devices()]
    assert messages(grpcurl("gpumem.v1.Monitor/ListSessions"))[0]["sessions"] == []
