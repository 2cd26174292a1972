"""The broker's own use of the device: nothing besides its pool."""
import time

from broker import Broker
from nvml import Device, Nvml
from session import GIB, MIB, Outcome, Session, amount, table

NAME = "footprint"
TITLE = "The broker's own memory"
REQUIRED = True
LIMIT = 45
# A context costs 100 MiB and more; a driver that starts may keep a little for itself.
NOISE = 32 * MIB
PATIENCE_SECONDS = 5


def settled(device: Device, wanted: int) -> int:
    """Bytes in use once they are down to `wanted`, or after a while."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (used := device.memory().used) > wanted and time.monotonic() < deadline:
        time.sleep(0.05)
    return used


def measure(session: Session, device: Device, pool: int) -> dict:
    before, users_before = device.memory().used, {u.pid for u in device.processes()}
    with Broker(session, pool) as broker:
        during = device.memory().used
        named = [u for u in device.processes() if u.pid == broker.pid]
        strangers = [u.pid for u in device.processes() if u.pid not in users_before and u.pid != broker.pid]
        pool = broker.pool()
    after = settled(device, before)
    return {"pool": pool, "own": during - before - pool, "left_behind": after - before, "named": bool(named),
            "attributed": sum(u.used or 0 for u in named), "new_users": strangers}


def run(session: Session) -> Outcome:
    device = Nvml(session.driver_folder).device(session.device)
    sizes = sorted({min(256 * MIB, session.lendable), min(8 * GIB, session.lendable)})
    found = [measure(session, device, size) for size in sizes]
    outcome = Outcome(data={"brokers": found})
    outcome.tables.append(table(
        "A broker that lends to nobody", ["pool", "beyond it", "left behind at its end", "named by NVML", "attributed to it"],
        [[amount(f["pool"]), amount(f["own"]), amount(f["left_behind"]), "yes" if f["named"] else "no",
          amount(f["attributed"])] for f in found]))
    for broker in found:
        if abs(broker["own"]) > NOISE:
            outcome.fail(f"with a pool of {amount(broker['pool'])} the device has {amount(broker['own'])} more in use")
        if broker["left_behind"] > NOISE:
            outcome.fail(f"{amount(broker['left_behind'])} are in use after the broker's end")
        if broker["named"]:
            outcome.fail(f"NVML names gpumemd, with {amount(broker['attributed'])}")
    if any(broker["named"] for broker in found):
        outcome.differs("NVML's list of processes", "does not name gpumemd, which has no context",
                        f"names it, with {amount(found[-1]['attributed'])}")
    return outcome
