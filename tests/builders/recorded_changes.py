"""What a real cluster of 4.3.1 recorded while five users changed it, 300 times two of them at one time."""

from __future__ import annotations

import gzip
import json
from typing import Final

from tests.builders.captures import DATA

FOLDER: Final = DATA / "authorizer"
LOG_DIR: Final = FOLDER / "controller.tgz"
AUTHORIZER_LOG: Final = FOLDER / "kafka-authorizer.log.gz"


def made_by() -> dict[str, str]:
    """Who made the change of each mark (`admin_calls.mark_of`), by the clients that made the calls."""
    found: dict[str, str] = json.loads(gzip.decompress((FOLDER / "made.json.gz").read_bytes()))
    return found
