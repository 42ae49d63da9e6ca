"""Where the pages of a report lie: what writes them and what links to them agree on it here."""

from __future__ import annotations

import hashlib
import re
from typing import Final

FLEET_PAGE: Final = "index.html"
_PLAIN_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}(\.history-[0-9]{1,6}|\.h[0-9a-f]{8})?")


def page_of(page_id: str) -> str:
    """The file of a cluster's page; an id that is not a Kafka id gets a name made from its hash."""
    if _PLAIN_ID.fullmatch(page_id):
        return f"clusters/{page_id}.html"
    digest = hashlib.blake2b(page_id.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
    return f"clusters/other.{digest}.html"


def incident_anchor(incident_id: str) -> str:
    """Where an incident stands on its cluster's page, however many others come before it."""
    return f"i-{incident_id}"
