"""The files of one log dir: segments, snapshots, quorum-state, meta.properties, checkpoints, indexes."""
