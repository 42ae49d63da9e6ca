"""Runs of a quorum as lists of events that can be played again, shortened, stepped through and drawn."""
