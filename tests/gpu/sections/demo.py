"""The demo: three tenants, four clients, a burst, a kill."""
import os
import subprocess

from session import Outcome, Session, table

NAME = "demo"
TITLE = "The demo"
REQUIRED = True
LIMIT = 90


def run(session: Session) -> Outcome:
    if os.geteuid() != 0:
        return Outcome("skipped", "the demo runs programs of three users, which needs root")
    simulated = ["--simulate", "1x8GiB" if session.short else "2x24GiB"] if session.simulated else []
    command = [*session.python, *session.layout.demo(), *simulated]
    environment = session.environment()
    if session.simulated:
        del environment["CUDA_VISIBLE_DEVICES"], environment["GPUMEM_DRIVER_DIR"]  # it makes a machine of its own
    else:
        command += ["--real", "--reserve", str(session.lendable)]
    shown = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, timeout=session.limit - 3)
    summary = shown.stdout.partition("What was shown:")[2]
    results = [line.split(maxsplit=1) for line in summary.splitlines() if line.startswith("  ")]
    outcome = Outcome(data={"output": shown.stdout.splitlines(), "shown": [{"held": r[0] == "ok", "what": r[1]} for r in results]})
    outcome.tables.append(table("What was shown", ["", "what"], results))
    if shown.returncode or not results:
        wrong = [r[1] for r in results if r[0] != "ok"]
        outcome.fail(f"status {shown.returncode}: {'; '.join(wrong) or 'it did not come to its end'}")
    return outcome
