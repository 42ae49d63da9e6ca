"""What of a state Kafka's own commands bring back, and what logs hold that a cluster no longer has."""
