"""The alerts of deploy/monitoring, as promtool checks and tests them."""
import subprocess
import sys

import scraped

FOLDER = scraped.ROOT / "deploy/monitoring"


def main() -> int:
    programs = scraped.arguments("monitoring.rules").programs
    for words in (["check", "rules", "gpumem.rules.yml"], ["check", "config", "prometheus.yml"],
                  ["test", "rules", "gpumem.rules.test.yml"]):
        done = subprocess.run([programs / "promtool", *words], cwd=FOLDER, capture_output=True, text=True)
        print(done.stdout, done.stderr)
        if done.returncode != 0:
            print(f"promtool {' '.join(words)} failed")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
