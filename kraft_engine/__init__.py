"""A deterministic KRaft quorum that writes byte-true log dirs: the independent witness of the audit."""
