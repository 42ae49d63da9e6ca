"""What a wheel is installed with, as CycloneDX 1.6 JSON: every pinned package of requirements.lock with its hashes.

The same lock gives the same bytes. `make dist` writes it beside the wheel.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

ROOT = Path(__file__).resolve().parents[1]
PINNED = re.compile(
    r"^(?P<name>[A-Za-z0-9._-]+)(\[[^\]]*\])?==(?P<version>[^\s;\\]+)(?:\s*;\s*(?P<marker>[^\\]+?))?\s*\\?$"
)
HASH = re.compile(r"^\s+--hash=sha256:([0-9a-f]{64})")
NAMESPACE = uuid.UUID("6c1b2a4e-6f0e-5a53-9d0e-5b5c0d1e7a11")


@dataclass(slots=True)
class Pin:
    """One package of the lock; `marker` says where it is installed, "" everywhere."""

    name: str
    version: str
    marker: str
    sha256: list[str]


def pins(lock: str) -> Iterator[Pin]:
    """The packages of a requirements.lock, in its order."""
    current: Pin | None = None
    for line in lock.splitlines():
        if match := PINNED.match(line):
            if current is not None:
                yield current
            current = Pin(match["name"].lower(), match["version"], match["marker"] or "", [])
        elif current is not None and (digest := HASH.match(line)):
            current.sha256.append(digest[1])
    if current is not None:
        yield current


def sbom(lock: str, *, version: str) -> str:
    """The bill of materials of the project at `version`."""
    bom = Bom(serial_number=uuid.uuid5(NAMESPACE, lock))
    bom.metadata.timestamp = datetime(1980, 1, 1, tzinfo=UTC)
    root = Component(name="kraft-audit", version=version, type=ComponentType.APPLICATION, bom_ref="kraft-audit")
    bom.metadata.component = root
    parts = []
    for pin in pins(lock):
        purl = PackageURL("pypi", None, pin.name, pin.version)
        where = [Property(name="kraft-audit:marker", value=pin.marker)] if pin.marker else []
        hashes = [HashType(alg=HashAlgorithm.SHA_256, content=digest) for digest in pin.sha256]
        part = Component(
            name=pin.name,
            version=pin.version,
            type=ComponentType.LIBRARY,
            purl=purl,
            bom_ref=str(purl),
            hashes=hashes,
            properties=where,
        )
        bom.components.add(part)
        parts.append(part)
    bom.register_dependency(root, parts)
    return JsonV1Dot6(bom).output_as_string(indent=1) + "\n"
