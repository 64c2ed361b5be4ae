# SPDX-License-Identifier: Apache-2.0
"""Checks rewritten models: usage peer_check.py DIR, where DIR holds N.onnx and N.txt, the path of
the original. Each must pass onnx.checker; where ONNX Runtime runs the original, it must run the
rewritten one and give the same outputs."""
import glob
import os
import sys

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper

ort.set_default_logger_severity(4)


def feeds(model, folder):
    """Inputs of test_data_set_0 by name, or None when there are none or not all are tensors."""
    weights = {i.name for i in model.graph.initializer}
    names = [i for i in model.graph.input if i.name not in weights]
    result = {}
    for k, info in enumerate(names):
        path = os.path.join(folder, "test_data_set_0", f"input_{k}.pb")
        if not info.type.HasField("tensor_type") or not os.path.exists(path):
            return None
        tensor = onnx.TensorProto()
        with open(path, "rb") as f:
            tensor.ParseFromString(f.read())
        result[info.name] = numpy_helper.to_array(tensor)
    return result


def run(path, inputs):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(None, inputs)


def same(a, b):
    if isinstance(a, list):
        for x, y in zip(a, b, strict=True):
            same(x, y)
    else:
        np.testing.assert_array_equal(a, b)


def is_random(model):
    return any(n.op_type in ("Bernoulli", "Multinomial", "Dropout") or n.op_type.startswith("Random")
               for n in model.graph.node)


def main(folder):
    checked = compared = wrong = 0
    for path in sorted(glob.glob(os.path.join(folder, "*.onnx"))):
        with open(path[:-5] + ".txt", encoding="utf-8") as f:
            original = f.read()
        try:
            onnx.checker.check_model(onnx.load(original))
        except Exception:  # the original itself is not valid: nothing to hold us to
            continue
        try:
            onnx.checker.check_model(onnx.load(path))
            checked += 1
        except Exception as e:
            wrong += 1
            print(f"checker: {original}: {e}")
            continue
        model = onnx.load(original)
        inputs = feeds(model, os.path.dirname(original))
        if inputs is None or is_random(model):
            continue
        try:
            expected = run(original, inputs)
        except Exception:  # the peer cannot run the original
            continue
        try:
            got = run(path, inputs)
            for a, b in zip(expected, got, strict=True):
                same(a, b)
            compared += 1
        except Exception as e:
            wrong += 1
            print(f"onnxruntime: {original}: {str(e)[:500]}")
    print(f"peer: {checked} models pass the checker, {compared} run alike in ONNX Runtime, {wrong} wrong")
    return 1 if wrong or not checked or not compared else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
