"""The .proto files, and the code made from them, are exactly the wire contract (tests/data/wire-contract.json)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from proxy.api import generate, services

CONTRACT: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data" / "wire-contract.json").read_text())
SCALARS = {
    kind: name.removeprefix("TYPE_").lower()
    for name, kind in descriptor_pb2.FieldDescriptorProto.Type.items()
    if name not in {"TYPE_MESSAGE", "TYPE_ENUM", "TYPE_GROUP"}
}


def module_of(package: str) -> Any:
    return __import__(f"proxy.api.{package.rpartition('.')[2]}_pb2", fromlist=["DESCRIPTOR"])


def file_of(package: str) -> descriptor_pb2.FileDescriptorProto:
    return descriptor_pb2.FileDescriptorProto.FromString(module_of(package).DESCRIPTOR.serialized_pb)


def type_of(field: descriptor_pb2.FieldDescriptorProto) -> str:
    return SCALARS.get(field.type) or field.type_name.lstrip(".")


def facts_of(message: descriptor_pb2.DescriptorProto, name: str) -> list[dict[str, Any]]:
    maps = {f"{name}.{nested.name}": nested for nested in message.nested_type if nested.options.map_entry}
    facts = []
    for field in message.field:
        entry = maps.get(field.type_name.lstrip("."))
        if entry is not None:
            kind = f"map<{type_of(entry.field[0])}, {type_of(entry.field[1])}>"
        else:
            kind = ("repeated " if field.label == field.LABEL_REPEATED else "") + type_of(field)
        fact: dict[str, Any] = {"number": field.number, "name": field.name, "type": kind}
        if field.HasField("oneof_index"):
            fact["oneof"] = message.oneof_decl[field.oneof_index].name
        if field.options.deprecated:
            fact["deprecated"] = True
        facts.append(fact)
    return sorted(facts, key=lambda fact: fact["number"])


def messages_of(prefix: str, messages: Any) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for message in messages:
        if not message.options.map_entry:
            name = f"{prefix}.{message.name}"
            found[name] = facts_of(message, name)
            found.update(messages_of(name, message.nested_type))
    return found


def enums_of(prefix: str, scope: Any) -> dict[str, dict[str, int]]:
    found = {f"{prefix}.{enum.name}": {one.name: one.number for one in enum.value} for enum in scope.enum_type}
    nested = scope.message_type if isinstance(scope, descriptor_pb2.FileDescriptorProto) else scope.nested_type
    for message in nested:
        found.update(enums_of(f"{prefix}.{message.name}", message))
    return found


@pytest.mark.parametrize("package", CONTRACT)
def test_every_message_and_enum_is_the_contracts(package: str) -> None:
    file = file_of(package)
    assert file.package == package
    want = {name: sorted(fields, key=lambda f: f["number"]) for name, fields in CONTRACT[package]["messages"].items()}
    assert messages_of(package, file.message_type) == want
    assert enums_of(package, file) == CONTRACT[package]["enums"]


@pytest.mark.parametrize("package", CONTRACT)
def test_every_service_is_the_contracts(package: str) -> None:
    have = {
        f"{package}.{service.name}": [
            {
                "method": method.name,
                "request": method.input_type.lstrip("."),
                "response": method.output_type.lstrip("."),
                "client_streaming": method.client_streaming,
                "server_streaming": method.server_streaming,
            }
            for method in service.method
        ]
        for service in file_of(package).service
    }
    assert have == CONTRACT[package]["services"]


def test_the_table_of_methods_is_the_contracts() -> None:
    want = {
        (f"/{service}/{method['method']}", method["request"], method["response"], method["server_streaming"])
        for package in CONTRACT.values()
        for service, methods in package["services"].items()
        for method in methods
    }
    have = {
        (one.path, one.request.DESCRIPTOR.full_name, one.response.DESCRIPTOR.full_name, one.is_stream)
        for one in services.METHODS
    }
    assert have == want
    assert len(services.METHODS) == len(want)


def test_generated_code_is_that_of_the_proto_files(tmp_path: Path) -> None:
    """The comparison is by descriptor, so that another release of the generator does not fail it; `make api` updates
    the code.
    """
    whole = tmp_path / "all"
    generate.compile_protos(f"--descriptor_set_out={whole}")
    files = descriptor_pb2.FileDescriptorSet.FromString(whole.read_bytes()).file
    assert {file.name for file in files} == set(generate.protos())
    for file in files:
        assert without_json_names(file) == file_of(file.package), f"{file.name}: run `make api`"


def without_json_names(file: descriptor_pb2.FileDescriptorProto) -> descriptor_pb2.FileDescriptorProto:
    """The file without JSON names, which protoc writes into a descriptor set but not into generated code."""

    def clear(message: descriptor_pb2.DescriptorProto) -> None:
        for field in message.field:
            field.ClearField("json_name")
        for nested in message.nested_type:
            clear(nested)

    for message in file.message_type:
        clear(message)
    return file


def test_generating_twice_gives_the_same_text() -> None:
    assert dict(generate.generated()) == dict(generate.generated())


def test_nothing_generated_is_missing_or_left_over() -> None:
    made = {path.name for path in generate.HERE.glob("*_pb2.py*")}
    assert made == {name.replace(".proto", end) for name in generate.protos() for end in ("_pb2.py", "_pb2.pyi")}
