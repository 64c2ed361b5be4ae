# SPDX-License-Identifier: Apache-2.0
"""Operators of com.microsoft that are spelled out while loading, against ONNX Runtime."""

import numpy as np
import pytest

import tacit

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
ort.set_default_logger_severity(4)
F, U8, I8, I32, I64 = np.float32, np.uint8, np.int8, np.int32, np.int64


def data(dtype, *shape):
    rng = np.random.default_rng(sum(shape) + np.dtype(dtype).itemsize)
    if dtype == F:
        return rng.standard_normal(shape).astype(F)
    info = np.iinfo(dtype)
    low, high = (info.min, info.max + 1) if info.bits == 8 else (-500, 500)
    return rng.integers(low, high, shape).astype(dtype)


def triple(dtype, shape, scale, zero):
    return [data(dtype, *shape), F(scale), dtype(zero)]


def case(op, fed, constants, n_out=1, **attributes):
    """`fed` and `constants`: (position, array); what is not there is absent. `tolerance`: where ONNX
    Runtime rounds what we do not."""
    name, tolerance = op + attributes.pop("id", ""), attributes.pop("tolerance", 2e-5)
    return pytest.param((op, fed, constants, n_out, attributes), tolerance, id=name)


def byte_case(op, dtype, shape, out=(0.03, 9), **attributes):
    x, scale, zero = triple(dtype, shape, 0.0213, 7)
    rest = [(1, scale), (2, zero), (3, F(out[0])), (4, dtype(out[1]))]
    return case(op, [(0, x)], rest, id=f"-{np.dtype(dtype).name}", **attributes)


def binary_case(op, dtype, other):
    a, b = triple(dtype, (2, 3, 4), 0.0213, 7), triple(dtype, other, 0.0517, -3 if dtype == I8 else 3)
    rest = [(1, a[1]), (2, a[2]), (4, b[1]), (5, b[2]), (6, F(0.0607)), (7, dtype(11))]
    return case(op, [(0, a[0]), (3, b[0])], rest, id=f"-{np.dtype(dtype).name}-{len(other)}")


def gemm_case(name, b_dtype, per_column, out, **attributes):
    trans_a, trans_b = attributes.get("transA", 0), attributes.get("transB", 0)
    a = data(U8, *((8, 5) if trans_a else (5, 8)))
    b = data(b_dtype, *((6, 8) if trans_b else (8, 6)))
    scale = np.linspace(0.01, 0.02, 6, dtype=F) if per_column else F(0.015)
    zero = np.arange(6).astype(b_dtype) if per_column else b_dtype(2)
    rest = [(1, F(0.02)), (2, U8(120)), (3, b), (4, scale), (5, zero), (6, data(I32, 6))]
    rest += [(7, F(0.1)), (8, U8(100))] if out else []
    return case("QGemm", [(0, a)], rest, id=name, **attributes)


def attention_case(mask):
    heads, width = 2, 8
    rest = [(1, data(I8, width, 3 * width)), (2, data(F, 3 * width)), (3, F(0.02))]
    rest += [(4, F(0.01)), (6, U8(120)), (7, I8(0))]
    fed = [(0, data(U8, 2, 5, width))] + ([(5, np.array([5, 3], I32))] if mask else [])
    return case("QAttention", fed, rest, id="-mask" if mask else "", num_heads=heads)


def embed_case():
    tables = [data(U8, 20, 8), data(U8, 6, 8), data(U8, 2, 8), data(U8, 8), data(U8, 8)]
    rest = [(2 + i, t) for i, t in enumerate(tables)]
    rest += [(8 + i, F(0.01 + 0.002 * i)) for i in range(5)]
    rest += [(13 + i, U8(100 + i)) for i in range(5)]
    ids = np.arange(10, dtype=I32).reshape(2, 5)
    fed = [(0, ids), (1, (ids % 2).astype(I32)), (7, np.ones((2, 5), I32))]
    return case("QEmbedLayerNormalization", fed, rest, n_out=2, epsilon=1e-5)


def lstm_case(dtype, per_gate, directions):
    size, hidden = 5, 4
    shape = (directions, 4 * hidden) if per_gate else (directions,)

    def weights(rows, low):
        scale = np.linspace(low, 1.5 * low, int(np.prod(shape)), dtype=F).reshape(shape)
        zero = (np.arange(scale.size).reshape(shape) % 5 * (not per_gate)).astype(dtype)
        return data(dtype, directions, rows, 4 * hidden), scale, zero

    w, r = weights(size, 0.004), weights(hidden, 0.003)
    rest = [(1, w[0]), (2, r[0]), (3, data(F, directions, 8 * hidden)), (8, w[1]), (9, w[2])]
    fed = [(0, data(F, 6, 2, size)), (5, data(F, directions, 2, hidden))]
    direction = "bidirectional" if directions == 2 else "forward"
    return case("DynamicQuantizeLSTM", fed, rest + [(10, r[1]), (11, r[2])], n_out=3, tolerance=0.05,
                id=f"-{np.dtype(dtype).name}-{per_gate}-{directions}", hidden_size=hidden,
                direction=direction)  # fmt: skip


def table_case(bits, zeros, indices):
    """Nine rows of three blocks, in bytes."""
    rest = [(0, data(U8, 9, 48 * bits // 8)), (2, np.abs(data(F, 9, 3)))]
    rest += [(3, data(U8, 9, (3 * bits + 7) // 8))] if zeros else []
    return case("GatherBlockQuantized", [(1, np.array(indices, I64))], rest,
                id=f"-{bits}-{zeros}-{np.array(indices).ndim}", bits=bits, block_size=16,
                gather_axis=0, quantize_axis=1)  # fmt: skip


def table4_case(dtype, zeros, axis):
    import ml_dtypes

    kind = getattr(ml_dtypes, dtype)
    low = -8 if dtype == "int4" else 0
    whole = np.random.default_rng(axis).integers(low, low + 16, (6, 32)).astype(kind)
    rest = [(0, whole), (2, np.abs(data(F, *((6, 2) if axis == 0 else (1, 32)))))]
    rest += [(3, np.full(rest[1][1].shape, 3).astype(kind))] if zeros else []
    return case("GatherBlockQuantized", [(1, np.array([[1, 3], [0, -1]], I64))], rest,
                id=f"-{dtype}-{zeros}-{axis}", bits=4, block_size=16, gather_axis=axis,
                quantize_axis=1 - axis)  # fmt: skip


def last_case(op, fed, constants, **attributes):
    return case(op, fed, constants, id="-last", channels_last=1, **attributes)


def conv_case(last, group):
    x = data(U8, *((1, 6, 5, 4) if last else (1, 4, 6, 5)))
    rest = [(1, F(0.02)), (2, U8(120)), (3, data(I8, 6, 4 // group, 3, 3)), (4, F(0.01)), (5, I8(0))]
    rest += [(6, F(0.1)), (7, U8(100)), (8, data(I32, 6))]
    return case("QLinearConv", [(0, x)], rest, id=f"-{last}-{group}", channels_last=last, group=group,
                kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 1])  # fmt: skip


def solvable(*shape):
    return data(F, *shape) + 4 * np.eye(shape[-1], dtype=F)


CASES = [
    *(lstm_case(t, g, d) for t in (U8, I8) for g in (0, 1) for d in (1, 2)),
    *(table_case(b, z, i) for b in (2, 4, 8) for z in (0, 1) for i in ([3, 0, -1], [[8, 2]])),
    *(table4_case(t, z, a) for t in ("int4", "uint4") for z in (0, 1) for a in (0, 1)),
    *(case("MatMulBnb4", [(0, data(F, 2, 3, 8))], [(1, data(U8, 128)), (2, np.abs(data(F, 16)))],
           id=f"-{q}", K=8, N=32, block_size=16, quant_type=q) for q in (0, 1)),
    *(case("CDist", [(0, data(F, 5, 7)), (1, data(F, 3, 7))], [], id=f"-{m}", metric=m)
      for m in ("euclidean", "sqeuclidean")),
    *(case("Inverse", [(0, solvable(*s))], [], id=f"-{len(s)}") for s in ((4, 4), (2, 3, 5, 5))),
    *(case("GridSample", [(0, data(F, 1, 2, 5, 6)), (1, np.tanh(data(F, 1, 3, 4, 2)))], [],
           id=f"-{m}-{p}-{a}", mode=m, padding_mode=p, align_corners=a)
      for m in ("bilinear", "nearest", "bicubic") for p, a in (("zeros", 0), ("border", 1))),
    *(case("NhwcMaxPool", [(0, data(t, 1, 6, 7, 3))], [], id=f"-{np.dtype(t).name}",
           kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]) for t in (U8, I8)),
    *(conv_case(last, g) for last in (0, 1) for g in (1, 2)),
    last_case("QLinearAveragePool", [(0, data(U8, 1, 6, 6, 2))],
              [(1, F(0.0213)), (2, U8(7)), (3, F(0.03)), (4, U8(9))], kernel_shape=[3, 3],
              strides=[2, 2], pads=[1, 1, 1, 1]),
    last_case("QLinearGlobalAveragePool", [(0, data(U8, 1, 4, 5, 3))],
              [(1, F(0.0213)), (2, U8(7)), (3, F(0.03)), (4, U8(9))]),
    *(binary_case(op, t, s) for op in ("QLinearAdd", "QLinearMul")
      for t in (U8, I8) for s in ((2, 3, 4), (4,))),
    *(byte_case("QLinearSigmoid", t, (2, 5), (1 / 256, 0)) for t in (U8, I8)),
    *(byte_case("QLinearLeakyRelu", t, (2, 5), alpha=0.1) for t in (U8, I8)),
    byte_case("QLinearSoftmax", U8, (2, 3, 4), (1 / 256, 0), axis=-1, opset=13),
    case("QLinearSoftmax", [(0, data(U8, 2, 3, 4))],
         [(1, F(0.02)), (2, U8(7)), (3, F(1 / 256)), (4, U8(0))], id="-12", axis=1, opset=12),
    *(byte_case("QLinearAveragePool", t, (1, 2, 6, 6), kernel_shape=[3, 3], strides=[2, 2],
                pads=[1, 1, 1, 1], count_include_pad=0) for t in (U8, I8)),
    *(byte_case("QLinearGlobalAveragePool", t, (1, 3, 4, 4)) for t in (U8, I8)),
    case("QLinearConcat", [(2, data(U8, 2, 3)), (5, data(U8, 2, 4))],
         [(0, F(0.04)), (1, U8(5)), (3, F(0.02)), (4, U8(7)), (6, F(0.05)), (7, U8(100))], axis=1),
    case("QLinearWhere", [(0, np.array([[True, False, True]])), (1, data(U8, 2, 3)),
                          (4, data(U8, 1, 3))],
         [(2, F(0.02)), (3, U8(7)), (5, F(0.05)), (6, U8(100)), (7, F(0.04)), (8, U8(5))]),
    gemm_case("", U8, False, True),
    gemm_case("-columns", I8, True, True),
    gemm_case("-numbers", I8, True, False, alpha=0.5),
    gemm_case("-transposed", I8, True, True, transA=1, transB=1),
    *(case("DynamicQuantizeMatMul", [(0, data(F, 5, 8))],
           [(1, data(t, 8, 6)), (2, s), (3, z)] + ([(4, data(F, 6))] if bias else []),
           id=f"-{np.dtype(t).name}-{bias}")
      for t in (U8, I8) for bias in (0, 1)
      for s, z in [(np.linspace(0.01, 0.02, 6, dtype=F), np.arange(6).astype(t))]),
    *(case("MatMulIntegerToFloat", [(0, data(U8, 2, 5, 8))],
           [(1, data(I8, 8, 6)), (2, F(0.02)), (3, F(0.01)), (4, U8(120)), (5, I8(3))]
           + ([(6, data(F, 6))] if bias else []), id=f"-{bias}") for bias in (0, 1)),
    *(case("FusedConv", [(0, data(F, 1, 2, 6, 6))] + ([(3, data(F, 1, 4, 6, 6))] if z else []),
           [(1, data(F, 4, 2, 3, 3)), (2, data(F, 4))], id=f"-{a}-{z}", pads=[1, 1, 1, 1],
           activation=a, **({"activation_params": p} if p else {}))
      for a, p in (("Relu", None), ("Tanh", None), ("Sigmoid", None), ("LeakyRelu", [0.2]),
                   ("Clip", [-0.5, 0.5]), ("HardSigmoid", [0.3, 0.4])) for z in (0, 1)
      if not (z and a != "Relu")),
    *(case("FusedGemm", [(0, data(F, 5, 8))], [(1, data(F, 6, 8)), (2, data(F, 6))], id=f"-{a}",
           activation=a, transB=1, alpha=0.5, beta=2.0, **p)
      for a, p in (("Relu", {}), ("Tanh", {}), ("LeakyRelu", {"activation_alpha": 0.2}))),
    case("TransposeMatMul", [(0, data(F, 2, 8, 5)), (1, data(F, 2, 8, 6))], [], transA=1,
         alpha=0.25),
    case("QuantizeLinear", [(0, data(F, 3, 4))], [(1, F(0.05)), (2, np.uint16(99))]),
    case("DequantizeLinear", [(0, data(U8, 3, 4))],
         [(1, np.linspace(0.1, 0.3, 4, dtype=F)), (2, np.arange(4).astype(U8))], axis=1),
    case("ExpandDims", [(0, data(F, 3, 4))], [(1, np.array(1, I32))]),
    case("Trilu", [(0, data(F, 4, 4))], [], upper=0),
    case("Range", [], [(0, F(1)), (1, F(5)), (2, F(0.5))]),
    case("Pad", [(0, data(F, 3, 4))], [(1, np.array([1, 0, 0, 2], I64)), (2, F(1.5))]),
    case("GatherND", [(0, data(F, 3, 4))], [(1, np.array([[0, 1], [2, 3]], I64))]),
    attention_case(False),
    attention_case(True),
    embed_case(),
]  # fmt: skip


def write(path, op, fed, constants, n_out, attributes):
    arrays = dict(fed + constants)
    names = [f"i{k}" if k in arrays else "" for k in range(max(arrays) + 1)]
    inputs = [
        onnx.helper.make_tensor_value_info(
            f"i{k}", onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape
        )
        for k, a in fed
    ]
    outputs = [f"o{k}" for k in range(n_out)]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(op, names, outputs, "it", domain="com.microsoft", **attributes)],
        "g",
        inputs,
        [onnx.helper.make_empty_tensor_value_info(o) for o in outputs],
        [onnx.numpy_helper.from_array(np.asarray(a), f"i{k}") for k, a in constants],
    )
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.microsoft", 1)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    return {f"i{k}": a for k, a in fed}


@pytest.mark.parametrize("what, tolerance", CASES)
@pytest.mark.parametrize("executor", ["reference", "serial"])
def test_like_onnx_runtime(what, tolerance, executor, tmp_path):
    path = str(tmp_path / "m.onnx")
    feed = write(path, *what)
    expected = ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, feed)
    results = tacit.runner(tacit.load(path), exec=executor).results(feed, None)
    for ours, theirs in zip(results, expected):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        if ours.dtype.kind in "iu" and ours.dtype.itemsize < 4:
            # ONNX Runtime computes some of them in tables or fixed point: a quantum may be off.
            off = np.abs(ours.astype(int) - theirs.astype(int))
            assert off.max() <= 1 and (off > 0).mean() <= 0.1
        else:
            np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=tolerance)


def test_a_missing_input_is_named(tmp_path):
    path = str(tmp_path / "m.onnx")
    write(path, "QLinearAdd", [(0, data(U8, 2))], [(1, F(0.1)), (2, U8(0)), (3, data(U8, 2))], 1, {})
    with pytest.raises(tacit.Error, match="it.*input 4 is missing"):
        tacit.load(path)


@pytest.mark.parametrize("op, arrays, attributes, match", [
    ("CDist", [data(F, 2, 2), data(F, 2, 2)], {"metric": "cosine"}, "metric 'cosine'"),
    ("MatMulBnb4", [data(F, 2, 8), data(U8, 128), data(F, 16)],
     {"K": 8, "N": 32, "block_size": 16, "quant_type": 1, "transB": 0}, "without transB"),
    ("GatherBlockQuantized", [data(U8, 4, 8), np.array([0]), data(F, 4, 1)], {"bits": 3}, "3 bits"),
    ("GatherBlockQuantized", [data(U8, 4, 8), np.array([0]), data(F, 4, 1)], {"quantize_axis": 0},
     "axes 0 and 0"),
    ("GatherBlockQuantized", [data(U8, 4, 8), np.array([0]), data(F, 4)], {}, "rank 2"),
])  # fmt: skip
def test_what_is_not_meant_is_refused(op, arrays, attributes, match, tmp_path):
    path = str(tmp_path / "m.onnx")
    write(path, op, [], list(enumerate(arrays)), 1, attributes)
    with pytest.raises(tacit.Error, match=match):
        tacit.load(path)


def test_tables_of_bits_are_constants(tmp_path):
    path = str(tmp_path / "m.onnx")
    fed = [(0, data(U8, 4, 8)), (1, np.array([0]))]
    write(path, "GatherBlockQuantized", fed, [(2, data(F, 4, 1))], 1, {})
    with pytest.raises(tacit.Error, match="no constant"):
        tacit.load(path)


def test_layouts_of_one_machine_say_what_to_do(tmp_path):
    path = str(tmp_path / "m.onnx")
    write(path, "Conv", [(0, data(F, 1, 8, 4, 4))], [(1, data(F, 8, 8, 1, 1))], 1, {})
    model = onnx.load(path)
    model.graph.node[0].domain = "com.microsoft.nchwc"
    model.opset_import.append(onnx.helper.make_opsetid("com.microsoft.nchwc", 1))
    onnx.save(model, path)
    with pytest.raises(tacit.Error, match="nchwc.Conv is not known; .*ORT_ENABLE_EXTENDED"):
        tacit.compile(path)


def test_unknown_activations_are_refused(tmp_path):
    path = str(tmp_path / "m.onnx")
    write(path, "FusedGemm", [(0, data(F, 2, 2))], [(1, data(F, 2, 2))], 1, {"activation": "Odd"})
    with pytest.raises(tacit.Error, match="activation 'Odd'"):
        tacit.load(path)
