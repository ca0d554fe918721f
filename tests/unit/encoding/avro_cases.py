"""Random Avro schemas, and JSON texts that fit them or almost do."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext
from typing import Any

from hypothesis import strategies as st

MAX_DEPTH = 3
LOGICAL_TYPES = {
    "int": ("date", "time-millis"),
    "long": (
        "time-micros",
        *(f"{local}timestamp-{unit}" for local in ("", "local-") for unit in ("millis", "micros", "nanos")),
    ),
    "string": ("uuid", "unknown"),
    "bytes": ("decimal", "big-decimal"),
    "fixed": ("decimal", "uuid", "duration"),
}
FIXED_SIZES = {"uuid": 16, "duration": 12}
PRIMITIVES = ("boolean", "int", "long", "float", "double", "string", "bytes")
NAMED = ("fixed", "enum")
NESTED = ("array", "map", "union", "union", "record", "reference")
NAMESPACES = (None, "a", "a.b")
FIELD_NAMES = ("id", "f", "type", "name", "items", "default", "x_1", "logicalType")
SYMBOLS = ("A", "B", "null", "int")
NO_DEFAULT = object()

HOSTILE_NUMBERS = (
    *("-0", "-0.0", "0e400", "-0.0E+2147483647", "1.0", "1e3", "120E-1", "10e-1", "1.5", "1e18", "1e19", "1E400"),
    *("1e-400", "1e2147483647", "1e-2147483648", "1e2147483648", "1e99999999999", "-0e99999999999", "100e2147483647"),
    *("0.00e-2147483647", "2147483647.0", "2147483648", "-2147483649", "3.4028236e38", "3.4028235677973366e38"),
    *("1.7976931348623159e308", "5e-324", "2e-324", "1.17549429e-38", "1e-46", "123456789012345678901234567890"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "9" * 1000),
    *("9" * 1001, "0." + "1" * 999, "01", "-01", "+1", "1.", ".5", "1e", "-", "NaN", "-Infinity", "0x1", "1_0", "٣"),
)
HOSTILE_TEXTS = (
    *("", "1", "1.5", "+.5", "5.", "1e5", "1e2147483648", "-0", "NaN", "Infinity", "٣", "1_0", " 1", "null", "true"),
    *("2026-11-20", "24:00:00", "infinity", "A", "a", "\\x", "\\x0", "\\x00fF", "\\xGG", "\\X00", "AP8=", "AP8", "A"),
    *("====", "=", "AB==", "AB=", "AAAA=", "A=AA", "AA==AA", "A_-B", "AA A", "é", "\x7f", "\u2028", "😀", "k" * 60_000),
)
# These are JSON text, not the content of a string.
HOSTILE_STRINGS = (
    *(
        '"\\ud800"',
        '"\\udc00\\ud800"',
        '"\\ud83d\\ude00"',
        '"\\ud83d"',
        '"\\u0000"',
        '"\x00"',
        '"\t"',
        '"\\q"',
        '"\\u12"',
    ),
    *('"\\/"', '"', "'x'", '"x', '"\\'),
)
STRUCTURES = (
    *("null", "true", "false", "True", "nul", "[]", "{}", "[1]", "[null, {}]", '{"f": 1}', '{"f": 1, "f": 2}', "", " "),
    *('{"": 1}', "[1,]", "[,1]", '{"f": 1,}', '{"f"}', "{f: 1}", "[1 2]", "[", "{", "]", "[1}", "/**/1", "[[[]]]"),
    *("[" * depth + "]" * depth for depth in (198, 199, 200, 201, 5000)),
)
AROUND = ("\t\r\n ", "\x0c", "\u00a0", "\ufeff", "1", "}", ",", "null", "\x00", "//")


class Reference(str):
    """Name of a type in a schema. `definition` is the type, which is not complete while it is generated."""

    definition: dict[str, Any]


def number_texts() -> st.SearchStrategy[str]:
    """Return a strategy for numbers as JSON, near the limits of the Avro types or between two floats."""
    return st.one_of(
        st.sampled_from(HOSTILE_NUMBERS),
        st.integers(-200, 200).map(str),
        st.integers(-(2**70), 2**70).map(str),
        st.sampled_from([31, 32, 53, 63, 64]).flatmap(
            lambda bits: st.integers(2**bits - 2, 2**bits + 2).flatmap(lambda n: st.sampled_from([str(n), str(-n)]))
        ),
        st.floats(allow_nan=False, allow_infinity=False).map(repr),
        st.floats(allow_nan=False, allow_infinity=False, width=32).map(repr),
        st.decimals(-(10**14), 10**14, places=2).map(str),
        st.decimals(allow_nan=False, allow_infinity=False).map(str),
        st.tuples(st.integers(0, 0x7F7FFFFE), st.sampled_from(["", "0", "1"])).map(lambda x: middle("<f", "<I", *x)),
        st.tuples(st.integers(1023 << 52, 1080 << 52), st.sampled_from(["", "0", "1"])).map(
            lambda x: middle("<d", "<Q", *x)
        ),
    )


def middle(float_format: str, integer_format: str, bits: int, suffix: str) -> str:
    """Return the number halfway between two adjacent floats, followed by a further digit."""
    lower, upper = (
        Decimal(struct.unpack(float_format, struct.pack(integer_format, value))[0]) for value in (bits, bits + 1)
    )
    with localcontext() as context:
        context.prec = 400
        text = f"{(lower + upper) / 2:f}"
    return text + (suffix if "." in text else f".{suffix or 0}")


def time_texts() -> st.SearchStrategy[str]:
    """Return a strategy for dates, times and timestamps, of which some are invalid."""
    numbers = st.tuples(
        st.one_of(
            st.sampled_from([0, 1, 99, 1582, 1900, 1969, 2000, 2262, 9999, 10000, 294247, 999999]), st.integers(0, 3000)
        ),
        st.integers(0, 13),
        st.sampled_from([0, 1, 15, 28, 29, 30, 31, 32]),
        st.integers(0, 24),
        st.integers(0, 60),
        st.integers(0, 60),
    )
    fractions = st.sampled_from(
        ["", "", ".1", ".123", ".1234", ".123456", ".1234567", ".123456789", ".1234567890", ".", ".000000000"]
    )
    offsets = st.sampled_from(
        ["", "Z", "z", "+00", "-18", "+18:00", "+18:59", "+19:00", "+0530", "-05:30", "+5", "+053", "-00:60"]
    )
    forms = st.sampled_from(
        [
            "{date}",
            "{time}",
            "{date}T{time}",
            "{date}T{time}",
            "{date}T{time}",
            "{date} {time}",
            "{date}t{time}",
            "{date}_{time}",
        ]
    )

    def text(parts: tuple[tuple[int, ...], str, str, str]) -> str:
        (year, month, day, hour, minute, second), fraction, offset, form = parts
        date, time = f"{year:04}-{month:02}-{day:02}", f"{hour:02}:{minute:02}:{second:02}{fraction}"
        return form.format(date=date, time=time) + (offset if "T" in form else "")

    return st.tuples(numbers, fractions, offsets, forms).map(text)


def quoted(texts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return a strategy for JSON strings with or without escapes."""
    return st.tuples(texts, st.booleans()).map(lambda x: json.dumps(x[0], ensure_ascii=x[1]))


NUMBER_TEXTS, TIME_TEXTS = number_texts(), time_texts()
BINARY = st.binary(max_size=20)
STRINGS = st.one_of(
    quoted(st.text(max_size=8)), quoted(st.sampled_from(HOSTILE_TEXTS)), st.sampled_from(HOSTILE_STRINGS)
)
ANYTHING = st.one_of(st.sampled_from(STRUCTURES), NUMBER_TEXTS, STRINGS, quoted(TIME_TEXTS))
UUIDS = st.uuids().map(str) | st.uuids().map(lambda value: str(value).upper()) | st.uuids().map(lambda value: value.hex)


class Schemas:
    """Generates one schema."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._types: list[tuple[str, dict[str, Any]]] = []

    def root(self) -> Any:  # noqa: ANN401 - a schema
        kind = self._draw(st.sampled_from(["record"] * 8 + ["union", "array", "enum"]))
        return self._of_kind(kind, MAX_DEPTH, "")

    def _type(self, depth: int, namespace: str) -> Any:  # noqa: ANN401 - a schema
        return self._of_kind(
            self._draw(st.sampled_from(PRIMITIVES + NAMED + (NESTED if depth else ()))), depth, namespace
        )

    def _of_kind(self, kind: str, depth: int, namespace: str) -> Any:  # noqa: ANN401 - a schema
        if kind == "union":
            return self._union(depth, namespace)
        if kind in ("array", "map"):
            return {"type": kind, "items" if kind == "array" else "values": self._type(depth - 1, namespace)}
        if kind == "reference":
            return self._reference(namespace) or "string"
        if kind in PRIMITIVES:
            return self._primitive(kind)
        return self._named(kind, depth, namespace)

    def _primitive(self, kind: str) -> Any:  # noqa: ANN401 - a schema
        logical_type = self._draw(st.sampled_from([None, None, *LOGICAL_TYPES.get(kind, ())]))
        if logical_type is None:
            return self._draw(st.sampled_from([kind, {"type": kind, "doc": "x"}]))
        return {"type": kind, "logicalType": logical_type, **self._decimal(logical_type, 1000)}

    def _decimal(self, logical_type: str | None, size: int) -> dict[str, int]:
        if logical_type != "decimal":
            return {}
        precision = self._draw(st.integers(1, min(30, max(1, (8 * size - 1) * 3 // 10))))
        scale = self._draw(st.integers(0, precision))
        return {"precision": precision} | ({"scale": scale} if scale else {})

    def _named(self, kind: str, depth: int, namespace: str) -> dict[str, Any]:
        name, own = f"T{len(self._types)}", self._draw(st.sampled_from(NAMESPACES))
        own = own if own is not None else namespace
        as_full_name = bool(own) and self._draw(st.booleans())
        schema: dict[str, Any] = {"type": kind, "name": f"{own}.{name}" if as_full_name else name}
        if own != namespace and not as_full_name:
            schema["namespace"] = own
        if self._draw(st.booleans()):
            schema["aliases"] = [f"Old{name}"]
        self._types.append((f"{own}.{name}" if own else name, schema))
        if kind == "enum":
            schema["symbols"] = [*SYMBOLS[: self._draw(st.integers(1, len(SYMBOLS)))]]
            schema |= self._draw(st.sampled_from([{}, {"default": schema["symbols"][0]}]))
        elif kind == "fixed":
            logical_type = self._draw(st.sampled_from([None, *LOGICAL_TYPES["fixed"]]))
            schema["size"] = FIXED_SIZES.get(logical_type or "", 0) or self._draw(st.integers(1, 9))
            if logical_type:
                schema |= {"logicalType": logical_type, **self._decimal(logical_type, schema["size"])}
        else:
            schema["fields"] = [self._field(place, depth - 1, own) for place in range(self._draw(st.integers(0, 4)))]
        return schema

    def _field(self, place: int, depth: int, namespace: str) -> dict[str, Any]:
        name = FIELD_NAMES[place] if self._draw(st.booleans()) else f"f{place}"
        field = {"name": name, "type": self._type(max(depth, 0), namespace)}
        if self._draw(st.integers(0, 5)) == 0:
            field["aliases"] = ["old"]
        default = self._default(field["type"], 0) if self._draw(st.booleans()) else NO_DEFAULT
        return field if default is NO_DEFAULT else {**field, "default": default}

    def _union(self, depth: int, namespace: str) -> list[Any]:
        branches: dict[str, Any] = {}
        for _ in range(self._draw(st.integers(1, 4))):
            branch = self._type(depth - 1, namespace)
            if not isinstance(branch, list):
                branches.setdefault(branch_name(branch), branch)
        found = [*branches.values()]
        place = self._draw(st.integers(-1, len(found)))
        return found if place < 0 and found else [*found[:place], "null", *found[place:]] if place >= 0 else ["null"]

    def _reference(self, namespace: str) -> Reference | None:
        # In a namespace, a name without a dot is a name in this namespace.
        visible = [(name, schema) for name, schema in self._types if "." in name or not namespace]
        if not visible:
            return None
        name, schema = self._draw(st.sampled_from(visible))
        is_simple = namespace and name.rpartition(".")[0] == namespace and self._draw(st.booleans())
        reference = Reference(name.rpartition(".")[2] if is_simple else name)
        reference.definition = schema
        return reference

    def _default(self, schema: Any, depth: int) -> Any:  # noqa: ANN401 - schema and default
        schema = definition(schema)
        if isinstance(schema, list):
            return self._default(self._draw(st.sampled_from(default_branches(schema))), depth)
        kind = schema["type"]
        if kind in ("array", "map"):
            item = self._default(schema["items" if kind == "array" else "values"], depth + 1)
            items = [] if item is NO_DEFAULT or self._draw(st.booleans()) else [item]
            return items if kind == "array" else dict.fromkeys(["é"] * len(items), *items)
        if kind == "record":
            return self._default_record(schema, depth) if depth < 2 and "fields" in schema else NO_DEFAULT
        named = {"enum": schema.get("symbols", [""])[-1], "fixed": "ÿ\x00aÿ\x01bcde"[: schema.get("size")]}
        return named[kind] if kind in named else self._draw(DEFAULTS[kind])

    def _default_record(self, schema: dict[str, Any], depth: int) -> Any:  # noqa: ANN401 - a default
        values = {
            field["name"]: self._default(field["type"], depth + 1)
            for field in schema["fields"]
            if "default" not in field or self._draw(st.booleans())
        }
        return NO_DEFAULT if NO_DEFAULT in values.values() else values


JSON_TYPES = {
    "null": "null",
    "boolean": "boolean",
    **dict.fromkeys(("int", "long", "float", "double"), "number"),
    **dict.fromkeys(("string", "bytes", "fixed"), "string"),
}
DEFAULTS: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.integers(-(2**30), 2**30) | st.floats(-1e30, 1e30),
    "double": st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False),
    "string": st.text(max_size=4),
    "bytes": st.binary(max_size=4).map(lambda data: data.decode("latin-1")),
}


def definition(schema: Any) -> Any:  # noqa: ANN401 - a schema
    """Return a union, or another type as an object."""
    if isinstance(schema, Reference):
        return schema.definition
    return {"type": schema} if isinstance(schema, str) else schema


def branch_name(schema: Any) -> str:  # noqa: ANN401 - a schema
    """Return the name by which a union distinguishes its branches."""
    found = definition(schema)
    return str(found.get("name", found["type"])).rpartition(".")[2]


def default_branches(union: Sequence[Any]) -> list[Any]:
    """Return the branches whose default is not a value of an earlier branch for Avro's Java library."""
    kinds = [definition(branch)["type"] for branch in union]
    json_types = [JSON_TYPES.get(kind, "any") for kind in kinds]
    return [
        branch
        for place, branch in enumerate(union)
        if not place or not {"any", json_types[place]} & {*json_types[:place]}
    ]


class Payloads:
    """Generates JSON texts of one schema. One value in 40 is replaced by a value of any type."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._space = draw(st.sampled_from(["", " ", "\r\n\t"]))

    def text(self, schema: Any) -> str:  # noqa: ANN401 - a schema
        """Return a payload. Some are truncated, or have text before or after the value."""
        before, after = (
            self._draw(st.sampled_from(AROUND)) if self._draw(st.integers(0, 25)) == 0 else self._space
            for _ in range(2)
        )
        text = f"{before}{self._value(schema, 0)}{after}"
        return text[: self._draw(st.integers(0, len(text)))] if self._draw(st.integers(0, 30)) == 0 else text

    def _value(self, schema: Any, depth: int) -> str:  # noqa: ANN401 - a schema
        if self._draw(st.integers(0, 39)) == 39:
            return self._draw(ANYTHING)
        schema = definition(schema)
        if isinstance(schema, list):
            return "null" if depth > 2 * MAX_DEPTH else self._value(self._draw(st.sampled_from(schema)), depth + 1)
        kind = schema["type"]
        if kind in ("record", "map"):
            return self._object(schema, depth)
        if kind == "array":
            items = 0 if depth > 2 * MAX_DEPTH else self._draw(st.integers(0, 3))
            return f"[{self._joined([self._value(schema['items'], depth + 1) for _ in range(items)])}]"
        return self._draw(scalar(kind, schema.get("logicalType"), schema.get("size"), tuple(schema.get("symbols", ()))))

    def _object(self, schema: dict[str, Any], depth: int) -> str:
        if depth > 2 * MAX_DEPTH:
            return "{}"
        if schema["type"] == "map":
            keys = self._draw(st.lists(STRINGS, max_size=2))
            members = [(key, self._value(schema["values"], depth + 1)) for key in keys]
        else:
            members = [
                (json.dumps(field["name"]), self._value(field["type"], depth + 1))
                for field in schema["fields"]
                if self._draw(st.integers(0, 2 if "default" in field else 20))
            ]
        return (
            f"{{{self._joined([f'{key}{self._space}:{self._space}{text}' for key, text in self._changed(members)])}}}"
        )

    def _changed(self, members: list[tuple[str, str]]) -> Sequence[tuple[str, str]]:
        change = self._draw(st.integers(0, 19))
        if change == 0:
            return [*members, *members[:1]]
        if change in (1, 2):
            return [
                *members,
                self._draw(st.tuples(st.sampled_from(['"unknown"', '"old"', '"\\ud800"', '""']), ANYTHING)),
            ]
        if change == 3 and members:
            name, text = members[0]
            return [(f'"\\u{ord(name[1]):04x}{name[2:]}', text), *members[1:]] if name > '"A' else members
        return members[::-1] if change % 2 else members

    def _joined(self, items: Sequence[str]) -> str:
        return f"{self._space},".join(items)


def scalar(kind: str, logical_type: str | None, size: int | None, symbols: tuple[str, ...]) -> st.SearchStrategy[str]:
    """Return a strategy for JSON values of a type that is not nested."""
    if kind in ("int", "long"):
        bits = 31 if kind == "int" else 63
        integers = st.integers(-(2**bits), 2**bits - 1).map(str)
        times = logical_type in LOGICAL_TYPES[kind]
        return (
            st.one_of(integers, integers, quoted(TIME_TEXTS), quoted(TIME_TEXTS)) if times else integers | NUMBER_TEXTS
        )
    if kind in ("bytes", "fixed") and logical_type in ("decimal", "big-decimal"):
        return NUMBER_TEXTS | quoted(NUMBER_TEXTS) | st.integers(-999, 999).map(str)
    if logical_type == "uuid":
        return quoted(UUIDS)
    if kind in ("bytes", "fixed"):
        data = BINARY if size is None else st.binary(min_size=size, max_size=size)
        return quoted(
            data.map(lambda value: base64.b64encode(value).decode()) | data.map(lambda value: f"\\x{value.hex()}")
        )
    others: dict[str, Callable[[], st.SearchStrategy[str]]] = {
        "null": lambda: st.just("null"),
        "boolean": lambda: st.sampled_from(["true", "false"]),
        "enum": lambda: quoted(st.sampled_from(symbols)),
        "string": lambda: STRINGS,
    }
    return others.get(kind, lambda: NUMBER_TEXTS)()


@st.composite
def schemas_and_payloads(draw: st.DrawFn) -> tuple[str, list[str]]:
    """Generate a schema and a few payloads, of which one was generated for another schema now and then."""
    schema = Schemas(draw).root()
    payloads = Payloads(draw)
    return json.dumps(schema), [payloads.text(schema) for _ in range(3)]


@st.composite
def header_texts(draw: st.DrawFn) -> list[str]:
    """Generate values of the column `headers`."""
    schema = {"type": "map", "values": draw(st.sampled_from(["string", ["string", "long", "boolean", "null"]]))}
    nested = {"type": "map", "values": [{"type": "array", "items": ["double", "string", "null"]}, schema]}
    payloads = Payloads(draw)
    return [payloads.text(draw(st.sampled_from([schema, schema, nested]))) for _ in range(3)]
