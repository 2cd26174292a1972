"""Alerts and dashboard use metrics and labels that docs/metrics.md has; every alert names its promise and has a test."""
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy/monitoring"
SUFFIXES = {"gauge": [""], "counter": ["_total"], "info": ["_info"], "histogram": ["_bucket", "_count", "_sum"]}
NAME = re.compile(r"\bgpumem_[a-z_]+\b")
SELECTOR = re.compile(r"\b(gpumem_[a-z_]+)\{([^}]*)\}")
LABEL = re.compile(r"([a-z_]+)\s*(?:=~|!~|!=|=)")
OF_PROMETHEUS = {"job", "instance", "le"}


def documented() -> dict[str, set[str]]:
    """The labels of each sample's name."""
    samples = {}
    for line in (ROOT / "docs/metrics.md").read_text().splitlines():
        row = re.match(r"\| `(gpumem_[a-z_]+)` \| ([a-z]+) \| [a-z]* ?\| ([^|]*)\|", line)
        if row:
            labels = set(re.findall(r"`([a-z_]+)`", row[3]))
            samples |= {row[1] + suffix: labels for suffix in SUFFIXES[row[2]]}
    return samples


def wrong_names(where: str, text: str, samples: dict[str, set[str]]) -> list[str]:
    wrong = [f"{where}: docs/metrics.md has no {name}" for name in set(NAME.findall(text)) - samples.keys()]
    for name, selector in SELECTOR.findall(text):
        unknown = set(LABEL.findall(re.sub(r'"[^"]*"', "", selector))) - samples.get(name, set()) - OF_PROMETHEUS
        wrong += [f"{where}: {name} has no label {label}" for label in unknown]
    return wrong


def expressions(dashboard: dict) -> list[str]:
    found = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    found += [variable["definition"] for variable in dashboard["templating"]["list"] if "definition" in variable]
    return found + [one["expr"] for one in dashboard["annotations"]["list"]]


def wrong_panels(dashboard: dict) -> list[str]:
    """Every panel asks the data source that is chosen, and has a place of its own."""
    wrong = []
    if not any(variable["type"] == "datasource" for variable in dashboard["templating"]["list"]):
        wrong.append("the dashboard lets nobody choose a data source")
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        if panel["type"] != "row" and panel["datasource"]["uid"] != "${datasource}":
            wrong.append(f"panel '{panel['title']}' has a data source of its own")
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        if cells & taken:
            wrong.append(f"panel '{panel['title']}' lies over another")
        taken |= cells
    if len({panel["id"] for panel in dashboard["panels"]}) != len(dashboard["panels"]):
        wrong.append("two panels have one id")
    return wrong


def wrong_alerts(rules: str, tests: str) -> list[str]:
    alerts = re.findall(r"- alert: (\w+)\n(.*?)(?=\n      - alert:|\Z)", rules, re.S)
    wrong = [] if len(alerts) > 10 else ["the alerts are not found any more"]
    for name, body in alerts:
        wrong += [f"{name} has no {key}" for key in ("promise", "summary", "description", "severity")
                  if not re.search(rf"\b{key}: ", body)]
        if not re.search(rf"alertname: {name}\n\s+exp_alerts:", tests):
            wrong.append(f"no test expects {name}")
    return wrong


def main() -> int:
    samples = documented()
    rules = (FOLDER / "gpumem.rules.yml").read_text()
    tests = (FOLDER / "gpumem.rules.test.yml").read_text()
    dashboard = json.loads((FOLDER / "gpumem.dashboard.json").read_text())
    wrong = [] if len(samples) > 40 else ["docs/metrics.md is not understood any more"]
    wrong += wrong_names("gpumem.rules.yml", rules, samples)
    wrong += wrong_names("gpumem.rules.test.yml", tests, samples)
    wrong += wrong_names("gpumem.dashboard.json", "\n".join(expressions(dashboard)), samples)
    wrong += wrong_panels(dashboard) + wrong_alerts(rules, tests)
    print("\n".join(wrong) or f"{len(samples)} samples, {len(expressions(dashboard))} expressions: all fit")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
