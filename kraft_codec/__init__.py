"""Bytes of KRaft metadata logs to values and Arrow columns, and back. No Spark, no clock, no network."""
