"""The view `ocsf_compliance_findings`: the table `findings` as OCSF events, for Spark and for DataFusion.

`kraft_audit.findings.ocsf` says what the attributes mean, and gives the same events of log dirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import version
from typing import Final

from kraft_audit.findings.ocsf import (
    CATEGORY,
    CLASS,
    CLOSE,
    COMPLIANCE,
    CREATE,
    LIFECYCLE,
    OCSF_VERSION,
    PRODUCT,
    RULE_ANALYTIC,
    SEVERITY,
    UPDATE,
    Code,
    compliance_of,
)
from kraft_audit.lake.delta import sql_text
from kraft_audit.lake.views import TableReference, sql_file
from kraft_audit.rules.registry import rules
from kraft_audit.tables.gold import FINDINGS

OCSF_FINDINGS: Final = "ocsf_compliance_findings"
_STATE: Final = (
    "CASE WHEN status = 'undecided' AND state <> 'closed' THEN 'undecided' "
    "WHEN is_over OR state = 'closed' THEN 'closed' WHEN waiver IS NOT NULL THEN 'waived' ELSE 'open' END"
)
_ACTIVITY: Final = {"closed": CLOSE, "created": CREATE, "updated": UPDATE}


def ocsf_sql(reference: TableReference, *, is_spark: bool) -> str:
    """The newest event of each finding, with the columns of OCSF_SCHEMA."""
    array = "array" if is_spark else "make_array"
    return sql_file(
        OCSF_FINDINGS,
        findings=reference(FINDINGS.name),
        rules=", ".join(_rule_row(rule, array) for rule in sorted(rules())),
        array=array,
        known_state=_STATE,
        **_of("lifecycle", LIFECYCLE, "state"),
        **_of("status", COMPLIANCE, "check"),
        **_of("severity", SEVERITY),
        **_of("activity", _ACTIVITY),
        category_uid=CATEGORY[0],
        category_name=CATEGORY[1],
        class_uid=CLASS[0],
        class_name=CLASS[1],
        analytic_id=RULE_ANALYTIC[0],
        analytic=RULE_ANALYTIC[1],
        ocsf_version=OCSF_VERSION,
        product=PRODUCT,
        version=version(PRODUCT),
    )


def _of(column: str, codes: Mapping[str, Code], name: str | None = None) -> dict[str, str]:
    """The two expressions that turn a column into a number of an enumeration and into its caption."""
    cases = " ".join(f"WHEN '{value}' THEN CAST({code.id} AS INT)" for value, code in codes.items())
    captions = " ".join(f"WHEN '{value}' THEN '{code.caption}'" for value, code in codes.items())
    name = name or column
    return {f"{name}_id": f"CASE {column} {cases} END", f"{name}_caption": f"CASE {column} {captions} END"}


def _rule_row(rule: str, array: str) -> str:
    known = compliance_of(rule)
    texts = ", ".join(sql_text(text) for text in (rule, known["control"], known["desc"]))
    return f"({texts}, {_array(known['standards'], array)}, {_array(known['requirements'], array)})"


def _array(texts: Iterable[str], array: str) -> str:
    return f"{array}({', '.join(map(sql_text, texts))})"
