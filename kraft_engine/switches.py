"""Every safety rule of the engine has a switch. Tests turn one off and the invariants must catch the damage."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace


@dataclass(frozen=True, slots=True)
class Switches:
    """All true: the protocol as it must be. Each field names the rule that it turns off when false."""

    # Elections (KIP-595, QuorumState, KafkaRaftClient.handleVoteRequest)
    persist_vote_before_reply: bool = True
    one_vote_per_epoch: bool = True
    voter_log_must_be_up_to_date: bool = True
    votes_from_a_majority: bool = True
    step_down_at_higher_epoch: bool = True
    restarted_leader_resigns: bool = True
    epoch_grows_with_each_candidacy: bool = True
    follower_grants_no_vote: bool = True
    only_voters_stand: bool = True
    restart_remembers_epoch: bool = True
    # Replication (KafkaRaftLog, LeaderState)
    leader_checks_divergence: bool = True
    follower_truncates_on_divergence: bool = True
    sync_before_next_fetch: bool = True
    commit_needs_current_epoch: bool = True
    commit_needs_majority: bool = True
    observers_do_not_count: bool = True
    high_watermark_never_decreases: bool = True
    leader_fences_old_epochs: bool = True
    leader_change_is_first: bool = True
    no_data_before_epoch_commit: bool = True
    recovery_cuts_torn_tail: bool = True
    follower_watermark_within_log: bool = True
    truncation_by_epoch: bool = True
    # Snapshots (SnapshotGenerator, KafkaRaftLog)
    snapshot_below_high_watermark: bool = True
    cleaning_keeps_a_snapshot: bool = True
    snapshot_carries_voters: bool = True
    snapshot_at_batch_end: bool = True
    snapshot_epoch_is_of_its_last_record: bool = True
    # Membership (KIP-853 as shipped, facts 7.4 to 7.8)
    change_waits_for_epoch_commit: bool = True
    change_waits_for_committed_predecessor: bool = True
    one_voter_per_change: bool = True
    leader_outside_set_does_not_count_itself: bool = True
    voter_set_reverts_on_truncation: bool = True
    voter_set_applies_when_appended: bool = True
    removed_leader_resigns_at_commit: bool = True
    duplicate_voter_is_refused: bool = True
    voters_match_by_directory: bool = True
    new_voter_has_caught_up: bool = True
    last_voter_stays: bool = True
    # Controller and brokers (KIP-966 as shipped, facts 6)
    high_watermark_needs_min_isr: bool = True
    high_watermark_needs_whole_isr: bool = True
    unclean_shutdown_leaves_elr: bool = True
    unclean_shutdown_leaves_isr: bool = True
    elr_only_below_min_isr: bool = True
    alter_partition_checks_epoch: bool = True
    alter_partition_checks_brokers: bool = True
    isr_expansion_needs_caught_up: bool = True
    fenced_broker_leaves_isr: bool = True
    election_prefers_isr: bool = True
    data_leader_epoch_fences: bool = True
    acks_wait_for_high_watermark: bool = True
    controlled_shutdown_leaves_isr: bool = True
    election_needs_active_broker: bool = True
    elr_leader_leaves_elr: bool = True
    elected_leader_clears_last_known: bool = True
    unclean_leader_is_the_isr: bool = True
    completed_reassignment_leaves_isr: bool = True
    directories_follow_replicas: bool = True
    clean_shutdown_names_its_epoch: bool = True
    broker_waits_for_its_registration: bool = True
    data_leader_checks_divergence: bool = True
    pending_members_hold_the_watermark: bool = True
    snapshot_outside_transaction: bool = True

    def without(self, name: str) -> Switches:
        """These switches with one rule off."""
        if name not in RULES:
            raise ValueError(f"no safety rule is called {name!r}; they are {', '.join(RULES)}")
        return replace(self, **{name: False})


RULES: tuple[str, ...] = tuple(field.name for field in fields(Switches))
ALL_ON = Switches()
