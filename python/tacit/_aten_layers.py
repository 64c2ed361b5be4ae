# SPDX-License-Identifier: Apache-2.0
"""Handlers of ATen's layers: matrix products, normalisation, convolution, pooling, attention."""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np

from ._aten import Tensor, Unsupported, handles, ints, pair
from ._graph import Value


@handles("aten.linear.default")
def linear(c: Any, a: Tensor, weight: Tensor, bias: Any = None) -> Value:
    made = c.op("MatMul", a, c.op("Transpose", weight, perm=[1, 0]))
    return made if bias is None else c.op("Add", made, bias)


@handles("aten.addmm.default", "aten.baddbmm.default")
def addmm(c: Any, bias: Tensor, a: Tensor, b: Tensor, beta: Any = 1, alpha: Any = 1) -> Value:
    made = c.op("MatMul", a, b)
    if alpha != 1:
        made = c.op("Mul", made, c.scalar(alpha, c.dtype))
    added = c.value(bias) if beta == 1 else c.op("Mul", bias, c.scalar(beta, c.dtype))
    return c.op("Add", made, added)


@handles("aten.mm.default", "aten.bmm.default", "aten.matmul.default")
def matmul(c: Any, a: Tensor, b: Tensor) -> Value:
    return c.op("MatMul", a, b)


@handles("aten.layer_norm.default")
def layer_norm(c: Any, a: Tensor, shape: Sequence[int], weight: Any = None, bias: Any = None,
               eps: float = 1e-5, *unused: Any) -> Value:  # fmt: skip
    if weight is None:
        weight = c.op("Expand", c.scalar(1, c.dtype), c.sizes(shape))
    extra = [] if bias is None else [bias]
    return c.op("LayerNormalization", a, weight, *extra, axis=-len(shape), epsilon=float(eps))


@handles("aten.rms_norm.default")
def rms_norm(c: Any, a: Tensor, shape: Sequence[int], weight: Any = None, eps: Any = None) -> Value:
    if weight is None:
        weight = c.op("Expand", c.scalar(1, c.dtype), c.sizes(shape))
    eps = float(np.finfo(np.float32).eps) if eps is None else float(eps)
    return c.op("RMSNormalization", a, weight, axis=-len(shape), epsilon=eps)


@handles("aten.group_norm.default")
def group_norm(c: Any, a: Tensor, groups: int, weight: Any = None, bias: Any = None,
               eps: float = 1e-5, *unused: Any) -> Value:  # fmt: skip
    channels = ints(a.shape[1])
    weight = c.op("Expand", c.scalar(1, c.dtype), channels) if weight is None else weight
    bias = c.op("Expand", c.scalar(0, c.dtype), channels) if bias is None else bias
    return c.op("GroupNormalization", a, weight, bias, num_groups=groups, epsilon=float(eps))


@handles("aten.batch_norm.default")
def batch_norm(c: Any, a: Tensor, weight: Any, bias: Any, mean: Any, var: Any, training: bool,
               momentum: float, eps: float, *unused: Any) -> Value:  # fmt: skip
    if training or mean is None:
        raise Unsupported("batch normalisation while training")
    weight = c.op("Expand", c.scalar(1, c.dtype), ints(a.shape[1])) if weight is None else weight
    bias = c.op("Expand", c.scalar(0, c.dtype), ints(a.shape[1])) if bias is None else bias
    return c.op("BatchNormalization", a, weight, bias, mean, var, epsilon=float(eps))


@handles("aten.conv1d.default", "aten.conv2d.default", "aten.conv3d.default", "aten.conv2d.padding",
         "aten.conv1d.padding")  # fmt: skip
def conv(c: Any, a: Tensor, weight: Tensor, bias: Any = None, stride: Any = 1, padding: Any = 0,
         dilation: Any = 1, groups: int = 1) -> Value:  # fmt: skip
    n = weight.rank - 2
    dilations = pair(dilation, n)
    if isinstance(padding, str):
        whole = [d * (k - 1) if padding == "same" else 0 for d, k in zip(dilations, weight.shape[2:])]
        pads = [w // 2 for w in whole] + [w - w // 2 for w in whole]
    else:
        pads = pair(padding, n) * 2
    extra = [] if bias is None else [bias]
    return c.op("Conv", a, weight, *extra, strides=pair(stride, n), pads=pads, dilations=dilations,
                group=groups, kernel_shape=weight.shape[2:])  # fmt: skip


@handles("aten.max_pool2d.default", "aten.max_pool1d.default")
def max_pool(c: Any, a: Tensor, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1,
             ceil_mode: bool = False) -> Value:  # fmt: skip
    n = a.rank - 2
    return c.op("MaxPool", a, kernel_shape=pair(kernel, n), strides=pair(stride or kernel, n),
                pads=pair(padding, n) * 2, dilations=pair(dilation, n),
                ceil_mode=int(ceil_mode))  # fmt: skip


@handles("aten.avg_pool2d.default", "aten.avg_pool1d.default")
def avg_pool(c: Any, a: Tensor, kernel: Any, stride: Any = (), padding: Any = 0,
             ceil_mode: bool = False, count_include_pad: bool = True,
             divisor_override: Any = None) -> Value:  # fmt: skip
    if divisor_override is not None:
        raise Unsupported("average pooling with a divisor")
    n = a.rank - 2
    return c.op("AveragePool", a, kernel_shape=pair(kernel, n), strides=pair(stride or kernel, n),
                pads=pair(padding, n) * 2, ceil_mode=int(ceil_mode),
                count_include_pad=int(count_include_pad))  # fmt: skip


@handles("aten.adaptive_avg_pool2d.default", "aten.adaptive_avg_pool1d.default")
def adaptive_avg_pool(c: Any, a: Tensor, size: Any) -> Value:
    wanted, given = pair(size, a.rank - 2), a.shape[2:]
    if all(w == 1 for w in wanted):
        return c.op("GlobalAveragePool", a)
    if any(g is None or g % w for g, w in zip(given, wanted)):
        raise Unsupported("adaptive pooling whose windows differ in size")
    kernel = [g // w for g, w in zip(given, wanted)]
    return c.op("AveragePool", a, kernel_shape=kernel, strides=kernel)


@handles("aten.scaled_dot_product_attention.default")
def attention(c: Any, q: Tensor, k: Tensor, v: Tensor, mask: Any = None, dropout: float = 0.0,
              is_causal: bool = False, scale: Any = None, enable_gqa: bool = False,
              attn_mask: Any = None) -> Value:  # fmt: skip
    mask = attn_mask if mask is None else mask
    if dropout:
        raise Unsupported("attention with dropout")
    tensors = [c.value(t) for t in (q, k, v)]
    if q.rank == 3:
        tensors = [c.op("Unsqueeze", t, ints(1)) for t in tensors]
    elif q.rank != 4:
        raise Unsupported("attention of rank other than 3 or 4")
    inputs = tensors + ([] if mask is None else [c.value(mask)])
    if mask is not None and q.rank == 3 and mask.rank == 3:
        inputs[3] = c.op("Unsqueeze", inputs[3], ints(1))
    attrs = {} if scale is None else {"scale": float(scale)}
    made = c.op("Attention", *inputs, is_causal=int(is_causal), **attrs)
    return c.op("Squeeze", made, ints(1)) if q.rank == 3 else made
