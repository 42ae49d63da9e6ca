"""Messages about what is open: their settings, their texts, and how they are sent."""
