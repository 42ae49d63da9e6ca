"""Partitions replayed: events in, one row for every state out."""
