"""May the cluster go to the features of a release: yes, blocked or undecided, by whom, and the way out that works."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from kraft_audit.capture.plan import Selection
from kraft_audit.recovery.feature_levels import (
    LEVELS_THAT_MIGRATE,
    Blocker,
    FeatureCheck,
    FeatureLevels,
    RegistrationState,
    UpgradeVerdict,
    incomplete_reason,
    is_migrating,
    node_names,
    unknown_reason,
)
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.broker_stops import gone_brokers
from kraft_audit.rules.columns.captures import audit_command
from kraft_audit.rules.columns.kafka_commands import (
    CONFIG,
    broker_server,
    controller_server,
    format_disk,
    remove_controller,
    unregister_broker,
    unregister_controller,
)
from kraft_audit.rules.columns.quorum_standing import BROKEN
from kraft_audit.rules.columns.voter_sets import current_set, voter_ids
from kraft_audit.text.readable import capitalized, listed
from kraft_codec.schemas.releases import (
    FIRST_LEVEL_THAT_UNREGISTERS_CONTROLLERS,
    KRAFT_VERSION_FEATURE,
    METADATA_VERSION_FEATURE,
    METADATA_VERSIONS,
    version_text,
)

MIGRATION_UNFINISHED: Final = (
    "The migration from ZooKeeper is not finished: until then Kafka changes no metadata.version."
)


@dataclass(frozen=True, slots=True)
class UpgradeCheck:
    """An answer about the log as it was read: `reason` in a sentence or two, `next_steps` as lines to follow.

    `release_level` is the metadata.version of the release that was asked for.
    """

    release_level: int
    verdict: UpgradeVerdict
    reason: str
    next_steps: tuple[str, ...]
    features: tuple[FeatureCheck, ...]


def upgrade_check(
    history: ClusterHistory, release_level: int, read_records: Callable[[Selection], pa.Table] | None = None
) -> UpgradeCheck:
    """Whether Kafka would set every feature to its level at that metadata.version, as far as the log shows it.

    `read_records` gives rows of the table `records`: of a release that could migrate from ZooKeeper they are asked.
    """
    levels = FeatureLevels(history, release_level)
    unknown = unknown_reason(levels)
    features = tuple(levels.checks()) if levels.metadata_version is not None else ()
    if unknown is not None:
        reason = f"The log does not decide it: {unknown}."
        is_unset = history.is_read and history.is_replayed and levels.metadata_version is None
        steps = ("What such a log means, and what to do: kraft-audit rules KB007",) if is_unset else ()
        return UpgradeCheck(release_level, UpgradeVerdict.UNDECIDED, reason, steps or _copy_more(levels), features)
    if read_records is not None and levels.metadata_version in LEVELS_THAT_MIGRATE and is_migrating(read_records):
        steps = ("Finish the migration from ZooKeeper with 3.9 or older, restart the controllers, and ask again.",)
        return UpgradeCheck(release_level, UpgradeVerdict.BLOCKED, MIGRATION_UNFINISHED, steps, features)
    verdict = max((feature.verdict for feature in features), key=lambda each: each.rank)
    incomplete = incomplete_reason(levels)
    if verdict is not UpgradeVerdict.BLOCKED and incomplete is not None:
        reason = f"Nothing that was read blocks it, but {incomplete}."
        return UpgradeCheck(release_level, UpgradeVerdict.UNDECIDED, reason, _copy_more(levels), features)
    reason = _reason(levels, features, verdict)
    return UpgradeCheck(release_level, verdict, reason, tuple(_Steps(levels, features).lines()), features)


def _reason(levels: FeatureLevels, features: Sequence[FeatureCheck], verdict: UpgradeVerdict) -> str:
    name = METADATA_VERSIONS[levels.release_level]
    if not any(feature.is_changed for feature in features):
        return f"Every feature is at the level of {name} or above: there is nothing to change."
    if verdict is UpgradeVerdict.ALLOWED:
        return f"Every registered broker and controller supports the features of {name}."
    if verdict is UpgradeVerdict.UNDECIDED:
        (reason, *_) = [feature.reason for feature in features if feature.verdict is UpgradeVerdict.UNDECIDED]
        return f"{capitalized(reason)}."
    reasons = []
    blockers = blockers_of(features)
    if blockers:
        reasons.append(f"{node_names(blockers)} {'block' if len(blockers) > 1 else 'blocks'} the features of {name}.")
    refused = next((feature for feature in features if feature.name == METADATA_VERSION_FEATURE), None)
    if refused is not None and refused.drops:
        reasons.append(f"Kafka refuses to go below a level whose records the log may hold: {listed(refused.drops)}.")
    return capitalized(" ".join(reasons))


def blockers_of(features: Sequence[FeatureCheck]) -> list[Blocker]:
    """Each node that blocks a feature, once; of several features the first, which is metadata.version."""
    blockers: dict[tuple[str, int], Blocker] = {}
    for feature in features:
        for blocker in feature.blockers:
            blockers.setdefault((blocker.kind, blocker.node_id), blocker)
    return list(blockers.values())


def _copy_more(levels: FeatureLevels) -> tuple[str, ...]:
    missing = levels.standing.missing
    return (f"Copy the log dirs of voters {listed(missing)} too.",) if missing else ()


class _Steps:
    """What to do, in order: nodes that live first, then registrations of those that are gone, then the features."""

    def __init__(self, levels: FeatureLevels, features: Sequence[FeatureCheck]) -> None:
        self.levels = levels
        self.history = levels.history
        self.features = features
        self.release = METADATA_VERSIONS[levels.release_level].partition("-")[0]
        self.server = _server(levels)

    def lines(self) -> Iterator[str]:
        if any(feature.name == METADATA_VERSION_FEATURE and feature.drops for feature in self.features):
            level = self.levels.metadata_version or 0
            named = version_text(level)
            yield f"Stay on software that supports {METADATA_VERSION_FEATURE} {named}."
            return
        blockers = blockers_of(self.features)
        living = [blocker for blocker in blockers if not blocker.is_ghost and blocker.highest_level is not None]
        if living:
            verb = "Downgrade" if self.levels.is_downgrade else "Upgrade"
            in_turn = ", one after the other" if len(living) > 1 else ""
            yield f"{verb} the software of {node_names(living)} to {self.release}{in_turn}."
        yield from self._lost_voters(living)
        unregistered = [blocker for blocker in blockers if blocker.standing is RegistrationState.NOT_REGISTERED]
        if unregistered:
            yield f"Start {node_names(unregistered)} with {self.release}: they register by themselves."
        yield from self._fenced_brokers(
            [blocker for blocker in blockers if blocker.standing is RegistrationState.FENCED]
        )
        if self.levels.standing.standing in BROKEN and (self._changes or self._kraft):
            first = audit_command(self.history, "check")
            yield f"Without a leader kafka-features is answered by nobody. Get the quorum to work first: {first}"
        ghosts = [blocker for blocker in blockers if blocker.standing is RegistrationState.GHOST]
        if ghosts and not self._unregisters_now:
            yield from self._replace_registrations(ghosts)
            return
        for ghost in ghosts:
            yield f"If {ghost.name} is gone for good: {unregister_controller(self.server, ghost.node_id)}"
        yield from self._change(self._changes)
        yield from self._change(self._kraft)

    @property
    def _unregisters_now(self) -> bool:
        return (self.levels.metadata_version or 0) >= FIRST_LEVEL_THAT_UNREGISTERS_CONTROLLERS

    def _lost_voters(self, living: Sequence[Blocker]) -> Iterator[str]:
        """Voters whose disk was not captured though most were: one that is lost leaves the voters before all else."""
        standing, voter_set = self.levels.standing, current_set(self.history)
        if voter_set is None or self.levels.kraft_version == 0 or len(standing.captured) < standing.majority:
            return
        directories = {voter["voter_id"]: voter["directory_id"] for voter in voter_set["voters"]}
        for blocker in living:
            if blocker.standing is RegistrationState.VOTER and blocker.node_id in standing.missing:
                removal = remove_controller(self.server, blocker.node_id, directories.get(blocker.node_id))
                yield f"If {blocker.name} is lost for good, it leaves the voters first; then ask again: {removal}"

    def _fenced_brokers(self, fenced: Sequence[Blocker]) -> Iterator[str]:
        gone = gone_brokers(self.history)
        given_up = [blocker for blocker in fenced if blocker.node_id in gone]
        if given_up:
            plan = audit_command(self.history, "check", "--rule", "KP021")
            yield f"{capitalized(node_names(given_up))} gave up the role. Once no partition names them ({plan}):"
            for blocker in given_up:
                yield unregister_broker(self.server, blocker.node_id)
        fenced = [blocker for blocker in fenced if blocker.node_id not in gone]
        if not fenced:
            return
        start = f"Start {node_names(fenced)} with {self.release}."
        # A voter that is a broker too leaves the voters first, and without it there may be no quorum to ask.
        alone = [blocker for blocker in fenced if blocker.node_id not in self.levels.standing.voters]
        yield f"{start} Unregister what is gone for good:" if alone else start
        for blocker in alone:
            yield unregister_broker(self.server, blocker.node_id)

    def _replace_registrations(self, ghosts: Sequence[Blocker]) -> Iterator[str]:
        """Before metadata.version 33 (KIP-1312) nothing removes a registration; a new one replaces it (KAFKA-20295).

        An empty controller finds the leader by itself only at kraft.version 1.
        """
        if self.levels.kraft_version == 0:
            if not self._kraft or any(
                blocker.standing is RegistrationState.GHOST for blocker in self._kraft[0].blockers
            ):
                yield (
                    f"No command removes the registration of {node_names(ghosts)}, and at kraft.version 0 no empty "
                    "controller can take its place."
                )
                return
            yield from self._change(self._kraft)
        for ghost in ghosts:
            yield (
                f"Nothing unregisters {ghost.name} yet. If it is gone for good, replace its registration: take an "
                f"empty disk and a {CONFIG} with node.id={ghost.node_id} and without "
                f"controller.quorum.auto.join.enable, and with software of {self.release} run"
            )
            yield format_disk(self.history.cluster_id, joins=True)
            yield f"kafka-server-start -daemon {CONFIG}"
            yield "After some seconds it is registered: stop it. Do not add it to the voters."
        yield from self._change(self._changes)
        if self.levels.release_level >= FIRST_LEVEL_THAT_UNREGISTERS_CONTROLLERS:
            for ghost in ghosts:
                yield unregister_controller(self.server, ghost.node_id)

    @property
    def _changes(self) -> list[FeatureCheck]:
        return [each for each in self.features if each.is_changed and each.name != KRAFT_VERSION_FEATURE]

    @property
    def _kraft(self) -> list[FeatureCheck]:
        """kraft.version where it changes. Kafka raises it even where it refuses the other features of the command."""
        return [each for each in self.features if each.is_changed and each.name == KRAFT_VERSION_FEATURE]

    def _change(self, changes: Sequence[FeatureCheck]) -> Iterator[str]:
        if changes == self._kraft and changes:
            yield "While every voter runs (kraft.version never goes down again):"
        if changes:
            verb = "downgrade" if self.levels.is_downgrade else "upgrade"
            asked = " ".join(f"--feature {feature.name}={feature.new_level}" for feature in changes)
            yield f"kafka-features {self.server} {verb} {asked}"


def _server(levels: FeatureLevels) -> str:
    """The option that names a node which can be asked: a voter, or a broker where controllers do not take commands."""
    if not levels.controllers_register:
        return broker_server(levels.history)
    ids, missing = voter_ids(current_set(levels.history)), levels.standing.missing
    return controller_server(levels.history, sorted(ids, key=lambda voter: (voter in missing, voter)))
