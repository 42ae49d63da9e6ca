"""Findings as people and programs read them: text, exports, the evidence `pack`."""
