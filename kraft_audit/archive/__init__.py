"""The log kept in Delta for ever: runs of batches, captures put together again from them, export."""
