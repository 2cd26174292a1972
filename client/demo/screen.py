"""The demo's output: lines, and a bar for each tenant."""
import sys


def size(count: int) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.4g} {unit}"
        count /= 1024
    return ""


class Screen:
    """Bars are redrawn in place on a terminal, and printed after each act elsewhere."""

    WIDTH = 44

    def __init__(self, broker):
        self.broker = broker
        self.live = sys.stdout.isatty()
        self.drawn = 0

    def say(self, text: str) -> None:
        self.wipe()
        print(text, flush=True)
        self.refresh()

    def refresh(self) -> None:
        """The bars as they are now, where they can be redrawn in place."""
        if self.live:
            self.bars()

    def quote(self, text: str) -> None:
        self.wipe()
        print(f"   \"{text}\"", flush=True)

    def plain(self, text: str) -> None:
        self.wipe()
        print(f"   {text}", flush=True)

    def wipe(self) -> None:
        if self.live and self.drawn:
            print(f"\033[{self.drawn}A\033[J", end="")
        self.drawn = 0

    def bars(self) -> None:
        self.wipe()
        pool = self.broker.status()["pool"]
        lines = []
        for tenant in self.broker.tenants():
            if tenant["device"] == self.broker.device:
                lines.append("   " + self.bar(tenant, pool))
        print("\n".join(lines), flush=True)
        self.drawn = len(lines)

    def bar(self, tenant: dict, pool: int) -> str:
        """Charged as blocks, the guarantee as '|', what lies past the limit as blanks; the pool is the width."""
        def cells(count: int) -> int:
            return min(self.WIDTH, round(count / pool * self.WIDTH))
        used, limit, promised = (cells(tenant[key]) for key in ("charged", "limit", "guarantee"))
        row = ["█" if i < used else "·" if i < limit else " " for i in range(self.WIDTH)]
        if 0 < promised < self.WIDTH and promised >= used:
            row[promised] = "|"
        waiting = f", {tenant['waiting']} waiting" if tenant["waiting"] else ""
        return (f"{tenant['tenant']:6} [{''.join(row)}] {size(tenant['charged'])} of {size(tenant['limit'])}"
                f" (guarantee {size(tenant['guarantee'])}){waiting}")
