"""Text that people read: output, table layout, times, names."""
