"""A real Prometheus reads a real broker's metrics, and evaluates deploy/monitoring's alerts over them."""
import contextlib
import json
import os
import pathlib
import shutil
import sys
import tempfile

import scraped
from scraped import Api, Program, until

MIB = 1 << 20
PROMETHEUS = """\
global: {{scrape_interval: 1s, evaluation_interval: 1s, scrape_timeout: 1s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: gpumem
    file_sd_configs: [{{files: [{targets}], refresh_interval: 1s}}]
"""
CONFIG = """\
[broker]
reserve = "100%"
escalation = "end-session"
[metrics]
listen = "127.0.0.1:0"
[default]
limit = "64MiB"
"""


def start_broker(build: pathlib.Path, work: pathlib.Path) -> tuple[Program, str]:
    """A broker, and the address of its metrics."""
    log = work / "broker.log"
    before = log.stat().st_size if log.exists() else 0
    broker = Program([build / "daemon/gpumemd", "--simulate", "1x256MiB", "--runtime-dir", work / "run", "--config",
                      work / "gpumemd.toml"], log)
    address = until("the broker serves metrics", lambda: broker.said(r"metrics on http://(127\.0\.0\.1:\d+)/", before))
    until("the broker serves", lambda: broker.said("serving on", before))
    return broker, address[1]


def aim(targets: pathlib.Path, address: str) -> None:
    """Prometheus reads from `address`; whichever it is, it is one instance."""
    new = targets.with_suffix(".new")
    new.write_text(json.dumps([{"targets": [address], "labels": {"instance": "test"}}]))
    new.rename(targets)


def start_prometheus(programs: pathlib.Path, work: pathlib.Path) -> tuple[Program, Api]:
    rules = scraped.ROOT / "deploy/monitoring/gpumem.rules.yml"
    (work / "prometheus.yml").write_text(PROMETHEUS.format(rules=rules, targets=work / "targets.json"))
    prometheus = Program([programs / "prometheus", f"--config.file={work / 'prometheus.yml'}",
                          f"--storage.tsdb.path={work / 'data'}", "--web.listen-address=127.0.0.1:0"],
                         work / "prometheus.log", cwd=work)
    address = until("Prometheus serves", lambda: prometheus.said(r'"?Listening on"? address=(127\.0\.0\.1:\d+)'))
    return prometheus, Api(address[1])


def check_figures(api: Api, build: pathlib.Path, work: pathlib.Path) -> None:
    until("the target is up", lambda: api.value('up{job="gpumem"}') == 1)
    target = api.get("targets")["activeTargets"][0]
    assert target["lastError"] == "", target
    assert until("a pool", lambda: api.value("gpumem_device_pool_bytes")) == 256 * MIB
    environment = os.environ | {"GPUMEM_RUNTIME_DIR": str(work / "run")}
    # The program holds its memory until its input ends, which is at once, so only the counters show it afterwards.
    with Program([build / "client/examples/hold", "16MiB"], work / "hold.log", env=environment):
        until("what was granted", lambda: api.value("sum(gpumem_tenant_granted_bytes_total)") == 16 * MIB)
    until("what was freed", lambda: api.value("sum(gpumem_tenant_freed_bytes_total)") == 16 * MIB)
    assert api.value("sum(gpumem_tenant_grant_wait_seconds_count)") == 1
    assert api.value('sum(gpumem_tenant_grant_wait_seconds_bucket{le="+Inf"})') == 1
    assert api.value("gpumem_device_claim_wait_limit_seconds") == 7
    assert api.value("count(gpumem_broker_refusals_total)") == api.value("count(count by (bound) (gpumem_broker_refusals_total))")


def check_metadata(api: Api) -> None:
    known = api.get("targets/metadata", match_target='{job="gpumem"}')
    of = {one["metric"]: (one["type"], one["unit"]) for one in known}
    assert of["gpumem_device_pool_bytes"] == ("gauge", "bytes"), of
    assert of["gpumem_tenant_grant_wait_seconds"] == ("histogram", "seconds"), of
    assert of["gpumem_broker"][0] == "info", of


def alerts(api: Api) -> set[str]:
    return {one["labels"]["alertname"] for one in api.get("alerts")["alerts"]}


def check_rules(api: Api) -> None:
    def rules() -> list[dict]:
        groups = api.get("rules")["groups"]
        return [rule for group in groups for rule in group["rules"]]
    assert len(rules()) > 10
    until("every rule is evaluated", lambda: all(rule["health"] == "ok" for rule in rules()))
    assert alerts(api) == set(), alerts(api)


def run(given: scraped.Arguments, work: pathlib.Path, ends: contextlib.ExitStack) -> None:
    (work / "gpumemd.toml").write_text(CONFIG)
    broker, address = start_broker(given.build, work)
    with broker:
        aim(work / "targets.json", address)
        prometheus, api = start_prometheus(given.programs, work)
        ends.enter_context(prometheus)
        check_figures(api, given.build, work)
        check_metadata(api)
        check_rules(api)
    until("the broker is known to be down", lambda: "GpumemDown" in alerts(api))
    broker, address = start_broker(given.build, work)
    ends.enter_context(broker)
    aim(work / "targets.json", address)
    until("the restart is known", lambda: "GpumemRestarted" in alerts(api))
    until("the broker is known to be up", lambda: "GpumemDown" not in alerts(api))


def main() -> int:
    given = scraped.arguments("monitoring.prometheus")
    work = pathlib.Path(tempfile.mkdtemp(prefix="gpumem-"))
    try:
        with contextlib.ExitStack() as ends:
            run(given, work, ends)
    except AssertionError:
        for log in work.glob("*.log"):
            print(f"--- {log.name}:\n{log.read_text()}")
        raise
    finally:
        shutil.rmtree(work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
