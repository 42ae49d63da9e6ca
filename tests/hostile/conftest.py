"""The fixtures of tests with hostile input."""

from tests.builders.commands import compiled_kernels, kraft_audit
from tests.builders.hostile_clusters import command, write_cluster
