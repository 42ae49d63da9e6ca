"""The fixtures of tests that run examples of the documentation on Spark."""

from tests.builders.lakes import spark
