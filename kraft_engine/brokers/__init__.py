"""Kafka on top of Raft: the controller, its image, brokers and their replicas."""
