"""What a cluster below a path is: its findings, quorum, state and tables. Nothing is printed here.

What answers a question is imported where it is asked, so that each command loads what it needs alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from kraft_audit.capture.plan import Selection
from kraft_audit.opened_cluster import EVERYTHING, OpenedCluster
from kraft_audit.quorum.ordered_reading import OrderedReading
from kraft_audit.quorum.quorum_tables import quorum_rows, with_later_set
from kraft_audit.quorum.rounds import newest_voters, proven_rounds
from kraft_audit.quorum.static_voters import files_naming
from kraft_audit.quorum.voter_history import STATIC
from kraft_audit.replay.cluster_state import ClusterState, Moment, Place
from kraft_audit.replay.driver import replay_branch
from kraft_audit.tables.bronze import BRONZE
from kraft_audit.tables.losses import LOSSES
from kraft_audit.tables.silver import PARTITION_CHANGES, VOTER_SETS

if TYPE_CHECKING:
    from kraft_audit.capture.node_card import NodeCard
    from kraft_audit.findings.authorizer_log import AuthorizerLog
    from kraft_audit.findings.change_authors import AuthoredChange
    from kraft_audit.findings.log_cost import LogCost
    from kraft_audit.findings.situation import Situation
    from kraft_audit.findings.timeline import TimelineEvent
    from kraft_audit.incidents.folding import FoldedFindings
    from kraft_audit.quorum.description import QuorumDescription
    from kraft_audit.quorum.divergence import Divergence
    from kraft_audit.rules.columns.quorum_standing import QuorumStanding
    from kraft_audit.rules.rule_model import Finding, RuleSettings

CAPTURE_ROWS: Final = frozenset({"captures"})
READ_FROM_FILES: Final = frozenset({"records", "files", "batches", "node_cards"})
"""Tables that no history holds row by row: they are read from the files when they are asked for."""
HELD_EPOCHS: Final = pa.schema(
    [
        ("capture", pa.string()),
        ("node_id", pa.int32()),
        ("path", pa.string()),
        ("leader_epoch", pa.int32()),
        ("from_offset", pa.int64()),
        ("to_offset", pa.int64()),
    ]
)
VOTER_SET_SCHEMA: Final = pa.schema(
    [
        *(field for field in VOTER_SETS.schema if field.name != "plan"),
        pa.field("committed", pa.bool_()),
        pa.field("named_by", pa.list_(pa.string())),
    ]
)


class DescribedCluster(OpenedCluster):
    """The questions about what a cluster is and what happened to it, of class `Cluster`."""

    def check(
        self, thresholds: Mapping[str, RuleSettings] | None = None, *, only: Collection[str] | None = None
    ) -> list[Finding]:
        """What the rules say: raised, undecided and clear findings, rule by rule. `only`: ids of rules.

        >>> [(finding.rule, finding.subject) for finding in cluster.check(only=["KP001"])]
        [('KP001', 'pre-elr-0'), ('KP001', 'elr-m1-0')]
        """
        from kraft_audit.rules import judging

        return list(judging.check(self.history, thresholds or {}, only=only))

    def findings(self) -> pa.Table:
        """The same as a table, with the columns of the table `findings`.

        >>> cluster.findings().column("status").unique().to_pylist()
        ['clear', 'raised']
        """
        from kraft_audit.findings.finding_formats import findings_batch

        return pa.Table.from_batches([findings_batch(self.incidents().findings, seen_ms=self.history.seen_ms)])

    def standing(self) -> QuorumStanding:
        """Whether the quorum works, rests, or lost its leader or majority, as of the newest captures.

        >>> cluster.standing().standing.value, cluster.standing().reason
        ('healthy', 'node 1 leads epoch 1')
        """
        from kraft_audit.rules.columns.quorum_standing import quorum_standing

        return quorum_standing(self.history)

    def incidents(self, findings: Sequence[Finding] | None = None) -> FoldedFindings:
        """Findings with one cause folded into incidents, open ones first, and what none of them explains.

        >>> cluster.incidents().incidents[0].headline
        'Brokers 11, 12 and 13 were lost one after the other, none by controlled shutdown'
        """
        from kraft_audit.incidents.folding import fold

        return fold(self.history, self.check() if findings is None else findings)

    def situation(self, folded: FoldedFindings | None = None) -> Situation:
        """Where the cluster stands now, as one value: what is wrong, since when, what to do first, and what is open.

        >>> situation = cluster.situation()
        >>> situation.needs_action, situation.leaderless, situation.command.split()[1]
        (True, 10, 'recover-plan')
        """
        from kraft_audit.findings.situation import situation_of

        known = self.incidents() if folded is None else folded
        return situation_of(self.history, self.standing(), known, self.root)

    def timeline(self) -> list[TimelineEvent]:
        """What happened, in the order that the logs prove, with the state of every node after each event.

        >>> print(cluster.timeline()[-1].text)
        captured: log end offset 189, committed through offset 188
        """
        from kraft_audit.findings.timeline import timeline_events
        from kraft_audit.quorum.divergence import proven_order

        return timeline_events(self.history, proven_order(self.judged_reading.survey, self.judged_plan))

    def changes(self, log: AuthorizerLog | None = None) -> list[AuthoredChange]:
        """What admin requests changed, by offset; with Kafka's authorizer log (`read_authorizer_logs`) who did it.

        >>> print(cluster.changes()[-1].change.text)
        topic elr-4: min.insync.replicas = 3
        """
        from kraft_audit.findings.admin_changes import admin_changes
        from kraft_audit.findings.change_authors import AuthoredChange, authors_of
        from kraft_audit.rules.columns.log_batches import canonical_log

        changes = admin_changes(self.history)
        if log is None:
            return [AuthoredChange(change) for change in changes]
        authors = authors_of(changes, log.requests, canonical_log(self.history))
        return list(map(AuthoredChange, changes, authors))

    def picture(self, width: int = 1080) -> str | None:
        """What happened, as an SVG that stands alone, this many pixels wide; None where no time of the log is known.

        >>> cluster.picture().startswith("<svg ")
        True
        """
        from kraft_audit.incidents.incident import incident_row
        from kraft_audit.picture.drawing import draw
        from kraft_audit.picture.whole_picture import picture_of

        picture = picture_of(self.history, [incident_row(self.cluster_id, i) for i in self.incidents().incidents])
        return None if picture is None else draw(picture, width, stands_alone=True)

    def cost(self) -> LogCost:
        """Bytes and records of the canonical log by type, cause, topic, broker and hour: each sums to all of its bytes.

        Set `keeps_judged_records` before anything is read, so that the log is read once.

        >>> cluster.cost().rows[0].name
        'PARTITION_CHANGE_RECORD'
        """
        from kraft_audit.findings.log_cost import log_cost
        from kraft_audit.rules.columns.log_batches import canonical_log

        log_end = canonical_log(self.history).end_offset
        reading = self.judged_reading if self.keeps_judged_records else self.reading
        return log_cost(self.history, reading.log_records(0, log_end))

    def state(self, at: Place | datetime | int | str | None = None, *, capture: str | None = None) -> ClusterState:
        """Brokers, topics, partitions, configs, features and voters as after a record; None is the end of the log.

        `at`: an offset, a time (text in ISO 8601; UTC where it names no zone) or "committed". Raises ValueError for
        any other text, ChoiceError for a capture that is not there, NoCanonicalLogError without a log to replay.

        >>> cluster.state(at=100).tables["broker_changes"].column("broker_id").to_pylist()
        [11, 12, 13, 14]
        """
        return self.moment(capture).state(_parsed_place(at))

    def losses(self) -> pa.Table:
        """Every election that made a replica lead which may lack acknowledged or readable records: the table `losses`.

        Bounds, and what is proven, come from brokers' log dirs that were captured beside the metadata logs.

        >>> cluster.losses().num_rows
        0
        """
        from kraft_audit.findings.loss_rows import loss_rows

        return pa.Table.from_pylist(list(loss_rows(self.history)), LOSSES.schema)

    def voters(self) -> pa.Table:
        """Every voter set of every branch, by offset: the columns of `voter_sets`, and two more.

        `committed`: true, false on a branch that is not canonical, null where neither is proven. `named_by`: what names
        a set of kraft.version 0, which no record holds. A set that nodes were started with after the newest
        LeaderChange stands at the end of the log.

        >>> [len(voters) for voters in cluster.voters().column("voters").to_pylist()]
        [1]
        """
        survey, plan = self.survey, self.plan
        rounds = proven_rounds(survey, plan)
        sets = quorum_rows(survey, plan, rounds)["voter_sets"]
        since = newest_voters(survey, plan, rounds[-1]) if rounds else None
        rows = with_later_set(sorted(sets, key=itemgetter("from_offset", "from_epoch")), since, rounds)
        named = files_naming(survey)
        for row in rows:
            ids = tuple(voter["voter_id"] for voter in row["voters"]) if row["source"] == STATIC else ()
            row |= {"cluster_id": self.cluster_id, "committed": self._is_committed(row), "named_by": named.get(ids, [])}
        return pa.Table.from_pylist(rows, VOTER_SET_SCHEMA)

    @cached_property
    def committed_low(self) -> int:
        """The offset below which everything is proven committed; 0 where nothing is."""
        return max((each.interval.low for each in proven_rounds(self.survey, self.plan)), default=0)

    def _is_committed(self, row: Mapping[str, Any]) -> bool | None:
        """Null where neither its commitment nor its end is proven."""
        if not row["canonical"]:
            return False
        return True if row["from_offset"] < self.committed_low else None

    def partitions(self, *, topic: str | None = None, capture: str | None = None) -> pa.Table:
        """Every change of every partition's leader, ISR and ELR with its cause: the table `partition_changes`.

        >>> cluster.partitions(topic="elr-m1").select(["from_offset", "leader", "isr"]).to_pylist()[-1]
        {'from_offset': 178, 'leader': -1, 'isr': []}
        """
        batches = self.partition_batches(self.moment(capture), topic)
        return pa.Table.from_batches(batches, PARTITION_CHANGES.schema)

    def partition_batches(self, moment: Moment, topic: str | None = None) -> Iterator[pa.RecordBatch]:
        """The same, batch by batch as the log is replayed."""
        for name, batch in replay_branch(moment.log, to_offset=moment.end_offset):
            if name == PARTITION_CHANGES.name:
                yield batch if topic is None else batch.filter(pc.equal(batch.column("topic"), topic))

    def nodes(self) -> list[NodeCard]:
        """What all files of each node dir of the newest capture, and the log, say of its node; foreign disks too.

        >>> [(card.node_id, card.log, card.log_end_offset) for card in cluster.nodes()]
        [(1, 'read', 189), (11, 'read', 137), (12, 'read', 153), (13, 'read', 171), (14, 'read', 189)]
        """
        from kraft_audit.capture.node_card import node_card
        from kraft_audit.rules.columns.nodes_in_log import node_in_log

        rows = self.history.rows("captures")
        newest = max((row["capture_number"] for row in rows), default=0)
        cards = [
            replace(node_card(row), in_log=node_in_log(self.history, row) if row["accepted"] else None)
            for row in rows
            if row["capture_number"] == newest
        ]
        return sorted(cards, key=lambda card: (card.node_id is None, card.node_id, card.path))

    def quorum(self, *, capture: str | None = None) -> QuorumDescription:
        """The captures of one time side by side, and what they prove committed. Raises ChoiceError for no capture.

        >>> quorum = cluster.quorum()
        >>> quorum.leader_id, quorum.leader_epoch, quorum.committed_low, quorum.committed_high
        (1, 1, 189, 189)
        """
        from kraft_audit.quorum.description import describe_quorum

        name = None if capture is None else self.capture_name(capture)
        if self.is_judged:
            rows = self.history.rows("captures")
            return describe_quorum(self.judged_reading.survey, self.judged_plan, rows, name)
        with OrderedReading(self.plan, self.settings(), keeps_records=False) as ordered:
            for reading in ordered:
                captures = [row for _, batch in reading.bronze(CAPTURE_ROWS) for row in batch.to_pylist()]
            return describe_quorum(reading.survey, ordered.plan, captures, name)

    @property
    def newest_capture(self) -> str | None:
        """The capture that answers are about; None where nothing was read."""
        rounds = proven_rounds(self.survey, self.plan)
        return rounds[-1].capture if rounds else None

    def diverge(self) -> list[Divergence]:
        """Every offset at which captured logs differ, with the branches there and who holds which.

        >>> cluster.diverge()
        []
        """
        from kraft_audit.quorum.divergence import divergences

        return divergences(self.reading.survey, self.plan)

    def held_epochs(self) -> pa.Table:
        """What the log of each captured disk holds, by leader epoch: offsets [from_offset, to_offset).

        >>> cluster.held_epochs().drop(["capture", "path"]).to_pylist()[1]
        {'node_id': 11, 'leader_epoch': 1, 'from_offset': 0, 'to_offset': 137}
        """
        from kraft_audit.quorum.divergence import held_epochs

        rows = [
            {
                **asdict(held.holder),
                "leader_epoch": held.epoch,
                "from_offset": held.from_offset,
                "to_offset": held.to_offset,
            }
            for held in held_epochs(self.survey)
        ]
        return pa.Table.from_pylist(rows, HELD_EPOCHS)

    def records(self, selection: Selection = EVERYTHING) -> pa.Table:
        """Every distinct record of log and snapshots, `record` as JSON, secrets as fingerprints: the table `records`.

        >>> cluster.records().num_rows
        184
        """
        return self._bronze_table("records", selection)

    def table(self, name: str) -> pa.Table:
        """A table by its name; raises KeyError where there is none.

        There are `findings`, the silver tables, and `captures`, `node_cards`, `files`, `batches`, `records`,
        `decode_errors`.

        >>> cluster.table("leader_epochs").column("leader_id").to_pylist()
        [1]
        """
        from kraft_audit.capture.log_facts import BATCH_COPIES, LOG_RUNS

        if name == "findings":
            return self.findings()
        if name in READ_FROM_FILES:
            return self._bronze_table(name, EVERYTHING)
        names = {*self.history.tables} - {BATCH_COPIES.name, LOG_RUNS.name}
        if name in names:
            return self.history.table(name)
        raise KeyError(f"no table {name!r}: there are findings, {', '.join(sorted({*names, *READ_FROM_FILES}))}")

    def _bronze_table(self, name: str, selection: Selection) -> pa.Table:
        batches = [batch for _, batch in self.bronze({name}, selection=selection)]
        return pa.Table.from_batches(batches, None if batches else BRONZE[name].schema)


def _parsed_place(at: Place | datetime | int | str | None) -> Place:
    if isinstance(at, Place):
        return at
    return Place.at(at) if isinstance(at, datetime) else Place.parse(None if at is None else str(at))
