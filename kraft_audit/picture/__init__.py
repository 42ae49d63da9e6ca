"""The incident picture: what each node and the partitions went through, with time to the right, as one SVG."""
