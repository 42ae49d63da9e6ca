"""`make audit`: requirements.lock against the advisories of the Python Packaging Authority, by pip-audit.

Ends with 1 where a pinned package has a known vulnerability. Packages that the advisory service does not know, or
all of them where it cannot be reached, are counted and printed as not audited: that is no verdict.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SECONDS_MAX = 300


def main() -> int:
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(ROOT / "requirements.lock"), "--format", "json"]
    options = ["--no-deps", "--disable-pip", "--progress-spinner", "off", "--timeout", "20"]
    try:
        ended = subprocess.run([*command, *options], capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
        packages = json.loads(ended.stdout)["dependencies"]
    except subprocess.TimeoutExpired:
        print(f"not audited: the advisory service did not answer in {SECONDS_MAX} s")
        return 0
    except json.JSONDecodeError:
        print(f"not audited: {(ended.stderr.strip().splitlines() or ['pip-audit said nothing'])[-1][:200]}")
        return 0
    skipped = [package for package in packages if "skip_reason" in package]
    bad = [(package, advisory) for package in packages for advisory in package.get("vulns", [])]
    for package, advisory in bad:
        fixed_in = ", ".join(advisory["fix_versions"]) or "-"
        print(f"{package['name']} {package['version']}: {advisory['id']}, fixed in {fixed_in}")
    print(f"{len(packages) - len(skipped)} of {len(packages)} packages audited, {len(bad)} known vulnerabilities")
    if skipped:
        print(f"not audited: {len(skipped)}, as {skipped[0]['skip_reason']}")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
