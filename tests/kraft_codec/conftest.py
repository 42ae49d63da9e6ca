"""The fixtures that tests of the codec share."""

from tests.builders.decoder_agreement import agree, small_log
from tests.builders.node_dirs import good, make_node_dir, node_dir, storage, unchanged
