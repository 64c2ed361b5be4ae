/* SPDX-License-Identifier: Apache-2.0 */
#include "op/scores.h"

#include <stdio.h>
#include <string.h>

#include "op/strip.h"

tacit_status op_rows_of(const ir_shape *x, int64_t *rows, int64_t *features, tacit_error *err)
{
    if (x->rank != 1 && x->rank != 2)
        return error_set(err, TACIT_ERR_SHAPE, "the input must be [N, F] or [F], not of rank %d",
                         x->rank);
    *rows = x->rank == 2 ? x->dims[0] : 1;
    *features = x->dims[x->rank - 1];
    return TACIT_OK;
}

tacit_status op_read_post(const ir_node *node, cpu_post *out, tacit_error *err)
{
    static const char *const names[] = {[CPU_POST_NONE] = "NONE",
                                        [CPU_POST_SOFTMAX] = "SOFTMAX",
                                        [CPU_POST_LOGISTIC] = "LOGISTIC",
                                        [CPU_POST_SOFTMAX_ZERO] = "SOFTMAX_ZERO",
                                        [CPU_POST_PROBIT] = "PROBIT"};
    const char *text = ir_attr_string(node, "post_transform", "NONE");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(text, names[i]) == 0) {
            *out = (cpu_post)i;
            return TACIT_OK;
        }
    return error_set(err, TACIT_ERR_VALUE, "post_transform '%s' is not known", text);
}

tacit_status op_read_reals(const ir_node *node, const char *name, arena *memory, const double **out,
                           uint32_t *count, tacit_error *err)
{
    char as_tensor[64];
    snprintf(as_tensor, sizeof as_tensor, "%s_as_tensor", name);
    const ir_tensor *t = ir_attr_tensor(node, as_tensor);
    *out = ir_attr_floats(node, name, count);
    if (*out && *count)
        return TACIT_OK;
    *count = 0;
    if (!t)
        return TACIT_OK;
    int64_t n = ir_tensor_count(t);
    if (!ir_dtype_is_float(t->dtype) || n > UINT32_MAX || !t->data)
        return error_set(err, TACIT_ERR_GRAPH, "%s must hold floats", as_tensor);
    double *values = ARENA_ARRAY(memory, (size_t)n + 1, double);
    if (!values)
        return error_memory(err, name);
    op_strip_load_f64(t->dtype, t->data, 0, 1, n, values);
    *out = values;
    *count = (uint32_t)n;
    return TACIT_OK;
}

tacit_status op_read_labels(const ir_node *node, const char *strings, const char *ints,
                            op_labels *out, tacit_error *err)
{
    uint32_t n;
    *out = (op_labels){.strings = ir_attr_strings(node, strings, &n)};
    if (out->strings && n) {
        out->count = n;
        return TACIT_OK;
    }
    *out = (op_labels){.ints = ir_attr_ints(node, ints, &n)};
    out->count = out->ints ? n : 0;
    return out->count
               ? TACIT_OK
               : error_set(err, TACIT_ERR_GRAPH, "%s or %s must name the classes", ints, strings);
}

tacit_dtype op_labels_dtype(const op_labels *l)
{
    return l->strings ? TACIT_STRING : TACIT_I64;
}

ir_value *op_labels_constant(ir_graph *g, const op_labels *l, uint32_t first, uint32_t count,
                             int32_t rank)
{
    ir_shape shape = ir_shape_of(rank, (int64_t[]){count});
    ir_tensor *t = ir_tensor_new(g->memory, op_labels_dtype(l), &shape);
    for (uint32_t i = 0; t && i < count; i++)
        if (l->strings)
            ((ir_string *)t->data)[i] = l->strings[first + i];
        else
            ((int64_t *)t->data)[i] = l->ints[first + i];
    return t ? ir_constant_new(g, "labels", t) : NULL;
}

void op_store_label(const op_labels *l, int64_t best, ir_tensor *to, int64_t i)
{
    if (l->strings && l->count == 1)
        ((ir_string *)to->data)[i] = best ? l->strings[0] : (ir_string){"", 0};
    else if (l->strings)
        ((ir_string *)to->data)[i] = l->strings[best];
    else
        ((int64_t *)to->data)[i] = l->count == 1 ? best : l->ints[best];
}
