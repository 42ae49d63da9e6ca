"""Where bytes come from: a local directory, an object store, an archive."""
