# SPDX-License-Identifier: Apache-2.0
"""The op table against the schemas of the onnx package: usage operators_peer.py TACIT. Every operator
of ai.onnx is there from its first opset on, with every element type that the standard asks for."""
import json
import re
import subprocess
import sys

from onnx import defs

# Types that the standard lists although the operator has no meaning for them.
NO_MEANING = {
    "Col2Im": {"bool", "c64", "c128", "string"},
    "GridSample": {"bool", "c64", "c128", "string"},
    "NonZero": {"string"},
    "Trilu": {"string"},
    "LabelEncoder": {"f32", "f64", "i16", "i32"},  # keys as tensors or floats: test_text
}
# The operand that decides the element type, where it is not the first.
DATA_OPERAND = {"Where": 1, "OneHot": 2}
FIRST_FORM_REFUSED = {"Tile"}


def text(onnx_name):
    bits = re.fullmatch(r"(u?int|bfloat|float|complex)(\d+)", onnx_name)
    if onnx_name in ("float", "double", "bool", "string"):
        return {"float": "f32", "double": "f64"}.get(onnx_name, onnx_name)
    if bits:
        return {"int": "i", "uint": "u", "float": "f", "bfloat": "bf", "complex": "c"}[bits[1]] + bits[2]
    return onnx_name.replace("float", "f", 1)


def main():
    rows = json.loads(subprocess.check_output([sys.argv[1], "ops", "--json"]))
    ours = {(r["domain"], r["op"]): r for r in rows}
    first, wrong = {}, []
    for schema in defs.get_all_schemas_with_history():
        key = (schema.domain, schema.name)
        first[key] = min(first.get(key, 999), schema.since_version)
    for schema in defs.get_all_schemas():
        key = (schema.domain, schema.name)
        row = ours.get(key)
        if row is None:
            if schema.domain == "" and not schema.deprecated:
                wrong.append(f"{schema.name} is missing")
            continue
        if schema.domain not in ("", "ai.onnx.ml"):
            continue
        if row["first_opset"] != first[key] and schema.name not in FIRST_FORM_REFUSED:
            wrong.append(f"{schema.name}: from opset {row['first_opset']}, not {first[key]}")
        if not row["types"] or not schema.inputs:
            continue
        tensors = [re.fullmatch(r"tensor\((\w+)\)", t) for t in
                   schema.inputs[DATA_OPERAND.get(schema.name, 0)].types]
        lacks = {text(t[1]) for t in tensors if t} - set(row["types"])
        lacks -= NO_MEANING.get(schema.name, set())
        if lacks:
            wrong.append(f"{schema.name} lacks {sorted(lacks)}")
    print("\n".join(wrong) or "the op table has what the schemas ask for")
    return bool(wrong)


sys.exit(main())
