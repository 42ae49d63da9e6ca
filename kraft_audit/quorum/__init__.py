"""Epochs, voter sets and the committed interval, from what captured disks hold."""
