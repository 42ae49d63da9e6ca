"""How a quorum that lost its majority goes on: from which copy, at what cost, step by step."""
