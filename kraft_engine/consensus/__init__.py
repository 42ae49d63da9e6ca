"""One KRaft replica: elections, log, fetches, voter sets (KIP-595, KIP-853)."""
