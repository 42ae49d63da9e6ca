"""What can be done: forecasts of a crash, plans for partitions without a leader."""
