"""Findings with one cause, shown as one story: a broker stop, an epoch without a leader, a stopped quorum."""
