"""Values as JSON, and back: `as_document` and `parse_text` of Avro."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from streamapp.serdes.avro import AvroSerde
from streamapp.serdes.value_texts import as_document, parse_text

TIME = {"type": "long", "logicalType": "timestamp-millis"}
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
SYMBOLS = {"type": "enum", "name": "State", "symbols": ["open"]}
SHIPPED = {"type": "record", "name": "Shipped", "fields": [{"name": "at", "type": TIME}]}
PAID = {
    "type": "record",
    "name": "Paid",
    "fields": [{"name": "sum", "type": MONEY}, {"name": "by", "type": ["null", "string"], "default": None}],
}
NOON = datetime(2020, 1, 1, 12, tzinfo=UTC)


def of(*branches: Any) -> dict[str, Any]:
    return {"type": "record", "name": "Event", "fields": [{"name": "what", "type": list(branches)}]}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ([SHIPPED, PAID], {"sum": Decimal("1.50"), "by": None}),
        (of("null", SHIPPED, PAID), {"what": {"sum": Decimal("1.50"), "by": "card"}}),
        (of("null", SHIPPED, PAID), {"what": {"at": NOON}}),
        (of("null", SYMBOLS, TIME), {"what": NOON}),
        (of("null", TIME, SYMBOLS), {"what": "open"}),
        (of("null", TIME), {"what": None}),
    ],
)
def test_the_branch_of_a_union_is_found_again(schema: Any, value: Any) -> None:
    """A record without the fields of the document was taken, if it came first in the union."""
    serde = AvroSerde[Any](schema)
    data = serde.serialize(value)
    assert parse_text(serde, json.dumps(as_document(serde, serde.deserialize(data)))) == (value, data)


@pytest.mark.parametrize(
    ("schema", "document", "why"),
    [
        (
            of("null", PAID),
            {"what": {"sum": "1.50", "to": "ann"}},
            r"what: the schema has no fields \['to'\]",
        ),
        (of("null", PAID), {"what": {"by": "card"}}, r"what: the fields \['sum'\] are missing"),
        (of("null", PAID), {"what": {"sum": "much"}}, r"what\.sum: "),
        (of(SHIPPED, PAID), {"what": {"to": "ann"}}, r"what: .*'ann'.* fits no branch"),
        (
            {**SHIPPED, "fields": [*SHIPPED["fields"], {"name": "s", "type": SYMBOLS}]},
            {"at": "2020-01-01T12:00:00Z", "s": "shut"},
            r"s: 'shut' is none of the symbols \['open'\]",
        ),
    ],
)
def test_the_error_names_the_part_that_does_not_fit(schema: Any, document: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_text(AvroSerde[Any](schema), json.dumps(document))
