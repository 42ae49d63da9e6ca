"""What a cluster below a path can be asked: what every command and notebook calls. Nothing is printed here.

What answers a question is imported where it is asked, so that each command loads what it needs alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from functools import cached_property
from operator import itemgetter
from pathlib import Path
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
from kraft_audit.replay.cluster_state import BranchName, ClusterState, Moment, Place
from kraft_audit.replay.driver import BranchLog, replay_branch
from kraft_audit.tables.bronze import BRONZE
from kraft_audit.tables.losses import LOSSES
from kraft_audit.tables.silver import PARTITION_CHANGES, VOTER_SETS
from kraft_codec.errors import ChoiceError

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
    from kraft_audit.recovery.crash_forecast import SmallestLoss, WhatIf
    from kraft_audit.recovery.leaderless_partitions import RecoveryPlan
    from kraft_audit.recovery.lost_quorum.rescue import Rescue
    from kraft_audit.recovery.lost_quorum.rescue_plan import RescuePlan
    from kraft_audit.recovery.lost_quorum.rescue_request import RescueRequest
    from kraft_audit.recovery.may_i.permission import Permission, Question, RollQuestion
    from kraft_audit.recovery.may_i.permission_table import Permissions
    from kraft_audit.recovery.may_i.start_safety import StartSafety
    from kraft_audit.recovery.restore.lost_state import LostLog
    from kraft_audit.recovery.restore.restorable_state import RestorableTopic
    from kraft_audit.recovery.restore.restore_kit import KitRequest, RestoreKit
    from kraft_audit.recovery.restore.stray_logs import OldLog
    from kraft_audit.recovery.salvage.held_logs import SalvageableLoss
    from kraft_audit.recovery.salvage.manifest import Salvage
    from kraft_audit.recovery.upgrade_check import UpgradeCheck
    from kraft_audit.rules.columns.quorum_standing import QuorumStanding
    from kraft_audit.rules.rule_model import Finding, RuleSettings

CAPTURE_ROWS: Final = frozenset({"captures"})
READ_FROM_FILES: Final = frozenset({"records", "files", "batches", "node_cards"})
"""Tables that no history holds row by row: they are read from the files when they are asked for."""
PERMISSION_BYTES_MAX: Final = 256 << 20
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


class Cluster(OpenedCluster):
    """One cluster: all captures of all its replicas below a path.

    The methods about one moment (`state`, `quorum`, `partitions`, `restore_kit`) take the newest capture, or the one
    that is named; earlier captures are evidence. All other methods use all captures.
    """

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

    def whatif(self, brokers: Collection[int] = (), *, racks: Collection[str] = ()) -> WhatIf:
        """What becomes of every partition if these brokers, and all brokers of these racks, crash uncleanly now.

        >>> cluster.whatif([11]).offline_count
        0
        """
        from kraft_audit.recovery.crash_forecast import brokers_of_racks, lose

        return lose(self.history, {*brokers, *brokers_of_racks(self.history, racks)})

    def smallest_loss(self) -> SmallestLoss:
        """The smallest set of brokers whose unclean crash together loses acknowledged records.

        >>> cluster.smallest_loss().brokers
        (13,)
        """
        from kraft_audit.recovery.crash_forecast import smallest_loss

        return smallest_loss(self.history)

    def recover_plan(self) -> list[RecoveryPlan]:
        """What can be done for each partition without a leader; data directories below the path are read for it.

        >>> [(plan.topic, plan.partition) for plan in cluster.recover_plan()][:2]
        [('elr-a', 0), ('elr-a', 1)]
        """
        from kraft_audit.losses.replica_disks import replica_logs
        from kraft_audit.recovery.leaderless_partitions import recovery_plans

        leaderless = {(plan.topic, plan.partition) for plan in recovery_plans(self.history)}
        logs = replica_logs(self.storage, self.judged_plan, leaderless) if leaderless else {}
        return recovery_plans(self.history, logs)

    @cached_property
    def start_safety(self) -> tuple[StartSafety | None, str | None]:
        """What the disks of the newest captures can do to each other; or None, and why that is not known.

        >>> cluster.start_safety[0].low
        189
        """
        from kraft_audit.recovery.may_i.quorum_disks import quorum_disks

        return quorum_disks(self.judged_reading.survey, self.judged_plan)

    def may_i(self, question: Question, copied: str | None = None) -> Permission:
        """Whether a node may be started, restarted, emptied or taken out of the cluster. Raises ChoiceError.

        `copied` is a folder that `salvage` wrote, or copies of the node's log dirs: what a start truncates may be
        there. Raises InputError where it is neither, ChoiceError where the question names the configured voters of a
        quorum whose records name them.

        >>> from kraft_audit.recovery.may_i.permission import Action, Question
        >>> cluster.may_i(Question(Action.WIPE, 13, cluster.root)).verdict.value
        'no'
        """
        if (named := self.branch) is not None:
            from kraft_audit.recovery.may_i.branch_permission import permission_on_branch

            return permission_on_branch(question, named, lambda asked: self._answer(asked, copied))
        return self._answer(question, copied)

    def _answer(self, question: Question, copied: str | None) -> Permission:
        from kraft_audit.recovery.may_i.node_permission import permission

        if copied is not None:
            from kraft_audit.recovery.salvage.copied_logs import copied_logs

            question = replace(question, copied=copied_logs(self.history, question.node_id, copied))
        answer = permission(question, *self._safety_of(question.voters), self.history)
        if answer is None:
            raise ChoiceError(self.root, f"no node {question.node_id} in cluster {self.title}")
        return answer

    def may_i_roll(self, question: RollQuestion) -> Permission:
        """Which node may be restarted next, or what to wait for: the first of `order` with a yes. Raises ChoiceError.

        >>> from kraft_audit.recovery.may_i.permission import RollQuestion
        >>> cluster.may_i_roll(RollQuestion(cluster.root)).verdict.value
        'no'
        """
        from kraft_audit.recovery.may_i.roll import roll_permission

        def answer(asked: RollQuestion) -> Permission:
            return roll_permission(asked, *self._safety_of(asked.voters), self.history)

        if (named := self.branch) is None:
            return answer(question)
        from kraft_audit.recovery.may_i.branch_permission import of_branch, without_others

        return of_branch(answer(without_others(question, named)), question.path, named)

    def _safety_of(self, voters: Collection[int]) -> tuple[StartSafety | None, str | None]:
        """As `start_safety`, with these configured voters on every node where any are named."""
        if not voters:
            return self.start_safety
        from kraft_audit.recovery.may_i.quorum_disks import DynamicQuorumError, quorum_disks

        try:
            return quorum_disks(self.judged_reading.survey, self.judged_plan, voters)
        except DynamicQuorumError as problem:
            raise ChoiceError(self.root, f"cluster {self.title}: {problem}") from None

    def permissions(self, path: str | None = None) -> Permissions:
        """What `may_i` answers about every controller, all voters running, and of brokers what may not be done.

        Unless the rules were judged already, a cluster whose files hold more than PERMISSION_BYTES_MAX (256 MiB) is not
        replayed for it: `skipped` says so. `path` is what
        commands name, such as that of the disks that a lake read; without it what was opened.

        >>> [row.action for row in cluster.permissions().rows if (row.node_id, row.verdict) == (13, "no")]
        ['wipe', 'delete-volume']
        """
        from kraft_audit.recovery.may_i.permission_table import Permissions, ask_one, permissions

        if (named := self.branch) is not None:
            return Permissions(skipped=named.with_branch(ask_one(path or self.root), path or self.root))
        size_bytes = sum(file.size_bytes for replica in self.plan.replicas for file in replica.files)
        if not self.is_judged and size_bytes > PERMISSION_BYTES_MAX:
            return Permissions(skipped=f"{size_bytes >> 20} MiB would be replayed. {ask_one(path or self.root)}")
        return permissions(*self.start_safety, self.history, path or self.root)

    def salvageable(self) -> list[SalvageableLoss]:
        """Every possible or proven loss, with what captured disks of brokers still hold of the lost records.

        >>> cluster.salvageable()
        []
        """
        from kraft_audit.recovery.salvage.held_logs import salvageable

        return salvageable(self.history, self.storage)

    def salvage(self, out: Path, found: Sequence[SalvageableLoss] | None = None) -> Salvage:
        """Writes what disks still hold of lost records into a new or empty folder, for its owner alone.

        `found` are the losses to take; all of `salvageable` without it. Raises LiveDiskError where a broker of this
        machine runs on a disk that would be read, OSError where the folder cannot be written.
        """
        from kraft_audit.recovery.salvage.live_disks import refuse_live
        from kraft_audit.recovery.salvage.salvage_dir import salvage
        from kraft_audit.rules.columns.kafka_commands import UNKNOWN_ADDRESS, broker_address
        from kraft_audit.rules.columns.nodes import broker_states, is_up

        chosen = self.salvageable() if found is None else found
        refuse_live(self.storage, self.root, chosen)
        up = [broker for broker in broker_states(self.history) if is_up(self.history, broker)]
        about = {"cluster_id": self.cluster_id, "history": self.plan.key, "read_from": self.root}
        return salvage(self.storage, chosen, out, about, broker_address(self.history, up) or UNKNOWN_ADDRESS)

    def on_branch(self, branch: BranchName, capture: str | None = None) -> Cluster:
        """This cluster with one branch for its log: without the disks that hold another one.

        Raises ChoiceError where the newest capture, or the one of that name, has no such branch.
        """
        from kraft_audit.replay.branch_choice import plan_on_branch

        try:
            plan, named = plan_on_branch(self.survey, self.plan, self.chosen_round(capture), branch)
        except ValueError as problem:
            raise ChoiceError(self.root, f"cluster {self.title}: {problem}") from None
        cluster = type(self)(self._opened, plan, self.storage, self._key, self._archives)
        cluster.branch = named
        return cluster

    def rescue_plan(self, gone: Collection[int] = ()) -> RescuePlan:
        """Every copy of the log that is left, best first, and what going on from it would lose.

        `gone` are the ids of nodes that are lost with their disks. Of a branch, nodes that hold another log are as good
        as gone.

        >>> cluster.rescue_plan().verdict.value
        'refused'
        """
        return self._planned_without(gone)[1]

    def _planned_without(self, gone: Collection[int]) -> tuple[Cluster, RescuePlan]:
        """The plan, and the cluster that it is for: without the disks of nodes that are gone and whose logs began
        again, where they leave it undecided."""
        from kraft_audit.recovery.lost_quorum.begun_again import began_again, without_new_logs
        from kraft_audit.recovery.lost_quorum.rescue_plan import RescueVerdict, rescue_plan

        beside = self.lake if self.disks.replicas else None
        if (named := self.branch) is not None:
            gone = {*gone, *named.left_out}
            plan = rescue_plan(self.reading, self.plan, self.root, gone, beside)
            steps = tuple(named.with_branch(step, self.root) for step in plan.next_steps)
            return self, replace(plan, reason=f"{plan.reason} {named.text}", next_steps=steps)
        plan = rescue_plan(self.reading, self.plan, self.root, gone, beside)
        rest = without_new_logs(self.survey, self.plan, gone) if plan.verdict is RescueVerdict.UNDECIDED else None
        if rest is None:
            return self, plan
        cluster = type(self)(self._opened, rest, self.storage, self._key, self._archives)
        return cluster, began_again(cluster.rescue_plan(gone), self.plan, rest)

    def rescue(self, request: RescueRequest, gone: Collection[int] = ()) -> Rescue:
        """Writes a new node dir with the state of one copy. Raises RescueRefusedError where the plan does not stand."""
        from kraft_audit.recovery.lost_quorum.rescue import rescue

        cluster, plan = self._planned_without(gone)
        return rescue(cluster.reading, cluster.plan, cluster.open_storage, plan, request)

    def upgrade_check(self, release_level: int) -> UpgradeCheck:
        """Whether every feature may go to its level at a metadata.version, given as a number: `metadata_version_of` of
        `kraft_codec.schemas.releases` has that of a release.

        >>> cluster.upgrade_check(33).verdict.value
        'blocked'
        """
        from kraft_audit.recovery.upgrade_check import upgrade_check

        return upgrade_check(self.history, release_level, self.records)

    def restore_kit(
        self, at: Place | datetime | int | str | None = None, request: KitRequest | None = None
    ) -> RestoreKit:
        """Kafka's own commands that bring the state back on another cluster, and what no command brings back.

        >>> [step.subject for step in cluster.restore_kit(at=100).restored][:2]
        ['all brokers', 'elr-a']
        """
        from kraft_audit.recovery.restore.restorable_state import restorable_state
        from kraft_audit.recovery.restore.restore_kit import KitRequest, restore_kit

        return restore_kit(restorable_state(self.state(at)), request or KitRequest())

    def lost_logs(self, log: BranchLog, end_offset: int) -> list[LostLog]:
        """Every captured log that goes on otherwise, or further, than this one up to an offset; the best one last."""
        from kraft_audit.recovery.restore.lost_state import lost_logs

        return list(lost_logs(self.reading, log, end_offset))

    def old_logs(self, topics: Mapping[str, RestorableTopic], *, names_missing: bool) -> list[OldLog]:
        """The logs of these topics in captured data dirs; with `names_missing` those on disks not read, too."""
        from kraft_audit.recovery.restore.stray_logs import old_logs

        return old_logs(self.storage, self.disks, topics, names_missing=names_missing)

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
