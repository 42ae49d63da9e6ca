"""Fixtures of the tests of captures."""

from tests.builders.node_dirs import make_node_dir
