"""Text as Kafka's own tools print it."""
