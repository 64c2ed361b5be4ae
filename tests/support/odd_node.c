/* SPDX-License-Identifier: Apache-2.0 */
#include "support/odd_node.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static int64_t odd_int(rng *r)
{
    static const int64_t extremes[] = {INT64_MIN, INT64_MAX, INT64_MAX / 2, INT32_MIN, -1, 0};
    if (rng_below(r, 12) == 0)
        return extremes[rng_below(r, 6)];
    return (int64_t)rng_below(r, 9) - 3;
}

static double odd_float(rng *r)
{
    static const double extremes[] = {NAN, INFINITY, -INFINITY, 0, -0.0, 1e300, -1e-300};
    if (rng_below(r, 10) == 0)
        return extremes[rng_below(r, 7)];
    return rng_range(r, -3, 3);
}

static ir_tensor *odd_tensor(arena *a, rng *r, tacit_dtype dtype)
{
    static const char *const words[] = {"", "a", "bc", "1.5", "\xff\xfe", "two words"};
    ir_shape s = {.rank = (int32_t)rng_below(r, 5)};
    for (int32_t d = 0; d < s.rank; d++)
        s.dims[d] = (int64_t)rng_below(r, 5);
    ir_tensor *t = ir_tensor_new(a, dtype, &s);
    assert_non_null(t);
    memset(t->data, 0, t->bytes);
    for (int64_t i = 0, n = ir_tensor_count(t); i < n; i++) {
        const char *word = words[rng_below(r, 6)];
        if (dtype == TACIT_STRING)
            ((ir_string *)t->data)[i] = (ir_string){word, strlen(word)};
        else if (ir_dtype_is_int(dtype))
            ir_store_i64(dtype, t->data, i, odd_int(r));
        else
            ir_store_f64(dtype, t->data, i, odd_float(r));
    }
    return t;
}

static void odd_attributes(ir_graph *g, ir_node *node, rng *r)
{
    static const char *const ints[] = {
        "axis",         "keepdims",    "to",      "dtype",       "batch_dims",  "k",
        "upper",        "blocksize",   "group",   "num_outputs", "new_axis",    "start",
        "end",          "exclusive",   "reverse", "largest",     "hidden_size", "num_heads",
        "kv_num_heads", "q_num_heads", "bits",    "block_size",  "K",           "N",
        "ceil_mode",    "num_groups",  "dim",     "sample_size", "time_axis",   "batch_axis",
        "maxsplit",     "onesided",    "inverse"};
    static const char *const lists[] = {"axes",         "perm",           "pads",
                                        "strides",      "dilations",      "kernel_shape",
                                        "output_shape", "output_padding", "shape"};
    static const char *const floats[] = {"alpha", "beta", "epsilon",     "scale",
                                         "ratio", "low",  "temperature", "top_p"};
    static const char *const strings[][2] = {{"mode", "reflect"},
                                             {"mode", "linear"},
                                             {"auto_pad", "SAME_UPPER"},
                                             {"reduction", "add"},
                                             {"direction", "RIGHT"},
                                             {"equation", "ij,jk->ik"},
                                             {"pattern", "(a|b)*"},
                                             {"delimiter", "a"},
                                             {"direction", "bidirectional"},
                                             {"reduction", "sum"},
                                             {"activation", "relu"},
                                             {"coordinate_transformation_mode", "asymmetric"}};
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++)
        if (rng_below(r, 3) == 0)
            assert_true(ir_attr_set_int(g, node, ints[i], odd_int(r)));
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        int64_t values[8];
        uint32_t n = (uint32_t)rng_below(r, 6);
        for (uint32_t k = 0; k < n; k++)
            values[k] = odd_int(r);
        if (rng_below(r, 3) == 0)
            assert_true(ir_attr_set_ints(g, node, lists[i], n, values));
    }
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
        if (rng_below(r, 3) == 0)
            assert_true(ir_attr_set_float(g, node, floats[i], (float)rng_range(r, -3, 3)));
    for (size_t i = 0; i < sizeof strings / sizeof *strings; i++)
        if (rng_below(r, 4) == 0)
            assert_true(ir_attr_set_string(g, node, strings[i][0], strings[i][1]));
}

ir_value *odd_view(arena *a, ir_graph *g, rng *r, const ir_tensor **t)
{
    ir_shape s = (*t)->shape, from = s;
    int64_t perm[IR_MAX_RANK], zeros[IR_MAX_RANK] = {0};
    bool slice = rng_below(r, 2);
    for (int32_t d = 0; d < s.rank; d++) {
        int64_t k = (int64_t)rng_below(r, (uint64_t)d + 1);
        perm[d] = perm[k];
        perm[k] = d;
    }
    for (int32_t d = 0; d < s.rank; d++)
        from.dims[slice ? d : perm[d]] = slice ? s.dims[d] + (int64_t)rng_below(r, 2) : s.dims[d];
    ir_tensor *whole = ir_tensor_new(a, (*t)->dtype, &from);
    assert_non_null(whole);
    memset(whole->data, 0, whole->bytes);
    for (int64_t i = 0, n = ir_tensor_count(whole), m = ir_tensor_count(*t); m && i < n; i++)
        ir_copy_element(whole->dtype, whole->data, i, (*t)->data, i % m);
    ir_type type = ir_tensor_type(whole);
    ir_value *x = ir_input_new(g, NULL, &type);
    ir_node *view;
    if (slice) {
        ir_value *starts = ir_constant_i64(g, NULL, 1, s.rank, zeros);
        ir_value *ends = ir_constant_i64(g, NULL, 1, s.rank, s.dims);
        view = op_node(g, "Slice", NULL, 3, (ir_value *[]){x, starts, ends});
    } else {
        view = op_node(g, "Transpose", NULL, 1, &x);
        assert_true(view && ir_attr_set_ints(g, view, "perm", (uint32_t)s.rank, perm));
    }
    assert_true(x && view);
    *t = whole;
    return view->outputs[0];
}

static ir_value *odd_input(arena *a, rng *r, tacit_dtype dtype, bool views, odd_node *out)
{
    const ir_tensor *t = odd_tensor(a, r, dtype);
    ir_type type = ir_tensor_type(t);
    uint64_t how = rng_below(r, views ? 4 : 2);
    ir_value *v;
    if (how == 1) {
        v = ir_constant_new(out->graph, NULL, t);
    } else {
        bool view = how > 1 && t->shape.rank > 0 && dtype != TACIT_STRING;
        v = view ? odd_view(a, out->graph, r, &t) : ir_input_new(out->graph, NULL, &type);
        out->given[out->n_given++] = t;
    }
    assert_non_null(v);
    return v;
}

void odd_node_make(arena *a, const op_def *row, uint64_t seed, bool views, odd_node *out)
{
    static const tacit_dtype common[] = {TACIT_F32, TACIT_F32, TACIT_I64, TACIT_F64,
                                         TACIT_U8,  TACIT_I8,  TACIT_I32, TACIT_BOOL};
    uint64_t name = 0; /* rows get their own cases, whatever their place in the table */
    for (const char *p = row->name; *p; p++)
        name = name * 131 + (unsigned char)*p;
    rng r = rng_seed(seed * 1000003 + name);
    *out = (odd_node){.graph = ir_graph_new(a, "g")};
    ir_value *values[ODD_VALUES] = {0};
    uint32_t most = row->max_in < 0 ? (uint32_t)row->min_in + 3 : (uint32_t)row->max_in;
    most = most > ODD_VALUES ? ODD_VALUES : most;
    uint32_t least = row->min_in > ODD_VALUES ? ODD_VALUES : (uint32_t)row->min_in;
    uint32_t n = least + (uint32_t)rng_below(&r, most - least + 1);
    tacit_dtype shared = common[rng_below(&r, 8)];
    for (uint32_t i = 0; i < n; i++) {
        tacit_dtype dtype = rng_below(&r, 3) ? shared : common[rng_below(&r, 8)];
        if (rng_below(&r, 10) == 0)
            dtype = (tacit_dtype)(1 + rng_below(&r, TACIT_DTYPE_COUNT - 1));
        if (i < least || rng_below(&r, 4))
            values[i] = odd_input(a, &r, dtype, views, out);
    }
    out->n_out = row->min_out > 0 ? (uint32_t)row->min_out : 1;
    if (row->max_out > (int)out->n_out)
        out->n_out += (uint32_t)rng_below(&r, (uint64_t)row->max_out - out->n_out + 1);
    else if (row->max_out < 0)
        out->n_out += (uint32_t)rng_below(&r, 3);
    ir_node *node = ir_node_new(out->graph, row->name, row->domain ? row->domain : "", "n", n,
                                values, out->n_out, NULL);
    assert_non_null(node);
    op_resolve(NULL, node);
    odd_attributes(out->graph, node, &r);
    assert_true(out->n_out <= ODD_VALUES);
    for (uint32_t i = 0; i < out->n_out; i++)
        assert_true(ir_output_add(out->graph, node->outputs[i]));
}
