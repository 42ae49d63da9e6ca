"""Whether a node may be started, restarted, wiped or removed: what elections and partitions would do."""
