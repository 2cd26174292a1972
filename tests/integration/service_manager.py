#!/usr/bin/env python3
"""Runs a broker as a service manager does: its sockets are passed, and what it tells is read.

Usage: service_manager.py GPUMEMD GPUMEM
"""
import fcntl
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile

PATIENCE = 60  # seconds: longer than any machine is slow


class ServiceManager:
    """Listens on the broker's sockets, and on one for what brokers tell."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.run = folder / "run"
        self.run.mkdir()
        self.log = folder / "log"
        self.config = folder / "gpumemd.toml"
        self.brokers: list[subprocess.Popen[bytes]] = []
        self.config.write_text("[broker]\nsocket_group = 54321\n")
        self.sockets = {"lane": self.listen("lane.sock", socket.SOCK_SEQPACKET),
                        "api": self.listen("api.sock", socket.SOCK_STREAM)}
        self.notified = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notified.bind(str(folder / "notify"))
        self.notified.settimeout(PATIENCE)

    def listen(self, name: str, kind: int) -> socket.socket:
        one = socket.socket(socket.AF_UNIX, kind)
        one.bind(str(self.run / name))
        one.listen()
        # Away from the numbers that it is passed as.
        return socket.socket(fileno=fcntl.fcntl(one.detach(), fcntl.F_DUPFD_CLOEXEC, 10))

    def start(self, program: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "LISTEN_FDS": "2", "LISTEN_FDNAMES": "api:lane", "WATCHDOG_USEC": "200000",
                       "NOTIFY_SOCKET": str(self.folder / "notify")}
        # A shell, so that the broker's process id is known before it runs.
        command = 'exec 3<&"$1" 4<&"$2"; shift 2; LISTEN_PID=$$ exec "$@"'
        passed = [self.sockets[name].fileno() for name in ("api", "lane")]
        broker = subprocess.Popen(["bash", "-c", command, "bash", *map(str, passed), program, "--simulate", "1x64MiB",
                                   "--runtime-dir", str(self.run), "--config", str(self.config)],
                                  env=environment, pass_fds=passed, stderr=self.log.open("ab"))
        self.brokers.append(broker)
        self.expect("READY=1")
        return broker

    def end(self) -> None:
        for broker in self.brokers:
            broker.kill()
            broker.wait()

    def told(self) -> str:
        return self.notified.recv(4096).decode()

    def expect(self, pattern: str) -> None:
        """Expects the first message since the last call that is no sign of life to match `pattern`."""
        said = self.told()
        while said.startswith("WATCHDOG=1"):
            said = self.told()
        assert re.fullmatch(pattern, said), f"{said!r} is not {pattern!r}"

    def expect_signs_of_life(self) -> None:
        for _ in range(3):
            said = self.told()
            assert re.fullmatch(r"WATCHDOG=1\nSTATUS=lends \S+ of 1 GPU; 0B charged, 0 requests wait", said), said


def stop(manager: ServiceManager, broker: subprocess.Popen[bytes]) -> None:
    broker.send_signal(signal.SIGTERM)
    manager.expect(r"STOPPING=1\nSTATUS=.*")
    assert broker.wait(PATIENCE) == 0


def is_cut(connection: socket.socket) -> bool:
    try:
        return connection.recv(4096) == b""
    except ConnectionResetError:  # what it had sent was not read
        return True


def try_out(manager: ServiceManager, program: str, command_line: str) -> None:
    status = [command_line, "--runtime-dir", str(manager.run), "status"]
    broker = manager.start(program)
    manager.expect_signs_of_life()
    subprocess.run(status, check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE)
    broker.send_signal(signal.SIGHUP)
    manager.expect(r"RELOADING=1\nMONOTONIC_USEC=\d+")
    manager.expect("READY=1")
    stop(manager, broker)
    # A connection between two brokers waits for the second one, which could not have the kernel refuse descriptors.
    early = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    early.connect(str(manager.run / "lane.sock"))
    early.settimeout(PATIENCE)
    socket.send_fds(early, [b"words"], [manager.notified.fileno()])
    broker = manager.start(program)
    assert is_cut(early), "the second broker closes what brings descriptors"
    subprocess.run(status, check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE)
    stop(manager, broker)
    log = manager.log.read_text()  # whole only now: a broker's log is asynchronous
    warned = re.findall("socket_group does not apply to .*/(lane|api).sock", log)
    assert warned == ["lane", "api"] * 2, warned
    assert "its message brings descriptors" in log, log


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="gpumem-") as folder:
        manager = ServiceManager(pathlib.Path(folder))
        try:
            try_out(manager, *sys.argv[1:])
        finally:
            manager.end()
    print("the broker serves on sockets that were passed, and tells how it is")
    return 0


if __name__ == "__main__":
    sys.exit(main())
