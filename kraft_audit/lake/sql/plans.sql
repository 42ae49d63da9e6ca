-- The ledger's rows of closed plans, without those that were abandoned.
SELECT * FROM {table} WHERE {visible} AND {not_abandoned}
