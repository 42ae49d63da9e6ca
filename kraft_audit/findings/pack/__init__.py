"""The evidence pack: what findings rest on, signed, and how anybody can verify it years later."""
