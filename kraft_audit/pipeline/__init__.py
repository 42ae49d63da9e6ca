"""The main road: a plan is read, its log replayed and judged, and every table of a cluster follows."""
