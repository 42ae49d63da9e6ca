"""One disk of a quorum with other bytes at a random place, under a CRC that fits: does the audit name it?

The witness is the log as it was written: its topics and their ids, and which disk was altered where.
"""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass
from pathlib import Path

import google_crc32c

import kraft_audit
from kraft_audit.rules.rule_model import Finding, Severity, Status
from kraft_codec.errors import InputError
from kraft_codec.files.state_files import QuorumState
from kraft_codec.records.batch import ATTRIBUTES_POSITION, CRC_POSITION
from kraft_codec.text.java_text import uuid_text
from tests.builders.logs import Log, write_node

VOTERS = (3, 5, 6)
TOPICS = 8
TAIL = 2
"""Batches at the end that some nodes lack, where a log has such."""
BYTES_MAX = 8
NAMES_A_DISK = ("KQ004", "KQ007", "KQ008", "KQ018", "KQ022")
"""Rules that name a disk: by its bytes against others', or because its bytes make no sense any more."""
ACCUSES = ("KQ001", "KQ002", "KQ003", "KQ005", "KQ014", "KQ020")
"""Rules that would accuse disks of what no quorum did here."""


@dataclass(frozen=True, slots=True)
class Alteration:
    """What was done: `holders` are the nodes that hold the altered batch, in any version."""

    voters: int
    node_id: int
    batch: int
    batch_count: int
    holders: tuple[int, ...]
    log: Log

    @property
    def is_committed(self) -> bool:
        return 2 * len(self.holders) > self.voters

    @property
    def is_decided(self) -> bool:
        """Whether a majority of all voters holds the bytes as they were written."""
        return 2 * (len(self.holders) - 1) > self.voters


def quorum_log(voters: int) -> Log:
    log = Log()
    ids = [{"voterId": voter} for voter in range(1, voters + 1)]
    log.control("LEADER_CHANGE", {"version": 0, "leaderId": 1, "voters": ids, "grantingVoters": ids}, epoch=1)
    for number in range(TOPICS):
        log.topic(f"topic-{number:02d}")
        log.noop()
    return log


def changed(batch: bytes, chance: random.Random) -> bytes:
    """Some bytes in a row replaced anywhere after the CRC, and the CRC renewed."""
    content = bytearray(batch)
    count = chance.randint(1, BYTES_MAX)
    at = chance.randrange(ATTRIBUTES_POSITION, len(content) - count + 1)
    for place in range(at, at + count):
        content[place] ^= chance.randint(1, 255)
    struct.pack_into(">I", content, CRC_POSITION, google_crc32c.value(bytes(content[ATTRIBUTES_POSITION:])))
    return bytes(content)


def write_altered(folder: Path, voters: int, seed: int) -> Alteration:
    """A quorum's disks, one altered. Of a quorum of five or six, every fourth log has a tail that some nodes lack."""
    chance = random.Random(f"{voters} {seed}")  # noqa: S311  # places, not secrets
    log = quorum_log(voters)
    has_tail = voters > 3 and seed % 4 == 0
    whole = tuple(range(1, chance.randint(2, voters - 1) + 1 if has_tail else voters + 1))
    number = chance.randrange(len(log.batches) - TAIL if has_tail else 0, len(log.batches))
    node_id = chance.choice(whole)
    for voter in range(1, voters + 1):
        batches = list(log.batches)
        if voter == node_id:
            batches[number] = changed(batches[number], chance)
        held = batches if voter in whole else batches[:-TAIL]
        write_node(folder, voter, b"".join(held), state=QuorumState(1, 1, 1, -1))
    return Alteration(voters, node_id, number, len(log.batches), whole, log)


def judged(folder: Path, done: Alteration) -> list[str]:
    """What the audit missed or said wrongly of an altered disk: nothing, where it is right."""
    with kraft_audit.open(str(folder)) as clusters:
        (cluster,) = clusters
        findings = [
            finding
            for finding in cluster.check(only=(*NAMES_A_DISK, *ACCUSES))
            if finding.status is Status.RAISED and not finding.is_over
        ]
        topics = _topics(cluster) if done.is_decided else set()
    wrong = []
    naming = [finding for finding in findings if finding.rule in NAMES_A_DISK and _names(finding, done.node_id)]
    if not any(finding.severity.rank >= Severity.HIGH.rank for finding in naming):
        wrong.append(f"node {done.node_id} is not named")
    if done.is_decided:
        others = [f.subject for f in findings if f not in naming or not f.subject.startswith(f"node {done.node_id}")]
        if others:
            wrong.append(f"others are accused: {others}")
        names = {f"topic-{number:02d}" for number in range(TOPICS)}
        if topics != {(name, uuid_text(name.encode().ljust(16, b"."))) for name in names}:
            wrong.append(f"state shows {sorted(topics)}")
    else:
        if not any("majority" in finding.summary or finding.rule == "KQ008" for finding in naming):
            # Bytes that make no sense accuse themselves: one version is left.
            wrong.append("nothing says that no majority decides")
        accusing = [f"{finding.rule} {finding.subject}" for finding in findings if finding.rule in ACCUSES]
        if accusing:
            wrong.append(f"what no quorum did is raised: {accusing}")
    return [f"{done.voters} voters, node {done.node_id}, batch {done.batch}: {text}" for text in wrong]


def _topics(cluster: kraft_audit.Cluster) -> set[tuple[str, str]]:
    try:
        return {(row["topic"], row["topic_id"]) for row in cluster.state().rows("topic_changes")}
    except InputError as error:
        return {("no state", str(error))}


def _names(finding: Finding, node_id: int) -> bool:
    return any(fact.node_id == node_id for fact in finding.evidence)
