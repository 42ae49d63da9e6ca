"""Commands that replay past a gap say so, in the same line."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest


@pytest.mark.slow
def test_what_people_read_of_it(small_corpus: Path, kraft_audit) -> None:
    """The batch that is left out is the one that is flipped in the other log, whose header says what it held."""
    damaged = small_corpus / "crafted" / "damaged"
    position = json.loads((damaged / "scenario.json").read_text())["middle_batch"]["position"]
    log = (damaged / "crc-flip-middle-batch" / "__cluster_metadata-0" / f"{0:020}.log").read_bytes()
    (first,), (delta,) = struct.unpack_from(">q", log, position), struct.unpack_from(">i", log, position + 23)
    line = f"{delta + 1} records from offset {first} on are missing: what follows may be wrong"
    for name in ("offset-gap", "crc-flip-middle-batch"):
        state = json.loads(kraft_audit("state", damaged / name, "--output", "json").out)
        assert (state["is_complete"], state["missing"]) == (False, {"first_offset": first, "count": delta + 1})
        for command in (
            ("state", damaged / name),
            ("diff", damaged / name, "--from", "5"),
            ("partitions", damaged / name),
            ("recover-plan", damaged / name),
            ("whatif", damaged / name, "--lose", "101"),
        ):
            assert kraft_audit(*command).out.splitlines().count(line) == 1, command
        described = kraft_audit("partitions", damaged / name, "--describe")
        assert (line in described.out, described.error_lines) == (False, [line])
        whole = kraft_audit("state", damaged / name, "--at", str(first - 1), "--output", "json")
        assert (json.loads(whole.out)["is_complete"], line in whole.out) == (True, False)
