"""The Delta tables of findings, episodes and incidents: what each plan found, merged plan by plan.

A finding keeps its row: it is updated when a plan finds it again, closed when a plan no longer finds it, reopened when
it comes back. The merge of a plan carries the plan's number as its application transaction, so that a plan is merged
once, whichever run comes first and whatever died meanwhile. Waivers are applied at every run, as they begin and expire
without any plan.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from kraft_audit.capture.plan import cluster_id_of
from kraft_audit.lake.delta import sql_text
from kraft_audit.lake.gold.gold_merge import GoldLake
from kraft_audit.lake.ledger import contract_schema
from kraft_audit.lake.merges import EngineWords, Merge, MergeAction, MergeClause
from kraft_audit.lake.progress import FindingCounts, failpoint
from kraft_audit.lake.views import (
    SHOWN_FIRST,
    TableReference,
    is_shown_by_disks,
    sql_file,
)
from kraft_audit.rules.rule_model import ACCEPTED, LOSS, FindingState, Waiver
from kraft_audit.rules.rule_settings import is_expired, matches
from kraft_audit.tables import FINDINGS_STAGED, INCIDENTS_STAGED
from kraft_audit.tables.bronze import PLANS
from kraft_audit.tables.contract import Table
from kraft_audit.tables.gold import (
    FINDING_EPISODES,
    FINDINGS,
    HISTORIES,
    INCIDENTS,
    JUDGED_FINDINGS,
    SEVERITIES,
    SITUATIONS,
    WAIVER,
)
from kraft_audit.tables.silver import REPLAYS

STAGED_FINDINGS: Final = FINDINGS_STAGED.name
_WAIVED: Final = pa.schema(
    [
        pa.field("finding_id", pa.string()),
        pa.field("state", pa.string()),
        pa.field("waiver", WAIVER),
        pa.field("expired_waiver", WAIVER),
    ]
)

# The new values of a row, by column: the same expressions for both engines that merge. `{no_waiver}` is NULL of a
# waiver's type.
CLOSED_VALUES: Final = {
    "state": "'resolved'",
    "severity_now": "CAST(NULL AS STRING)",
    "closed_ms": "found.judged_ms",
    "closed_by": "found.gone_by",
    "is_over": "true",
    "waiver": "{no_waiver}",
    "expired_waiver": "{no_waiver}",
    "changed_ms": "found.judged_ms",
    # A history that is merged is not read any more.
    "plan": "CASE WHEN found.gone_by = 'merged' THEN known.plan ELSE {plan} END",
}
SEEN_STATE: Final = (
    "CASE WHEN found.state IN ('open', 'waived', 'acknowledged') "
    "THEN CASE WHEN known.state IN ('waived', 'acknowledged') THEN known.state ELSE 'open' END ELSE found.state END"
)
NEW_STATE: Final = "CASE WHEN found.state IN ('waived', 'acknowledged') THEN 'open' ELSE found.state END"
"""Of a row that a waiver may be about the step about waivers decides, which knows what a person accepts today."""
SEEN_VALUES: Final = {
    "state": SEEN_STATE,
    "severity_now": f"CASE WHEN ({SEEN_STATE}) = 'open' THEN found.severity END",
    "waiver": "CASE WHEN found.is_over THEN {no_waiver} ELSE known.waiver END",
    "last_seen_ms": "greatest(known.last_seen_ms, found.judged_ms)",
    "closed_ms": "CASE WHEN found.is_over THEN coalesce(found.to_ms, known.closed_ms, found.judged_ms) END",
    "closed_by": "CASE WHEN found.is_over THEN 'ended' END",
    "reopened_count": (
        "known.reopened_count + CASE WHEN known.state = 'resolved' AND NOT found.is_over "
        "THEN CAST(1 AS INT) ELSE CAST(0 AS INT) END"
    ),
    "changed_ms": (
        "CASE WHEN (known.state = 'resolved') <> found.is_over OR known.status <> found.status "
        "THEN found.judged_ms ELSE known.changed_ms END"
    ),
}
NEW_VALUES: Final = {
    "waiver": "{no_waiver}",
    "state": NEW_STATE,
    "severity_now": f"CASE WHEN ({NEW_STATE}) = 'open' THEN found.severity END",
    "first_seen_ms": "found.began_ms",
    "last_seen_ms": "found.judged_ms",
    "closed_ms": "CASE WHEN found.is_over THEN coalesce(found.to_ms, found.judged_ms) END",
    "closed_by": "CASE WHEN found.is_over THEN 'ended' END",
    "reopened_count": "CAST(0 AS INT)",
    "first_plan": "CAST(found.began_plan AS BIGINT)",
    "changed_ms": "found.judged_ms",
    "expired_waiver": "{no_waiver}",
}
MAY_BE_WAIVED: Final = "{0}.state IN ('open', 'waived', 'acknowledged')"
WAIVER_VALUES: Final = {
    "state": "found.state",
    "severity_now": "CASE WHEN found.state = 'open' THEN known.severity END",
    "waiver": "found.waiver",
    "expired_waiver": "found.expired_waiver",
    "changed_ms": "CAST({now_ms} AS BIGINT)",
}
_READ: Final = (PLANS.name, STAGED_FINDINGS, HISTORIES.name, REPLAYS.name, FINDINGS.name, FINDING_EPISODES.name)
_SCHEMA: Final = contract_schema(FINDINGS)
_KEY: Final = "known.finding_id = found.finding_id"
SAME_EPISODE: Final = (
    "({0}.from_offset IS NOT DISTINCT FROM {1}.from_offset) "
    "AND (({0}.from_offset IS NOT NULL) OR ({0}.from_ms IS NOT DISTINCT FROM {1}.from_ms))"
)
"""An episode begins at an offset, at a time only where no offset is known."""

CONTINUES: Final = (
    "{1}.scope IN ('partition', 'broker') AND {0}.state <> 'resolved' "
    "AND {0}.from_offset < {1}.from_offset AND {1}.from_offset < {1}.log_start"
)
"""An episode that lasts where the log now begins was open there: Kafka has deleted the record that it began with."""
BEGIN_VALUES: Final = {
    name: f"CASE WHEN {CONTINUES.format('known', 'found')} THEN known.{name} ELSE found.{name} END"
    for name in ("from_offset", "from_ms")
}

NONE_DECLARED: Final[Mapping[str, Mapping[str, str]]] = {}
NO_EPISODE: Final = {"of_episode": "", "by_episode": "", "and_episode": ""}
BY_EPISODE: Final = {
    "of_episode": "from_offset AS of_offset, from_ms AS of_ms,",
    "by_episode": ", from_offset, from_ms",
    "and_episode": " AND (of_offset IS NOT DISTINCT FROM from_offset) AND (of_ms IS NOT DISTINCT FROM from_ms)",
}
"""What an episode that stood under another id must have in common; of a finding the rule and the subject are enough."""
NONE_STOOD: Final = (
    "SELECT CAST(NULL AS STRING) AS cluster_id, CAST(NULL AS STRING) AS rule, CAST(NULL AS STRING) AS subject, "
    "CAST(NULL AS BIGINT) AS from_offset, CAST(NULL AS BIGINT) AS from_ms, CAST(NULL AS BIGINT) AS first_seen_ms, "
    "CAST(NULL AS BIGINT) AS first_plan WHERE false"
)


class FindingsTable:
    """The table `findings` of one lake."""

    def __init__(self, gold: GoldLake, waivers: Sequence[Waiver] = ()) -> None:
        self.gold = gold
        self.waivers = tuple(waivers)

    def update(self, now_ms: int | None = None) -> list[int]:
        """Merge every closed plan that is not merged yet, in the order of closing, then the waivers as of now.

        Returns the plans merged.
        """
        closed = self.gold.ledger.status().closed
        if not self.gold.lake.exists(STAGED_FINDINGS):
            return []
        done = self.gold.merged_place(FINDINGS.name)
        # Situations are summed up after a run; who asks for them finds the table.
        for table in (*(table for table, _ in self._parts), SITUATIONS):
            self.gold.create(table)
        if done < closed:
            self.gold.create(FINDINGS)
        self._update_parts(done)
        merged = []
        for place, plan in self.gold.ledger.closings(done) if done < closed else ():
            merged += [plan] if self._merge(place, plan) else []
            # Plan by plan: a finding that moves to another history takes the time of its episodes with it.
            self._update_parts(place)
        if closed:
            self._update_waivers(time.time_ns() // 1_000_000 if now_ms is None else now_ms)
        return merged

    def counts(self) -> FindingCounts:
        """How many findings of each kind last."""
        if not self.gold.lake.exists(FINDINGS.name):
            return FindingCounts()
        rows = self.gold.lake.query(
            "SELECT state, severity, expired_waiver IS NOT NULL AS is_expired, count(*) AS n FROM findings "
            "WHERE state <> 'resolved' GROUP BY state, severity, expired_waiver IS NOT NULL",
            FINDINGS.name,
        ).to_pylist()
        open_: Counter[str] = Counter()
        for row in rows:
            open_[row["severity"]] += row["n"] if row["state"] == FindingState.OPEN else 0
        return FindingCounts(
            {severity: open_[severity] for severity in SEVERITIES},
            sum(row["n"] for row in rows if row["state"] in ACCEPTED),
            sum(row["n"] for row in rows if row["is_expired"]),
            sum(row["n"] for row in rows if row["state"] == FindingState.UNDECIDED),
        )

    @property
    def _parts(self) -> tuple[tuple[Table, Callable[[int], Merge]], ...]:
        """The tables beside findings, each with the merge of one plan."""
        return ((FINDING_EPISODES, self.episodes_of), (INCIDENTS, incidents_of))

    def _update_parts(self, closed: int) -> None:
        """Merge the same plans, up to a place in the order of closing, into the tables beside findings."""
        for table, merge_of in self._parts:
            done = self.gold.merged_place(table.name)
            for place, plan in self.gold.ledger.closings(done) if done < closed else ():
                if place <= closed:
                    self.gold.merge(table.name, merge_of(plan), place)
                    failpoint(f"after-{table.name}:{plan}")

    def _merge(self, place: int, plan: int) -> bool:
        merged = self.gold.merge(FINDINGS.name, self.merge_of(plan), place)
        failpoint(f"after-findings:{plan}")
        return merged

    def merge_of(self, plan: int) -> Merge:
        """The merge of one plan's findings into the table."""
        names = JUDGED_FINDINGS.column_names
        # Rules do not decide about waivers: those have a merge of their own.
        judged = {name: f"found.{name}" for name in names if name not in ("finding_id", "waiver")}
        again = {**judged, **BEGIN_VALUES}

        def changes(reference: TableReference, _: EngineWords) -> str:
            words = {"same": "finding_id", "is_same": "true", "columns": ", ".join(names)}
            return _changes(reference, FINDINGS, plan, {**words, **NO_EPISODE, **self._origins(reference, plan)})

        clauses = (
            MergeClause(MergeAction.UPDATE, _with(CLOSED_VALUES, plan=plan), "found.is_gone"),
            MergeClause(MergeAction.UPDATE, _with({**again, **SEEN_VALUES}, plan=plan), "NOT found.is_gone"),
            MergeClause(
                MergeAction.INSERT, _with({"finding_id": "found.finding_id", **judged, **NEW_VALUES}, plan=plan)
            ),
        )
        return Merge(_KEY, clauses, changes, _READ, self._row_count(plan), null_type=_SCHEMA.field("waiver").type)

    def episodes_of(self, plan: int) -> Merge:
        """The merge of one plan's episodes into `finding_episodes`."""
        own = set(FINDING_EPISODES.column_names)
        names = [name for name in JUDGED_FINDINGS.column_names if name in own]
        judged = {name: f"found.{name}" for name in names if name not in ("finding_id", "from_offset")}

        def changes(reference: TableReference, _: EngineWords) -> str:
            words = {"same": "finding_id, coalesce(from_offset, from_ms)"}
            is_same = f"({SAME_EPISODE} OR {CONTINUES})".format("known", "reported")
            words |= {"is_same": is_same, "columns": ", ".join(names), **BY_EPISODE}
            return _changes(reference, FINDING_EPISODES, plan, {**words, **self._origins(reference, plan)})

        def of_episode(values: Mapping[str, str]) -> dict[str, str]:
            return {name: text for name, text in _with(values, plan=plan).items() if name in own}

        again = {name: BEGIN_VALUES.get(name, value) for name, value in judged.items()}
        first = {name: f"found.{name}" for name in ("finding_id", "from_offset")}
        state = {"state": "CASE WHEN found.is_over THEN 'resolved' ELSE 'open' END"}
        clauses = (
            MergeClause(MergeAction.UPDATE, of_episode(CLOSED_VALUES), "found.is_gone"),
            MergeClause(MergeAction.UPDATE, {**again, **of_episode(SEEN_VALUES), **state}, "NOT found.is_gone"),
            MergeClause(MergeAction.INSERT, {**first, **judged, **of_episode(NEW_VALUES), **state}),
        )
        key = f"{_KEY} AND ({SAME_EPISODE} OR {CONTINUES})".format("known", "found")
        return Merge(key, clauses, changes, _READ, self._row_count(plan))

    def _origins(self, reference: TableReference, plan: int) -> dict[str, str]:
        """The findings that stood in the lake under other ids, and the ids that stood for several logs.

        They are those of histories that the plan splits or merges.
        """
        origins = self.gold.ledger.origins(plan)
        findings, episodes = reference(FINDINGS.name), reference(FINDING_EPISODES.name)
        began = "{}.from_offset, {}.from_ms, {}.first_seen_ms, {}.first_plan"
        stood = [
            f"SELECT {sql_text(history)} AS cluster_id, known.rule, subject, "  # noqa: S608  # quoted
            f"{began.format(*['episodes'] * 4)} FROM {findings} AS known "
            f"JOIN {episodes} AS episodes ON episodes.finding_id = known.finding_id "
            f"WHERE known.cluster_id = {sql_text(origin)}"
            for history, origin in origins
        ]
        split = ", ".join(sql_text(origin) for _, origin in origins) or "''"
        return {"stood": " UNION ALL ".join(stood) or NONE_STOOD, "split": split}

    def _row_count(self, plan: int) -> int:
        """How many rows a merge may have to hold: the plan's findings, and those that are not closed."""
        lake = self.gold.lake
        staged = lake.query(f"SELECT count(*) AS n FROM {STAGED_FINDINGS} WHERE plan = {plan}", STAGED_FINDINGS)  # noqa: S608
        known = lake.query("SELECT count(*) AS n FROM findings WHERE state <> 'resolved'", FINDINGS.name)
        return int(staged.column("n")[0].as_py()) + int(known.column("n")[0].as_py())

    def _update_waivers(self, now_ms: int) -> None:
        declared = self._declared()
        changed = list(waived_rows(self._waivable(declared), self.waivers, now_ms, declared))
        if not changed:
            return
        rows = pa.Table.from_pylist(changed, schema=_WAIVED)
        clause = MergeClause(MergeAction.UPDATE, _with(WAIVER_VALUES, now_ms=now_ms), MAY_BE_WAIVED.format("known"))
        self.gold.merge(FINDINGS.name, Merge(_KEY, (clause,), rows=rows))

    def _declared(self) -> dict[str, dict[str, str]]:
        """By id the findings that a declared rescue explains, with its words, as the plan says that judged them last.

        A finding with another episode that lasts is none.
        """
        rows = self.gold.lake.query(
            "SELECT DISTINCT staged.finding_id, staged.waiver FROM findings AS known "  # noqa: S608
            f"JOIN {STAGED_FINDINGS} AS staged ON staged.finding_id = known.finding_id AND staged.plan = known.plan "
            f"WHERE {MAY_BE_WAIVED.format('known')} AND staged.waiver IS NOT NULL AND NOT EXISTS "
            f"(SELECT 1 FROM {STAGED_FINDINGS} AS other WHERE other.finding_id = known.finding_id "
            "AND other.plan = known.plan AND other.waiver IS NULL AND NOT other.is_over)",
            *(FINDINGS.name, STAGED_FINDINGS),
        ).to_pylist()
        return {row["finding_id"]: row["waiver"] for row in rows}

    def _waivable(self, declared: Collection[str]) -> list[dict[str, Any]]:
        """The findings that a waiver applies to, has applied to, or may apply to."""
        rules = ", ".join(sorted({f"'{waiver.rule}'" for waiver in self.waivers})) or "''"
        ids = ", ".join(map(sql_text, sorted(declared))) or "''"
        rows: list[dict[str, Any]] = self.gold.lake.query(
            "SELECT finding_id, cluster_id, rule, subject, from_ms, state, waiver, expired_waiver FROM findings "  # noqa: S608
            f"WHERE {MAY_BE_WAIVED.format('findings')} "
            f"AND (rule IN ({rules}) OR finding_id IN ({ids}) OR waiver IS NOT NULL OR expired_waiver IS NOT NULL)",
            FINDINGS.name,
        ).to_pylist()
        return rows


def _changes(reference: TableReference, table: Table, plan: int, words: Mapping[str, str]) -> str:
    tables = {"plans": PLANS, "staged": FINDINGS_STAGED, "histories": HISTORIES, "replays": REPLAYS, "known": table}
    places = {name: reference(each.name) for name, each in tables.items()}
    own = {"plan": plan, "shown_first": SHOWN_FIRST, "is_known_by_disks": is_shown_by_disks("known")}
    return sql_file("findings_of_plan", **places, **own, **words)


def _with(expressions: Mapping[str, str], **values: int) -> dict[str, str]:
    """The expressions with their numbers filled in; `{no_waiver}` is left for the engine to fill in."""
    return {name: text.format(no_waiver="{no_waiver}", **values) for name, text in expressions.items()}


def waived_rows(
    rows: Iterable[Mapping[str, Any]],
    waivers: Sequence[Waiver],
    now_ms: int,
    declared: Mapping[str, Mapping[str, str]] = NONE_DECLARED,
) -> Iterable[dict[str, Any]]:
    """The changes after which exactly the findings that the waivers cover at `now_ms`, or that are `declared`, are
    waived."""
    for row in rows:
        ids = {row["cluster_id"], cluster_id_of(row["cluster_id"])}
        matching = [
            waiver
            for waiver in waivers
            # A waiver of a cluster id is about all its histories, as on a laptop.
            if any(
                matches(waiver, rule=row["rule"], cluster_id=each, subject=row["subject"], from_ms=row["from_ms"])
                for each in ids
            )
        ]
        valid = next((waiver for waiver in matching if not is_expired(waiver, now_ms)), None)
        of_rescue = declared.get(row["finding_id"])
        expired = matching[0] if matching and valid is None and of_rescue is None else None
        wanted = {
            "finding_id": row["finding_id"],
            "state": _state(row["rule"], is_accepted=valid is not None or of_rescue is not None),
            "waiver": of_rescue if valid is None else _who(valid),
            "expired_waiver": _who(expired),
        }
        if any(row[name] != value for name, value in wanted.items()):
            yield wanted


def _state(rule: str, *, is_accepted: bool) -> str:
    if not is_accepted:
        return FindingState.OPEN.value
    return (FindingState.ACKNOWLEDGED if rule == LOSS else FindingState.WAIVED).value


def _who(waiver: Waiver | None) -> dict[str, str] | None:
    return None if waiver is None else {"who": waiver.who, "why": waiver.why, "until": waiver.until}


_COLUMNS: Final = tuple(name for name in INCIDENTS.column_names if name not in ("closed_by", "first_plan", "plan"))


def incidents_of(plan: int) -> Merge:
    """The merge of one plan's incidents. One that was open and is no longer found is not open."""

    def changes(reference: TableReference, _: EngineWords) -> str:
        tables = {"plans": PLANS, "staged": INCIDENTS_STAGED, "histories": HISTORIES, "known": INCIDENTS}
        places = {name: reference(table.name) for name, table in tables.items()}
        return sql_file("incidents_of_plan", **places, plan=plan, columns=", ".join(_COLUMNS))

    values = {name: f"found.{name}" for name in _COLUMNS}
    values |= {"closed_by": "CASE WHEN found.is_open THEN NULL ELSE 'ended' END", "plan": f"CAST({plan} AS BIGINT)"}
    seen = {name: value for name, value in values.items() if name != "incident_id"}
    closed = "CASE WHEN found.gone_by = 'merged' THEN known.plan ELSE CAST({} AS BIGINT) END".format(plan)  # noqa: UP032
    gone = {"state": "'resolved'", "is_open": "false", "closed_by": "found.gone_by", "plan": closed}
    clauses = (
        MergeClause(MergeAction.UPDATE, gone, "found.is_gone"),
        MergeClause(MergeAction.UPDATE, seen, "NOT found.is_gone"),
        MergeClause(MergeAction.INSERT, {**values, "first_plan": f"CAST({plan} AS BIGINT)"}),
    )
    tables = (PLANS.name, INCIDENTS_STAGED.name, HISTORIES.name, INCIDENTS.name)
    return Merge("known.incident_id = found.incident_id", clauses, changes, tables)
