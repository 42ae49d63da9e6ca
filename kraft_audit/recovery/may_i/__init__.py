"""What may be done to a node, and which one a roll takes next: what elections and partitions would do."""
