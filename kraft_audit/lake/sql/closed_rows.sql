-- A table's rows of closed plans: rows of a plan that is still running, or that was given up, are no rows yet.
SELECT * FROM {table} WHERE {visible}
