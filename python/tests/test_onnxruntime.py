# SPDX-License-Identifier: Apache-2.0
"""One script, two runtimes: what holds for ONNX Runtime holds for the drop-in."""

import json

import numpy as np
import pytest

import tacit
import tacit.onnxruntime

real = pytest.importorskip("onnxruntime")
real.set_default_logger_severity(4)


@pytest.fixture(params=["tacit", "onnxruntime"])
def ort(request):
    return tacit.onnxruntime if request.param == "tacit" else real


@pytest.fixture
def path(tmp_path):
    onnx = pytest.importorskip("onnx")
    w = np.arange(12, dtype=np.float32).reshape(4, 3)
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node("MatMul", ["x", "w"], ["p"]),
            onnx.helper.make_node("Softmax", ["p"], ["y"], axis=-1),
            onnx.helper.make_node("ReduceSum", ["p"], ["total"], keepdims=0),
        ],
        "g",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 4])],
        [
            onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["batch", 3]),
            onnx.helper.make_tensor_value_info("total", onnx.TensorProto.FLOAT, []),
        ],
        [onnx.numpy_helper.from_array(w, "w")],
    )
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9
    )
    onnx.save(model, tmp_path / "m.onnx")
    return str(tmp_path / "m.onnx")


def expected(x):
    p = x @ np.arange(12, dtype=np.float32).reshape(4, 3)
    e = np.exp(p - p.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True), p.sum()


def open_session(ort, path, **options):
    o = ort.SessionOptions()
    o.intra_op_num_threads = 1
    for k, v in options.items():
        setattr(o, k, v)
    return ort.InferenceSession(path, o, providers=["CPUExecutionProvider"])


def test_ports(ort, path):
    s = open_session(ort, path)
    (x,) = s.get_inputs()
    assert (x.name, x.shape, x.type) == ("x", ["batch", 4], "tensor(float)")
    y, total = s.get_outputs()
    assert (y.name, y.shape, y.type) == ("y", ["batch", 3], "tensor(float)")
    assert (total.name, total.shape, total.type) == ("total", [], "tensor(float)")
    assert s.get_providers() == ["CPUExecutionProvider"]


def test_modelmeta(ort, path, tmp_path):
    onnx = pytest.importorskip("onnx")
    fields = ("producer_name", "graph_name", "domain", "description", "graph_description")
    bare = open_session(ort, path).get_modelmeta()
    assert [getattr(bare, f) for f in fields] == ["", "g", "", "", ""]
    assert bare.custom_metadata_map == {}
    model = onnx.load(path)
    model.producer_name, model.producer_version = "maker", "2.1"
    model.domain, model.doc_string, model.model_version = "org.example", "of the model", 7
    model.graph.doc_string = "of the graph"
    pairs = {"names": "{0: 'Katze', 1: 'Hündin'}", "stride": "32", "empty": ""}
    onnx.helper.set_model_props(model, pairs)
    onnx.save(model, tmp_path / "told.onnx")
    meta = open_session(ort, str(tmp_path / "told.onnx")).get_modelmeta()
    assert [getattr(meta, f) for f in fields] == [
        "maker", "g", "org.example", "of the model", "of the graph",
    ]  # fmt: skip
    assert meta.version == 7
    assert meta.custom_metadata_map == pairs


def test_what_a_file_says_is_kept(path, tmp_path):
    """Through our writer and through the text form, for others to read."""
    onnx = pytest.importorskip("onnx")
    model = onnx.load(path)
    model.domain, model.doc_string, model.model_version = "org.example", "a\n\"b\"", -3
    onnx.helper.set_model_props(model, {"k": "v", "": "x"})
    onnx.save(model, tmp_path / "told.onnx")
    first = tacit.load(tmp_path / "told.onnx")
    first.save(tmp_path / "again.onnx")
    first.save(tmp_path / "again.tacit")
    again = onnx.load(tmp_path / "again.onnx")
    assert (again.domain, again.doc_string, again.model_version) == ("org.example", 'a\n"b"', -3)
    assert {p.key: p.value for p in again.metadata_props} == {"k": "v", "": "x"}
    assert tacit.load(tmp_path / "again.tacit").about == first.about
    assert first.about.metadata == {"k": "v", "": "x"}


def test_run(ort, path, rng):
    s = open_session(ort, path)
    for batch in (1, 2, 5, 2):
        x = rng.random((batch, 4), np.float32)
        y, total = s.run(None, {"x": x})
        np.testing.assert_allclose(y, expected(x)[0], rtol=1e-5)
        np.testing.assert_allclose(total, expected(x)[1], rtol=1e-5)
        (total,) = s.run(["total"], {"x": x})
        np.testing.assert_allclose(total, expected(x)[1], rtol=1e-5)
    total, y = s.run(["total", "y"], {"x": x})
    assert y.shape == (2, 3) and total.shape == ()


def test_fixed_sizes(ort, path, rng):
    o = ort.SessionOptions()
    o.add_free_dimension_override_by_name("batch", 2)
    o.add_free_dimension_override_by_name("nothing", 3)
    s = ort.InferenceSession(path, o, providers=["CPUExecutionProvider"])
    assert s.get_inputs()[0].shape == [2, 4] and s.get_outputs()[0].shape == [2, 3]
    assert s.get_overridable_initializers() == []
    assert list(s.get_provider_options()) == ["CPUExecutionProvider"]
    x = rng.random((2, 4), np.float32)
    np.testing.assert_allclose(s.run(["y"], {"x": x})[0], expected(x)[0], rtol=1e-5)
    with pytest.raises(Exception):
        s.run(None, {"x": rng.random((3, 4), np.float32)})


def test_default_threads_are_every_core(ort, path, rng):
    s = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert s.get_session_options().intra_op_num_threads == 0
    x = rng.random((64, 4), np.float32)
    one = open_session(ort, path).run(None, {"x": x})
    for a, b in zip(s.run(None, {"x": x}), one):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_bytes(ort, path, rng):
    x = rng.random((2, 4), np.float32)
    with open(path, "rb") as f:
        s = ort.InferenceSession(f.read(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(s.run(["y"], {"x": x})[0], expected(x)[0], rtol=1e-5)


def test_bad_calls(ort, path, rng):
    s = open_session(ort, path)
    x = rng.random((2, 4), np.float32)
    with pytest.raises(ValueError, match=r"Required inputs \(\['x'\]\) are missing"):
        s.run(None, {})
    for names, feed in (
        (None, {"x": x[:, :3].copy()}),
        (None, {"x": x.astype(np.float64)}),
        (None, {"x": x, "z": x}),
        (["nothing"], {"x": x}),
    ):
        with pytest.raises(Exception) as caught:
            s.run(names, feed)
        assert not isinstance(caught.value, (AttributeError, KeyError, AssertionError))
    with pytest.raises(Exception):
        ort.InferenceSession(path + ".none", providers=["CPUExecutionProvider"])


def test_iobinding(ort, path, rng):
    s = open_session(ort, path)
    x = rng.random((2, 4), np.float32)
    y = np.zeros((2, 3), np.float32)
    b = s.io_binding()
    b.bind_cpu_input("x", x)
    b.bind_output("y", "cpu", 0, np.float32, y.shape, y.ctypes.data)
    b.bind_output("total", "cpu")
    s.run_with_iobinding(b)
    np.testing.assert_allclose(y, expected(x)[0], rtol=1e-5)
    np.testing.assert_allclose(b.copy_outputs_to_cpu()[1], expected(x)[1], rtol=1e-5)

    b = s.io_binding()
    b.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(x))
    out = ort.OrtValue.ortvalue_from_numpy(np.zeros((2, 3), np.float32))
    total = ort.OrtValue.ortvalue_from_shape_and_type([], np.float32)
    b.bind_ortvalue_output("y", out)
    b.bind_ortvalue_output("total", total)
    s.run_with_iobinding(b)
    np.testing.assert_allclose(out.numpy(), expected(x)[0], rtol=1e-5)
    np.testing.assert_allclose(total.numpy(), expected(x)[1], rtol=1e-5)
    assert [v.shape() for v in b.get_outputs()] == [[2, 3], []]


def test_ort_values(ort, path, rng):
    x = rng.random((2, 4), np.float32)
    value = ort.OrtValue.ortvalue_from_numpy(x)
    assert value.shape() == [2, 4] and value.data_type() == "tensor(float)"
    y, _ = open_session(ort, path).run_with_ort_values(None, {"x": value})
    np.testing.assert_allclose(y.numpy(), expected(x)[0], rtol=1e-5)


def test_profiling(ort, path, rng, tmp_path):
    s = open_session(
        ort, path, enable_profiling=True, profile_file_prefix=str(tmp_path / "profile")
    )
    s.run(None, {"x": rng.random((2, 4), np.float32)})
    name = s.end_profiling()
    assert name.startswith(str(tmp_path / "profile"))
    with open(name, encoding="utf-8") as f:
        events = json.load(f)
    assert any(e["cat"] == "Node" and e["dur"] >= 0 for e in events)


def test_unoptimised(ort, path, rng):
    level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    s = open_session(ort, path, graph_optimization_level=level)
    x = rng.random((2, 4), np.float32)
    np.testing.assert_allclose(s.run(["y"], {"x": x})[0], expected(x)[0], rtol=1e-5)
