"""Invariants that hold after every event, and the switches that turn a safety rule off."""
