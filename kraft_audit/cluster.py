"""What a cluster below a path can be asked: what every command and notebook calls. Nothing is printed here.

What the cluster is stands in `described_cluster`; here is what may be done with it, and how.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kraft_audit.described_cluster import DescribedCluster
from kraft_audit.replay.cluster_state import BranchName, Place
from kraft_audit.replay.driver import BranchLog
from kraft_codec.errors import ChoiceError

if TYPE_CHECKING:
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

PERMISSION_BYTES_MAX: Final = 256 << 20


class Cluster(DescribedCluster):
    """One cluster: all captures of all its replicas below a path.

    The methods about one moment (`state`, `quorum`, `partitions`, `restore_kit`) take the newest capture, or the one
    that is named; earlier captures are evidence. All other methods use all captures.
    """

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
