"""The drills, one a line: what they have in common stands in `drill.py`."""

from __future__ import annotations

from typing import Final

from tests.drills.drill import Back, Cut, Damage, Drill, Lost

DATA: Final = (Lost.CREATED, Lost.DELETED, Lost.REASSIGNED)
"""What touches the brokers' own logs."""
SETTINGS: Final = (Lost.CONFIGURED, Lost.ACL)
STRAYS: Final = (Lost.MADE_AGAIN, Lost.PARTITIONS, Lost.INTERNAL)
NIGHT: Final = (Lost.CREATED, Lost.PARTITIONS, Lost.CONFIGURED, Lost.ACL)
"""What was done since the nightly backup."""
DRILLS: Final = (
    # One of three is left
    Drill("dynamic", "4.3.1", ci=True),
    Drill("dynamic-producer", "4.3.1", brokers=2, producing=True, elr=True),
    Drill("dynamic-old-ids", "4.0.2", old_ids=True),
    Drill("dynamic-running", "4.3.1", brokers=2, producing=True, runs_on=True),
    Drill("dynamic-moved", "4.3.1", moved=True),
    Drill("dynamic-snapshots", "4.3.1", snapshots=True, alone=True),
    Drill("dynamic-3.9", "3.9.2", brokers=2, producing=True),
    Drill("dynamic-3.9.0", "3.9.0"),
    Drill("dynamic-4.1", "4.1.1", elr=True),
    Drill("dynamic-4.4", "4.4.0", brokers=2, elr=True),
    Drill("static", "4.3.1", is_static=True),
    Drill("static-3.9", "3.9.2", is_static=True, brokers=2, producing=True),
    Drill("static-3.9.0", "3.9.0", is_static=True),
    Drill("static-moved", "4.0.2", is_static=True, moved=True, alone=True),
    Drill("authorizer", "4.3.1", brokers=2, users=True),
    Drill("authorizer-by-hand", "4.3.1", users=True, by_hand=True, moved=True),
    Drill("listeners-tls", "4.3.1", users=True, tls=True, ci=True),
    Drill("listeners-static", "4.3.1", is_static=True, users=True),
    Drill("static-by-hand", "3.9.2", is_static=True, by_hand=True),
    # Two of five are left, and brokers only
    Drill("two-of-five", "4.3.1", voters=5, source=4),
    Drill("two-of-five-static", "3.9.2", voters=5, source=5, is_static=True),
    Drill("broker-copy", "3.9.2", source=101),
    Drill("broker-copy-static", "4.3.1", source=101, is_static=True),
    Drill("broker-copy-snapshots", "4.0.2", source=102, brokers=2, snapshots=True, elr=True),
    # Brokers saw more than the rescued state has
    Drill("stale-voter", "4.0.2", brokers=2, cut=Cut.STALE, lost=DATA),
    Drill("stale-settings", "4.3.1", cut=Cut.STALE, lost=SETTINGS),
    Drill("stale-snapshots", "4.3.1", brokers=2, cut=Cut.STALE, lost=(*DATA, *SETTINGS), snapshots=True),
    Drill("stale-alone", "4.3.1", brokers=2, cut=Cut.STALE, lost=(Lost.CREATED, Lost.ACL), alone=True),
    Drill("stale-registered", "3.9.2", brokers=2, cut=Cut.STALE, lost=(Lost.REGISTERED, Lost.REASSIGNED)),
    Drill("stale-static", "4.3.1", brokers=2, is_static=True, cut=Cut.STALE, lost=DATA, producing=True),
    Drill("stale-static-3.9", "3.9.2", is_static=True, cut=Cut.STALE, lost=(Lost.DELETED,), snapshots=True),
    Drill("stale-strays", "4.3.1", brokers=2, cut=Cut.STALE, lost=STRAYS, ci=True),
    Drill("stale-rights", "4.3.1", cut=Cut.STALE, lost=(Lost.RIGHTS, Lost.ACL)),
    Drill("to-offset", "4.3.1", brokers=2, cut=Cut.OFFSET, lost=(Lost.CREATED, Lost.REASSIGNED)),
    Drill("to-offset-snapshots", "3.9.2", cut=Cut.OFFSET, lost=SETTINGS, moved=True, snapshots=True),
    Drill("poisoned", "4.3.1", cut=Cut.POISON, brokers=2, lost=(Lost.DELETED, Lost.ACL)),
    Drill("poisoned-static", "3.9.2", is_static=True, cut=Cut.POISON),
    # Copies are older than the cluster, or damaged
    Drill("night-old", "4.3.1", brokers=2, cut=Cut.BACKUP, lost=NIGHT, alone=True, source=1),
    Drill(
        "night-old-brokers",
        "4.3.1",
        brokers=2,
        cut=Cut.BACKUP,
        lost=NIGHT,
        alone=True,
        adds_brokers=True,
        source=1,
        ci=True,
    ),
    Drill("damaged-files", "4.3.1", damage=(Damage.NEWEST_SNAPSHOT, Damage.NO_QUORUM_STATE), snapshots=True),
    Drill("damaged-log", "4.3.1", damage=(Damage.BATCH,), source=101),
    Drill("snapshot-alone", "4.3.1", damage=(Damage.SNAPSHOT_ALONE,), snapshots=True, alone=True),
    Drill("open-transaction", "4.3.1", cut=Cut.TRANSACTION, alone=True),
    # The old majority returns
    Drill("returns", "4.3.1", back=Back.AFTER),
    Drill("returns-moved", "4.0.2", moved=True, back=Back.AFTER),
    Drill("returns-static", "4.3.1", is_static=True, back=Back.AFTER),
    Drill("returns-static-3.9", "3.9.2", is_static=True, back=Back.AFTER, cut=Cut.STALE, lost=SETTINGS),
    Drill("returns-old-ids", "3.9.2", old_ids=True, back=Back.AFTER),
    Drill("returns-early", "4.3.1", back=Back.AFTER, grows=False),
    Drill("against", "4.3.1", back=Back.AGAINST),
    Drill("against-3.9", "3.9.2", back=Back.AGAINST),
    Drill("against-moved", "4.3.1", moved=True, back=Back.AGAINST),
    Drill("against-static", "4.0.2", is_static=True, back=Back.AGAINST),
    Drill("against-static-3.9", "3.9.2", is_static=True, back=Back.AGAINST),
    Drill("against-static-wiped", "4.3.1", is_static=True, back=Back.WIPED),
    Drill("against-static-wiped-3.9", "3.9.2", is_static=True, back=Back.WIPED),
    # Below 3.9 a quorum stays static
    Drill("before-3.9", "3.8.1", is_static=True),
    Drill("before-3.9-snapshots", "3.8.1", is_static=True, brokers=2, cut=Cut.STALE, lost=DATA, snapshots=True),
    Drill("before-3.9-against", "3.8.1", is_static=True, back=Back.AGAINST),
    Drill("before-3.9-wiped", "3.7.2", is_static=True, back=Back.WIPED),
    Drill("before-3.9-broker-copy", "3.7.2", is_static=True, source=101, producing=True),
    Drill("static-stays", "4.3.1", is_static=True, stays_static=True),
    # Nodes that are controller and broker in one process
    Drill("combined", "4.3.1", combined=True, brokers=0, old_ids=True, elr=True),
    Drill("combined-static-3.9", "3.9.2", is_static=True, combined=True, brokers=0, back=Back.AFTER),
    Drill("combined-of-five", "3.9.2", voters=5, source=4, combined=True, brokers=0),
    Drill(
        "combined-stale",
        "4.3.1",
        combined=True,
        brokers=2,
        cut=Cut.STALE,
        lost=(*DATA, *SETTINGS),
        moved=True,
        elr=True,
    ),
    Drill("combined-apart", "4.3.1", combined=True, brokers=1, moved=True, back=Back.AFTER, elr=True),
    Drill("combined-before-3.9", "3.8.1", is_static=True, combined=True, brokers=0),
    Drill("combined-by-hand", "4.3.1", combined=True, brokers=0, by_hand=True, elr=True),
)
