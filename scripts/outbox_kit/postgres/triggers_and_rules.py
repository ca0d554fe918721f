"""Read the outbox table's triggers, rules and row security, which can change, drop, reject or hide rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import LiteralString

from outbox_kit.postgres import ddl
from outbox_kit.postgres.client import Connection

# Only a row-level BEFORE trigger can change or drop a row. Its tgtype has the bits 1 (row), 2 (before) and 4 (insert).
# A trigger of a partition has the same effect. Triggers with tgenabled `D` or `R` do not fire in a service's session.
TRIGGERS: LiteralString = """
    select t.tgname || ' (function ' || t.tgfoid::regproc || ')' as name,
           format('alter table %%I.%%I disable trigger %%I', n.nspname, c.relname, t.tgname) as disable_statement
    from pg_trigger t join pg_class c on c.oid = t.tgrelid join pg_namespace n on n.oid = c.relnamespace
    where not t.tgisinternal and t.tgenabled in ('O', 'A') and t.tgtype & 7 = 7
      and (t.tgrelid = to_regclass(%(table)s)
           or t.tgrelid in (select relid from pg_partition_tree(to_regclass(%(table)s))))
    order by 1, 2"""
# ev_type 3 is INSERT. A rule without INSTEAD adds statements, but the row is inserted unchanged.
RULES: LiteralString = """
    select rulename::text as name from pg_rewrite
    where ev_class = to_regclass(%(table)s) and ev_type = '3' and is_instead and ev_enabled in ('O', 'A')
    order by 1"""
POLICIES: LiteralString = """
    select c.relrowsecurity and row_security_active(c.oid) as is_active,
           array(select polname::text from pg_policy where c.relrowsecurity and polrelid = c.oid order by 1) as names
    from pg_class c where c.oid = to_regclass(%(table)s)"""


@dataclass(frozen=True)
class TriggersAndRules:
    """Names of triggers that can change or drop a row, of INSTEAD rules for INSERT, and of row security policies.

    Executing `disable_statements` disables the triggers. `hides_rows` tells whether row security affects the session.
    """

    triggers: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    hides_rows: bool = False
    disable_statements: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Kinds and names of the objects found, such as `triggers: a (function f); rules: b`; empty if none exist."""
        kinds = {"triggers": self.triggers, "rules": self.rules, "policies": self.policies}
        return "; ".join(f"{kind}: {', '.join(names)}" for kind, names in kinds.items() if names)


def read_triggers_and_rules(connection: Connection, table: str) -> TriggersAndRules:
    """Read the triggers, rules and policies that affect inserted rows. If the table does not exist, find none."""
    parameters = {"table": ddl.quoted_text(table)}
    security = connection.execute(POLICIES, parameters).fetchone() or {"is_active": False, "names": []}
    triggers = connection.execute(TRIGGERS, parameters).fetchall()
    return TriggersAndRules(
        triggers=tuple(dict.fromkeys(row["name"] for row in triggers)),  # a partition's copy has the same name
        rules=tuple(row["name"] for row in connection.execute(RULES, parameters)),
        policies=tuple(security["names"]),
        hides_rows=security["is_active"],
        disable_statements=tuple(row["disable_statement"] for row in triggers),
    )
