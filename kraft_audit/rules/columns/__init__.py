"""What rules compute with: states, intervals and lists in columns."""
