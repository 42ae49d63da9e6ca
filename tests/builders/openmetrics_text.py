"""A strict reader of OpenMetrics text."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)?\}})? (-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)")
META = re.compile(rf"# (TYPE|UNIT|HELP) ({NAME})(?: ((?:[^\\\n]|\\[\\n\"])*))?")


@dataclass(slots=True)
class MetricFamily:
    """A metric family as it was read."""

    type: str = "unknown"
    unit: str = ""
    samples: dict[str, float] = field(default_factory=dict)


def parse_openmetrics(text: str) -> dict[str, MetricFamily]:
    """OpenMetrics 1.0, strictly; gauges only. Raises AssertionError."""
    assert text.endswith("# EOF\n")
    families: dict[str, MetricFamily] = {}
    current = ""
    seen_meta: set[tuple[str, str]] = set()
    for line in text[: -len("# EOF\n")].split("\n")[:-1]:
        if line.startswith("#"):
            meta = META.fullmatch(line)
            assert meta, line
            kind, name, value = meta.groups()
            if name != current:
                assert name not in families, f"{name} is in two places"
                families[name], current = MetricFamily(), name
            assert not families[name].samples, f"{kind} of {name} after its samples"
            assert (kind, name) not in seen_meta
            seen_meta.add((kind, name))
            if kind == "TYPE":
                assert value == "gauge"
                families[name].type = value
            if kind == "UNIT":
                assert name.endswith(f"_{value}")
                families[name].unit = value
        else:
            sample = SAMPLE.fullmatch(line)
            assert sample, line
            name, labels, number = sample.groups()
            assert name == current, f"a sample of {name} among those of {current}"
            names = re.findall(r'([a-zA-Z_][a-zA-Z0-9_]*)="', re.sub(r'"(?:[^"\\]|\\.)*"', '""', labels or ""))
            assert len(names) == len(set(names))
            assert (labels or "") not in families[name].samples, f"twice: {line}"
            families[name].samples[labels or ""] = float(number)
    return families
