"""The outline of .proto texts and descriptors, and fields whose numbers moved."""

from __future__ import annotations

import base64
from contextlib import suppress
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from hypothesis import given
from hypothesis import strategies as st

from streamapp.serdes.proto_outline import Outline, outline_of, renumbered
from streamapp.serdes.proto_text import proto_text
from tests.unit.serdes.protos import fleet, shop


def by_name(outline: Outline) -> Any:
    """Without the entries of maps, which a text does not name."""
    inner = sorted(by_name(each) for each in outline.messages if not each.name.endswith("Entry"))
    enums = sorted((each.name, sorted(each.fields.items())) for each in outline.enums)
    return outline.name, inner, enums, sorted(outline.fields.items())


@pytest.mark.parametrize("module", [shop, fleet])
def test_the_text_and_the_descriptor_say_the_same(module: Any) -> None:
    file = FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(file)
    described = base64.b64encode(file.SerializeToString()).decode()
    assert by_name(outline_of(proto_text(module.DESCRIPTOR))) == by_name(outline_of(described))
    assert renumbered(described, proto_text(module.DESCRIPTOR)) == ""


def test_the_fields_of_a_text() -> None:
    outline = outline_of(
        """message A { // = 4;
          option deprecated = true; reserved 7, 9 to 11; reserved "old";
          optional int64 a = 1 [default = 3]; oneof one { string b = 2; .shop.B c = 0x3; }
          map < string , .B > d = 4; repeated B e = 5; required group F = 6 { int32 x = 1; } enum G { option allow_alias = true; H = -1; I = 0 [deprecated = true]; }
          extensions 100 to 199; extend A { int32 y = 101; } string option_of = 8; }"""
    )
    (message,) = outline.messages
    assert message.fields == {
        "a": (1, "int64"),
        "b": (2, "string"),
        "c": (3, "shop.B"),
        "d": (4, "map<string,B>"),
        "e": (5, "repeated B"),
        "option_of": (8, "string"),
    }
    assert message.enums[0].fields == {"H": (-1, ""), "I": (0, "")}


def test_a_field_whose_option_has_braces() -> None:
    """The fields with Confluent's tags were lost, so their numbers were not compared."""
    tags = '[(confluent.field_meta) = {tags: ["PII"], params: [{key: "a" value: "b"}]}, deprecated = true]'
    (message,) = outline_of(
        f"""message A {{ string a = 1 {tags}; oneof one {{ B b = 2 {tags}; }} option (whole) = {{ a: 4 }};
        optional group F = 3 [deprecated = true] {{ int32 x = 1; }} repeated int64 c = 4; message B {{}} }}"""
    ).messages
    assert message.fields == {"a": (1, "string"), "b": (2, "B"), "c": (4, "repeated int64")}
    assert [each.name for each in message.messages] == ["B"]


OLD = "message A { string a = 1; int64 b = 2; message In { E e = 1; } } enum E { X = 0; Y = 1; }"


@pytest.mark.parametrize(
    ("new", "why"),
    [
        (OLD, ""),
        (OLD.replace("b = 2;", "b = 2; bool c = 3;"), ""),
        (OLD.replace("string a = 1;", ""), ""),
        (OLD.replace("string a", "optional string a"), ""),
        (OLD.replace("A {", "A { message More { string a = 7; }"), ""),
        (
            OLD.replace("a = 1", "a = 2").replace("b = 2", "b = 1"),
            "A.a is string with number 2 here, and string with number 1 there; A.b is int64 with number 1 here, and int64 with number 2 there",
        ),
        (
            OLD.replace("a = 1;", 'a = 2 [(confluent.field_meta) = {tags: "PII"}];'),
            "A.a is string with number 2 here, and string with number 1 there",
        ),
        (OLD.replace("string a = 1;", "string c = 1;"), "number 1 is A.c here, and A.a there"),
        (
            OLD.replace("int64 b", "string b"),
            "A.b is string with number 2 here, and int64 with number 2 there",
        ),
        (
            OLD.replace("int64 b", "repeated int64 b"),
            "A.b is repeated int64 with number 2 here, and int64 with number 2 there",
        ),
        (OLD.replace("e = 1", "e = 2"), "A.In.e is E with number 2 here, and E with number 1 there"),
        (OLD.replace("Y = 1", "Z = 1"), "number 1 is E.Z here, and E.Y there"),
        (OLD.replace("Y = 1", "Y = 2"), "E.Y is number 2 here, and number 1 there"),
    ],
)
def test_numbers_that_moved_are_named(new: str, why: str) -> None:
    assert renumbered(new, OLD) == why


def test_few_of_many_changes_are_shown() -> None:
    old = "message A {" + "".join(f"int64 a{n} = {n};" for n in range(1, 100)) + "}"
    why = renumbered(old.replace("int64", "string"), old)
    assert why.endswith("; and 94 more")


@given(st.text(max_size=200), st.text("message{} A=1;oneof enum", max_size=200))
def test_any_texts(one: str, other: str) -> None:
    with suppress(ValueError):
        renumbered(one, other)
