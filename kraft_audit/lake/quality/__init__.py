"""The gate: expectations of every table, and what the last inspection saw."""
