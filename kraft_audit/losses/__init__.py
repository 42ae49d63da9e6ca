"""Acknowledged records that no serving replica holds: what brokers' disks show of them."""
