# SPDX-License-Identifier: Apache-2.0
"""Classical models of ai.onnx.ml, as scikit-learn, XGBoost and LightGBM export them, against ONNX Runtime."""

import numpy as np
import pytest

import tacit

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
ort.set_default_logger_severity(4)
ML = "ai.onnx.ml"
MODES = [f"BRANCH_{m}" for m in ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ")]


def model(x, nodes, outputs):
    helper = onnx.helper
    inputs = [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)]
    infos = [
        kind if not isinstance(kind, int) else helper.make_tensor_value_info(name, kind, None)
        for name, kind in outputs.items()
    ]
    graph = helper.make_graph(nodes, "g", inputs, infos)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(ML, 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def both(x, op, outputs, **attributes):
    """The outputs of tacit and of ONNX Runtime."""
    node = onnx.helper.make_node(op, ["x"], list(outputs), domain=ML, **attributes)
    data = model(x, [node], outputs)
    want = ort.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    return tacit.runner(tacit.load(data)).results({"x": x}, None), want


def agree(x, op, outputs, **attributes):
    for have, want in zip(*both(x, op, outputs, **attributes), strict=True):
        assert have.shape == want.shape
        if want.dtype.kind == "f":
            np.testing.assert_allclose(have, want, rtol=2e-4, atol=2e-5)
        else:
            assert have.tolist() == want.tolist()


def forest(rng, prefix, trees, depth, features, targets, modes, missing=False, weight=lambda w: w):
    """Random trees, whose leaves have a weight for every target."""
    a = {f"nodes_{k}": [] for k in
         ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids")}
    w = {f"{prefix}_{k}": [] for k in ("treeids", "nodeids", "ids", "weights")}

    def grow(tree, left, rows):
        at = len(rows)
        rows.append(("LEAF", 0, 0.0, 0, 0))
        if left == 0 or (left < depth and rng.random() < 0.2):
            for target in targets:
                for key, value in zip(w, (tree, at, target, weight(float(rng.standard_normal()))), strict=True):
                    w[key].append(value)
            return at
        yes, no = grow(tree, left - 1, rows), grow(tree, left - 1, rows)
        split = float(np.float32(rng.choice([0, 1, rng.standard_normal()])))
        rows[at] = (str(rng.choice(modes)), int(rng.integers(features)), split, yes, no)
        return at

    for tree in range(trees):
        rows = []
        grow(tree, depth, rows)
        for at, row in enumerate(rows):
            for key, value in zip(a, (tree, at, row[1], row[0], row[2], row[3], row[4]), strict=True):
                a[key].append(value)
    if missing:
        a["nodes_missing_value_tracks_true"] = rng.integers(2, size=len(a["nodes_modes"])).tolist()
    return {**a, **w}


def rows(rng, n, features, wild=True):
    x = rng.choice([rng.standard_normal((n, features)), rng.integers(-1, 3, (n, features))]).astype(np.float32)
    if wild:
        x[rng.random(x.shape) < 0.1] = np.nan
        x[rng.random(x.shape) < 0.02] = np.inf
    return x


@pytest.mark.parametrize("n", [1, 7, 8, 131])
@pytest.mark.parametrize("mode", ["mixed", *MODES])
def test_regression_trees(n, mode):
    rng = np.random.default_rng(n)
    modes = MODES if mode == "mixed" else [mode]
    for targets, aggregate, post in [(1, "SUM", "NONE"), (1, "MIN", "NONE"), (2, "AVERAGE", "NONE"),
                                     (3, "SUM", "SOFTMAX"), (3, "MAX", "NONE"), (2, "SUM", "LOGISTIC")]:
        a = forest(rng, "target", 11, 4, 5, range(targets), modes, missing=targets != 2)
        agree(rows(rng, n, 5), "TreeEnsembleRegressor", {"y": onnx.TensorProto.FLOAT}, n_targets=targets,
              aggregate_function=aggregate, post_transform=post,
              base_values=rng.standard_normal(targets).tolist(), **a)


@pytest.mark.parametrize("post", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("classes", [1, 2, 3, 5])
@pytest.mark.parametrize("positive", [False, True])
def test_classification_trees(classes, post, positive):
    rng = np.random.default_rng(classes)
    outputs = {"label": onnx.TensorProto.INT64, "scores": onnx.TensorProto.FLOAT}
    for base in ([], [0.25] if classes < 3 else rng.standard_normal(classes).tolist()):
        a = forest(rng, "class", 7, 3, 4, [0] if classes < 3 else range(classes), MODES,
                   weight=lambda w: 0.1 * abs(w) if positive else w)
        if base:
            a["base_values"] = base
        agree(rows(rng, 33, 4), "TreeEnsembleClassifier", outputs, post_transform=post,
              classlabels_int64s=list(range(3, 3 + classes)), **a)


def test_string_labels():
    rng = np.random.default_rng(5)
    a = forest(rng, "class", 5, 3, 4, range(3), MODES)
    outputs = {"label": onnx.TensorProto.STRING, "scores": onnx.TensorProto.FLOAT}
    agree(rows(rng, 20, 4), "TreeEnsembleClassifier", outputs, classlabels_strings=["ant", "bee", "cat"], **a)


@pytest.mark.parametrize("post", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
def test_linear_models(post):
    rng = np.random.default_rng(1)
    floats = lambda *s: rng.standard_normal(s).astype(np.float32).ravel().tolist()  # noqa: E731
    for targets in (1, 3):
        agree(rows(rng, 9, 4, wild=False), "LinearRegressor", {"y": onnx.TensorProto.FLOAT}, targets=targets,
              coefficients=floats(targets, 4), intercepts=floats(targets), post_transform=post)
    outputs = {"label": onnx.TensorProto.INT64, "scores": onnx.TensorProto.FLOAT}
    for labels, scores in ((2, 1), (2, 2), (4, 4)):
        agree(rng.standard_normal((9, 4)).astype(np.float32), "LinearClassifier", outputs,
              coefficients=floats(scores, 4), intercepts=floats(scores),
              classlabels_ints=list(range(5, 5 + labels)), post_transform=post)


@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
def test_support_vectors(kernel):
    rng = np.random.default_rng(2)
    floats = lambda *s: rng.standard_normal(s).astype(np.float32).ravel().tolist()  # noqa: E731
    x = rng.standard_normal((9, 3)).astype(np.float32)
    shared = {"kernel_type": kernel, "kernel_params": [0.3, 0.5, 2.0]}
    agree(x, "SVMRegressor", {"y": onnx.TensorProto.FLOAT}, n_supports=5, support_vectors=floats(5, 3),
          coefficients=floats(5), rho=floats(1), **shared)
    outputs = {"label": onnx.TensorProto.INT64, "scores": onnx.TensorProto.FLOAT}
    for classes in (2, 3):
        pairs = classes * (classes - 1) // 2
        vectors = [2, 1, 3][:classes]
        total = sum(vectors)
        a = {"vectors_per_class": vectors, "support_vectors": floats(total, 3), "rho": floats(pairs),
             "coefficients": floats(classes - 1, total), "classlabels_ints": [4, 6, 9][:classes]}
        agree(x, "SVMClassifier", outputs, **a, **shared)
        agree(x, "SVMClassifier", outputs, prob_a=floats(pairs), prob_b=floats(pairs), **a, **shared)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int32])
def test_features(dtype):
    rng = np.random.default_rng(3)
    x = rng.integers(-3, 4, (6, 3)).astype(dtype)
    x[0] = 0
    y = {"y": onnx.TensorProto.FLOAT}
    agree(x, "Scaler", y, offset=[0.5, 1, -1], scale=[2, 0.5, -3.0])
    agree(x, "Scaler", y, offset=[0.5], scale=[2.0])
    for norm in ("MAX", "L1", "L2"):
        agree(x, "Normalizer", y, norm=norm)
    if dtype != np.int32:
        agree(x, "OneHotEncoder", y, cats_int64s=[2, 0, -1], zeros=1)


def test_imputer():
    x = rows(np.random.default_rng(4), 12, 3)
    agree(x, "Imputer", {"y": onnx.TensorProto.FLOAT}, imputed_value_floats=[1.5, 2.5, 3.5],
          replaced_value_float=float("nan"))


@pytest.mark.parametrize("labels", [{"classlabels_int64s": [3, 5]}, {"classlabels_strings": ["no", "yes"]}])
def test_zip_map(labels):
    """As skl2onnx writes classifiers unless told otherwise: a dict of labels and scores for every row."""
    helper, types = onnx.helper, onnx.TensorProto
    key = types.INT64 if "classlabels_int64s" in labels else types.STRING
    kind = helper.make_map_type_proto(key, helper.make_tensor_type_proto(types.FLOAT, None))
    info = onnx.ValueInfoProto(name="y", type=helper.make_sequence_type_proto(kind))
    x = np.array([[0.25, 0.75], [1.5, -0.5], [0, 1]], np.float32)
    (have,), (want,) = both(x, "ZipMap", {"y": info}, **labels)
    assert have == want


def test_broken_trees():
    a = forest(np.random.default_rng(6), "target", 2, 3, 4, [0], MODES)
    for key, value, text in (("nodes_truenodeids", 0, "cycle"), ("nodes_falsenodeids", 99, "not there"),
                             ("nodes_featureids", 4, "feature 4 of 4")):
        broken = {**a, key: [value, *a[key][1:]]}
        node = onnx.helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain=ML, n_targets=1, **broken)
        x = np.zeros((2, 4), np.float32)
        with pytest.raises(tacit.Error, match=text):
            tacit.load(model(x, [node], {"y": onnx.TensorProto.FLOAT})).compile()
