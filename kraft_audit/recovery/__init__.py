"""What can be done: `may_i`, `lost_quorum`, `restore`; a crash foreseen, partitions without a leader, upgrades."""
