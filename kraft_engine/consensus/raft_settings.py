"""What a Raft node is configured with: Kafka's timeouts and limits, and by which release's rules it goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kraft_engine.world.world import MS

if TYPE_CHECKING:
    from kraft_engine.consensus.log_batches import Batch
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
"""The cluster.id of random runs and of small quorums."""


class Settings:
    """Kafka's raft settings, in microseconds, and which release's rules hold."""

    __slots__ = (
        "append_linger_us",
        "auto_join",
        "begin_epoch_us",
        "check_quorum_us",
        "cluster_id",
        "election_backoff_max_us",
        "election_timeout_us",
        "elects_among_voters_only",
        "fetch_batch_count",
        "fetch_max_wait_us",
        "fetch_timeout_us",
        "max_batch_bytes",
        "max_batch_records",
        "measure_batch",
        "pre_vote",
        "request_timeout_us",
        "retry_backoff_us",
        "snapshot_chunk_count",
        "truncation_rewinds_voters",
    )

    def __init__(self, cluster_id: str, *, pre_vote: bool = True, auto_join: bool = False) -> None:
        self.cluster_id = cluster_id
        self.pre_vote = pre_vote
        self.auto_join = auto_join
        # 0 writes every append as a batch of its own. Kafka lingers 25 ms.
        self.append_linger_us = 0
        self.max_batch_bytes = 8 << 20
        # An operation that need not be atomic is appended in parts of so many records.
        self.max_batch_records = 10_000
        # The bytes of a batch as it is written; None estimates them.
        self.measure_batch: Callable[[Batch], int] | None = None
        self.election_timeout_us = 1_000 * MS
        self.election_backoff_max_us = 1_000 * MS
        self.fetch_timeout_us = 2_000 * MS
        self.fetch_max_wait_us = 500 * MS
        self.request_timeout_us = 2_000 * MS
        self.retry_backoff_us = 20 * MS
        self.check_quorum_us = 3_000 * MS
        self.begin_epoch_us = 1_000 * MS
        # Up to 4.3 a replica that cuts its log does not read the voter records that replace what it cut, up to the end
        # that it had (KRaftControlRecordStateMachine.truncateNewEntries leaves nextOffset as it is). A restart does.
        self.truncation_rewinds_voters = True
        # Up to 3.7 a node that is no voter, or that hears from one that is none, refuses Vote, BeginQuorumEpoch and
        # EndQuorumEpoch. From 3.8 on it answers both (KIP-853: a voter may not have read yet that it, or the
        # candidate, is one).
        self.elects_among_voters_only = False
        self.fetch_batch_count = 16
        self.snapshot_chunk_count = 2
