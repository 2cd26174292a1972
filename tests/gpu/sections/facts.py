"""The machine, and the programs that use its GPU."""
import datetime
import os
import pathlib
import platform
import subprocess
from typing import Any

from nvml import Device, Nvml
from session import Outcome, Session, amount, table

NAME = "facts"
TITLE = "The machine"
REQUIRED = True
LIMIT = 20
NOT_TOLD = "not told"


def command_of(pid: int) -> str:
    """The name of a process, if it is one of this PID namespace."""
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "not in this PID namespace"


def processor() -> str:
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return NOT_TOLD


def describe(device: Device, chosen: str) -> dict[str, Any]:
    memory = device.memory()
    return {"uuid": device.uuid, "name": device.name, "chosen": device.uuid == chosen, "total": memory.total,
            "used": memory.used, "free": memory.free, "persistence_mode": device.persistence_mode(),
            "mig_mode": device.mig_mode(), "compute_mode": device.compute_mode(),
            "users": [{"pid": u.pid, "kind": u.kind, "used": u.used, "command": command_of(u.pid)}
                      for u in device.processes()]}


def run(session: Session) -> Outcome:
    nvml = Nvml(session.driver_folder)
    devices = [describe(device, session.device) for device in nvml.devices]
    version = subprocess.run([session.layout.program("gpumemd"), "--version"], capture_output=True, text=True, check=True)
    machine = {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "gpumem": version.stdout.strip(),
        "programs": "bundle" if session.is_bundle else "build folder",
        "driver": nvml.driver_version() or NOT_TOLD,
        "cuda": nvml.cuda_version() or NOT_TOLD,
        "kernel": platform.release(),
        "glibc": os.confstr("CS_GNU_LIBC_VERSION") or NOT_TOLD,
        "processor": processor(),
        "processors": os.cpu_count(),
        "user": "root" if os.geteuid() == 0 else str(os.geteuid()),
        "budget": session.budget,
    }
    outcome = Outcome(data={"machine": machine, "devices": devices})
    shown = machine | {"budget": f"{amount(session.budget)} of the chosen GPU"}
    outcome.tables.append(table("Facts", ["fact", "value"], [[name, value] for name, value in shown.items()]))
    outcome.tables.append(table(
        "GPUs", ["GPU", "UUID", "memory", "used before", "persistence", "MIG", "compute mode", "chosen"],
        [[d["name"], d["uuid"], amount(d["total"]), amount(d["used"]), d["persistence_mode"] or NOT_TOLD,
          d["mig_mode"] or NOT_TOLD, d["compute_mode"] or NOT_TOLD, "yes" if d["chosen"] else ""] for d in devices]))
    users = [[d["uuid"], u["pid"], u["command"], u["kind"], NOT_TOLD if u["used"] is None else amount(u["used"])]
             for d in devices for u in d["users"]]
    outcome.tables.append(table("Who else uses the GPUs", ["GPU", "pid", "command", "kind", "memory"], users))
    chosen = next(d for d in devices if d["chosen"])
    if chosen["persistence_mode"] == "off":
        outcome.differs("persistence mode", "on: the driver stays up between processes", "off; it is left as it is")
    if chosen["compute_mode"] not in (None, "default"):
        outcome.differs("compute mode", "default: any number of processes", f"{chosen['compute_mode']}; it is left as it is")
    if chosen["mig_mode"] == "on":
        outcome.differs("MIG mode", "off", "on: figures of a part are held against those of the whole GPU")
    return outcome
