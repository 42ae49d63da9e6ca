"""What brokers' captured disks still hold of lost records, and how to take it from them."""
