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
    restart_remembers_vote: bool = True
    vote_is_for_one_directory: bool = True
    leader_grants_no_vote: bool = True
    candidate_grants_no_vote: bool = True
    resigned_grants_no_vote: bool = True
    vote_needs_no_known_leader: bool = True
    voter_adopts_higher_epoch: bool = True
    voter_fences_old_epochs: bool = True
    votes_name_their_voter: bool = True
    votes_answer_this_epoch: bool = True
    pre_votes_are_no_votes: bool = True
    only_voters_are_counted: bool = True
    epoch_never_falls: bool = True
    epoch_is_persisted: bool = True
    leadership_is_persisted: bool = True
    requests_name_their_cluster: bool = True
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
    answers_match_their_requests: bool = True
    fetched_batches_are_of_this_epoch: bool = True
    leader_refuses_later_epochs: bool = True
    diverging_fetch_does_not_count: bool = True
    leader_syncs_what_it_counts: bool = True
    # Progress of the quorum: without them it, or a replica of it, stands still when all faults are over
    election_timer_keeps_running: bool = True
    candidate_gives_up: bool = True
    unattached_asks_for_the_leader: bool = True
    offered_snapshot_is_fetched: bool = True
    # Snapshots (SnapshotGenerator, KafkaRaftLog)
    snapshot_below_high_watermark: bool = True
    cleaning_keeps_a_snapshot: bool = True
    snapshot_carries_voters: bool = True
    snapshot_at_batch_end: bool = True
    snapshot_epoch_is_of_its_last_record: bool = True
    static_snapshot_names_no_voters: bool = True
    installed_snapshot_brings_its_voters: bool = True
    restart_reads_voters_from_log: bool = True
    # Membership (KIP-853 as shipped)
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
    changes_need_kraft_version: bool = True
    new_voter_has_a_directory: bool = True
    new_voter_supports_kraft_version: bool = True
    removal_names_a_directory: bool = True
    upgrade_needs_every_voter: bool = True
    upgrade_waits_for_epoch_commit: bool = True
    upgrade_is_one_batch: bool = True
    # Controller and brokers (KIP-966 as shipped)
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
    election_needs_online_directory: bool = True
    offline_directory_leaves_isr: bool = True
    open_transaction_is_aborted: bool = True
    answers_wait_for_commit: bool = True
    unfencing_needs_caught_up: bool = True
    new_registration_is_fenced: bool = True
    restarted_broker_leaves_isr: bool = True
    unregistered_broker_leaves_isr: bool = True
    new_partition_isr_is_active: bool = True
    elr_leads_only_without_isr: bool = True
    elr_leader_is_the_isr: bool = True
    unclean_election_needs_permission: bool = True
    unclean_election_empties_elr: bool = True
    last_known_leader_is_last_resort: bool = True
    last_known_leader_is_active: bool = True
    removed_replica_bumps_leader_epoch: bool = True
    shrink_bumps_leader_epoch_before_3_6: bool = True
    reassignment_waits_for_adding: bool = True
    reassignment_to_fewer_waits_for_isr: bool = True
    cancelled_reassignment_keeps_an_isr: bool = True
    min_isr_change_clears_elr: bool = True
    node_min_isr_needs_elr_off: bool = True
    cluster_min_isr_stays_with_elr: bool = True
    elr_begins_with_cluster_min_isr: bool = True
    metadata_version_never_falls: bool = True
    alter_partition_checks_broker_epochs: bool = True
    alter_partition_comes_from_leader: bool = True
    alter_partition_isr_is_of_replicas: bool = True
    alter_partition_isr_has_leader: bool = True
    recovering_leader_is_alone: bool = True
    recovered_partition_stays_recovered: bool = True
    isr_expansion_reaches_epoch_start: bool = True
    data_answers_follow_the_log: bool = True
    clean_shutdown_syncs: bool = True

    isr_leavers_join_elr: bool = True
    clean_restart_keeps_elr: bool = True
    last_known_leader_is_the_last_leader: bool = True
    pending_members_do_not_count: bool = True
    # Progress of brokers and partitions
    unfenced_broker_brings_elections: bool = True
    alter_partition_is_repeated: bool = True
    stale_broker_registers_again: bool = True

    def admit_unawaited(self, message: str) -> bool:
        """Whether a rule that is off lets an answer of this type pass that the node does not await."""
        late_vote = message == "VoteResponse" and not self.votes_answer_this_epoch
        late_batches = message == "FetchResponse" and not self.fetched_batches_are_of_this_epoch
        return late_vote or late_batches or not self.answers_match_their_requests

    def without(self, name: str) -> Switches:
        """These switches with one rule off."""
        if name not in RULES:
            raise ValueError(f"no safety rule is called {name!r}; they are {', '.join(RULES)}")
        return replace(self, **{name: False})


RULES: tuple[str, ...] = tuple(field.name for field in fields(Switches))
ALL_ON = Switches()
