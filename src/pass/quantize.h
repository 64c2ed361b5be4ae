/* SPDX-License-Identifier: Apache-2.0
 * Weights of linear layers into fewer bits, in forms every ONNX runtime knows. */
#ifndef PASS_QUANTIZE_H
#define PASS_QUANTIZE_H

#include "op/op.h"

typedef enum pass_storage {
    PASS_STORE_INT8,
    PASS_STORE_INT4,
    PASS_STORE_BF16,
    PASS_STORE_F16,
} pass_storage;

/* What a value was seen to hold. */
typedef struct pass_value_range {
    const char *value;
    double low, high;
} pass_value_range;

typedef struct pass_quantize_options {
    pass_storage storage;
    int64_t block; /* int8, int4: k that share a scale: a power of two from 16 to 256 */
    /* Not NULL: products whose left side has a range run on bytes, by QuantizeLinear and
     * DequantizeLinear around them; storage must be int8. */
    const pass_value_range *ranges;
    uint32_t n_ranges;
} pass_quantize_options;

typedef struct pass_quantize_report {
    uint32_t layers;
    uint64_t bytes_before, bytes_after; /* of the weights that were changed */
    double error;                       /* √(Σ(w − w')²/Σw²) over them */
} pass_quantize_report;

/* MatMul and Gemm with a constant right side of at least 32 × 16. Int8 and int4 become MatMulNBits
 * (symmetric, accuracy level 4), bf16 and f16 a Cast in front of the product. The graph need not be
 * inferred. */
tacit_status pass_quantize(ir_graph *g, const pass_quantize_options *options,
                           pass_quantize_report *report, tacit_error *err);

#endif
