# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of fuzz/corpus anew: python fuzz/make_corpus.py (needs onnx and numpy). Small
files that between them use every field the readers know."""
import hashlib
import io
import json
import pathlib
import struct

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

root = pathlib.Path(__file__).parent / "corpus"


def save(target, name, data):
    folder = root / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def info(name, dtype=TensorProto.FLOAT, shape=("N", 2)):
    return helper.make_tensor_value_info(name, dtype, shape)


def model(name, nodes, inits=(), opset=18, functions=(), inputs=None, outputs=None, **more):
    graph = helper.make_graph(nodes, name, inputs or [info("x")], outputs or [info("y")],
                              initializer=list(inits), **more)
    m = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset),
                                                helper.make_opsetid("own", 1)],
                          functions=list(functions), ir_version=8)
    save("onnx", name, m.SerializeToString())


def packed_head(size, form=1):
    head = b"TACITPW\0" + struct.pack("<QQ", form, 4096) + bytes(range(32)) + struct.pack("<Q", size)
    return (head + hashlib.sha256(head).digest()).ljust(4096, b"\0")


def packed_seeds():
    save("packed", "whole", packed_head(64) + bytes(64))
    save("packed", "short", packed_head(64))
    save("packed", "empty", packed_head(0))
    save("packed", "huge", packed_head(2**64 - 4096))


def onnx_seeds():
    w = numpy_helper.from_array(np.ones((2, 2), np.float32), "w")
    model("gemm", [helper.make_node("Gemm", ["x", "w", ""], ["y"], alpha=0.5, transB=1)], [w])
    model("old", [helper.make_node("Softmax", ["x"], ["s"], axis=1),
                  helper.make_node("Squeeze", ["s"], ["q"], axes=[0]),
                  helper.make_node("Clip", ["q"], ["c"], min=0.0, max=1.0),
                  helper.make_node("Pad", ["c"], ["y"], pads=[0, 1], value=2.0)], opset=9)
    model("broadcast", [helper.make_node("Add", ["x", "w"], ["y"], broadcast=1, axis=0)],
          [numpy_helper.from_array(np.ones(1, np.float32), "w")], opset=6)
    model("upsample", [helper.make_node("Upsample", ["x"], ["y"], scales=[1.0, 2.0])], opset=7)
    branch = helper.make_graph([helper.make_node("Add", ["x", "k"], ["r"])], "b", [], [info("r")],
                               initializer=[numpy_helper.from_array(np.float32(1), "k")])
    other = helper.make_graph([helper.make_node("Neg", ["x"], ["r2"])], "c", [], [info("r2")])
    model("branch", [helper.make_node("If", ["p"], ["y"], then_branch=branch, else_branch=other)],
          inputs=[info("x"), info("p", TensorProto.BOOL, ())])
    f = helper.make_function("own", "twice", ["a", "k"], ["b"],
                             [helper.make_node("Add", ["a", "a"], ["t"]),
                              helper.make_node("Elu", ["t"], ["b"])],
                             [helper.make_opsetid("", 18)], ["alpha"])
    reference = onnx.AttributeProto(name="alpha", ref_attr_name="alpha", type=onnx.AttributeProto.FLOAT)
    f.node[1].attribute.append(reference)
    model("function", [helper.make_node("twice", ["x", ""], ["y"], domain="own", alpha=2.0)],
          functions=[f])
    sparse = helper.make_sparse_tensor(helper.make_tensor("w", TensorProto.FLOAT, [2], [1.0, 2.0]),
                                       helper.make_tensor("i", TensorProto.INT64, [2], [0, 3]), [2, 2])
    model("sparse", [helper.make_node("MatMul", ["x", "w"], ["y"])], sparse_initializer=[sparse])
    types = [(TensorProto.FLOAT, [1.5]), (TensorProto.DOUBLE, [1.5]), (TensorProto.INT64, [-3]),
             (TensorProto.INT32, [-3]), (TensorProto.UINT64, [3]), (TensorProto.UINT8, [3]),
             (TensorProto.BOOL, [True]), (TensorProto.FLOAT16, [1.0]), (TensorProto.STRING, ["s"]),
             (TensorProto.COMPLEX64, [1 + 2j]), (TensorProto.INT4, [3]), (TensorProto.FLOAT8E5M2, [1.0])]
    nodes = [helper.make_node("Identity", ["x"], ["y"])]
    for k, (dtype, value) in enumerate(types):
        nodes.append(helper.make_node("Constant", [], [f"c{k}"],
                                      value=helper.make_tensor("t", dtype, [1], value)))
        save("value", f"tensor{k}", b"\0" + helper.make_tensor("t", dtype, [1], value).SerializeToString())
    nodes += [helper.make_node("Constant", [], ["ci"], value_ints=[1, -2]),
              helper.make_node("Constant", [], ["cs"], value_strings=["a", "b"])]
    model("constants", nodes)
    model("sequence", [helper.make_node("SequenceConstruct", ["x", "x"], ["y"])],
          outputs=[helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, None)])
    external = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2, 2], data_location=1)
    external.external_data.add(key="location", value="../w.bin")
    external.external_data.add(key="offset", value="16")
    model("external", [helper.make_node("MatMul", ["x", "w"], ["y"])], [external])
    items = [np.ones(2, np.float32), np.zeros((1, 3), np.float32)]
    save("value", "sequence", b"\1" + numpy_helper.from_list(items).SerializeToString())
    save("value", "optional", b"\2" + numpy_helper.from_optional(items[0]).SerializeToString())
    save("value", "absent", b"\2" + numpy_helper.from_optional(None).SerializeToString())


def array_seeds():
    arrays = [np.ones((2, 3), "<f4"), np.asfortranarray(np.arange(6).reshape(2, 3).astype(">i4")),
              np.array(["a", "grün"]), np.array([b"ab", b"c"]), np.array([True, False]),
              np.zeros((0, 4), "<c16"), np.float64(1)]
    for k, array in enumerate(arrays):
        out = io.BytesIO()
        np.save(out, array)
        save("npy", str(k), out.getvalue())
    for name, write in (("stored", np.savez), ("deflated", np.savez_compressed)):
        out = io.BytesIO()
        write(out, **{f"t{k}": a for k, a in enumerate(arrays[:3])})
        save("npz", name, out.getvalue())


def gguf_seeds():
    def text(s):
        return struct.pack("<Q", len(s)) + s.encode()
    pairs = [text("general.architecture") + struct.pack("<I", 8) + text("llama"),
             text("llama.block_count") + struct.pack("<II", 4, 1),
             text("llama.rope.freq_base") + struct.pack("<If", 6, 10000.0),
             text("tokens") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("b"),
             text("scores") + struct.pack("<IIQ2f", 9, 6, 2, 0.5, 1.5)]
    infos = [text("token_embd.weight") + struct.pack("<IQQIQ", 2, 32, 2, 8, 0),
             text("norm") + struct.pack("<IQIQ", 1, 4, 0, 96)]
    head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(pairs)) + b"".join(pairs + infos)
    head += bytes(-len(head) % 32)
    save("gguf", "small", head + bytes(112))
    save("gguf", "empty", b"GGUF" + struct.pack("<IQQ", 2, 0, 0))


def token_seeds():
    """Vocabularies, with a text behind each."""
    def text(s):
        return struct.pack("<Q", len(s.encode())) + s.encode()

    def pair(key, kind, data):
        return text("tokenizer.ggml." + key) + struct.pack("<I", kind) + data

    def strings(key, items):
        return pair(key, 9, struct.pack("<IQ", 8, len(items)) + b"".join(map(text, items)))

    def numbers(key, kind, code, items):
        return pair(key, 9, struct.pack(f"<IQ{len(items)}{code}", kind, len(items), *items))

    tokens = ["\u0120", "a", "b", "ab", "\u0120a", "\u010a", "1", "'", "s", "<e>", "<u>"]
    common = [strings("tokens", tokens), numbers("token_type", 5, "i", [1] * 9 + [3, 4]),
              pair("model", 8, text("gpt2")), strings("merges", ["a b", "\u0120 a"]),
              pair("bos_token_id", 4, struct.pack("<I", 9)), pair("add_bos_token", 7, b"\1")]
    files = {name: common + [pair("pre", 8, text(name))] for name in ("gpt-2", "starcoder", "llama-bpe", "qwen2")}
    tokens = ["<unk>", "<s>", "\u2581", "a", "\u2581a", "<0x0A>", "<u>"]
    files["scores"] = [strings("tokens", tokens), numbers("token_type", 5, "i", [2, 3, 1, 1, 1, 6, 4]),
                       numbers("scores", 6, "f", [0, 0, -3, -4, -1, 0, 0]), pair("model", 8, text("llama"))]
    for name, pairs in files.items():
        head = b"GGUF" + struct.pack("<IQQ", 3, 0, len(pairs)) + b"".join(pairs)
        said = b" ab  a\na'sS 111<u>a<e>"
        save("token", name, head + said.rjust(96, b"a"))


def safetensors_seeds():
    entries = {"__metadata__": {"format": "x\u00fc\n"},
               "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
               "b": {"dtype": "BOOL", "shape": [1, 2], "data_offsets": [8, 10]}}
    header = json.dumps(entries).encode()
    save("safetensors", "two", struct.pack("<Q", len(header)) + header + bytes(10))
    save("safetensors", "none", struct.pack("<Q", 2) + b"{}")


if __name__ == "__main__":
    onnx_seeds()
    array_seeds()
    safetensors_seeds()
    gguf_seeds()
    token_seeds()
    packed_seeds()
