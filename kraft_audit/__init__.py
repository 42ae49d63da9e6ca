"""Audit of KRaft metadata logs: pipeline, replay, rules and command line."""
