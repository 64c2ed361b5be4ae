# SPDX-License-Identifier: Apache-2.0
"""Models in fewer bits, as ONNX Runtime's own tools make them of an f32 one.

Usage: narrow.py KIND SOURCE TARGET
KIND: f16           every tensor in half precision but inputs and outputs
      dynamic-int8  weights in int8, one scale a channel; activations are quantised as they come
      static-int8   QDQ, weights by channel. Images are calibrated on noise: the speed does not depend on
                    what the scales are"""
import os
import sys

import numpy
import onnx


def to_f16(source, target):
    from onnxruntime.transformers.float16 import convert_float_to_float16
    onnx.save(convert_float_to_float16(onnx.load(source), keep_io_types=True), target)


def to_dynamic_int8(source, target):
    from onnxruntime.quantization import QuantType, quantize_dynamic
    quantize_dynamic(source, target, weight_type=QuantType.QInt8, per_channel=True)


def to_static_int8(source, target):
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Noise(CalibrationDataReader):
        def __init__(self, name):
            rng = numpy.random.default_rng(1)
            self.left = [{name: rng.standard_normal((1, 3, 224, 224), "f")} for _ in range(2)]

        def get_next(self):
            return self.left.pop() if self.left else None

    prepared = target + ".prepared"
    quant_pre_process(source, prepared, skip_symbolic_shape=True)
    try:
        reader = Noise(onnx.load(prepared, load_external_data=False).graph.input[0].name)
        quantize_static(prepared, target, reader, quant_format=QuantFormat.QDQ, per_channel=True,
                        activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8)
    finally:
        os.remove(prepared)


KINDS = {"f16": to_f16, "dynamic-int8": to_dynamic_int8, "static-int8": to_static_int8}

if __name__ == "__main__":
    KINDS[sys.argv[1]](sys.argv[2], sys.argv[3])
