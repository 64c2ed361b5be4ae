/* SPDX-License-Identifier: Apache-2.0 */
#include "op/order.h"

#include <math.h>
#include <string.h>

static int compare_f64(double a, double b)
{
    if (isnan(a) || isnan(b))
        return !!isnan(a) - !!isnan(b);
    return (a > b) - (a < b);
}

static int compare_strings(const ir_string *a, const ir_string *b)
{
    uint64_t n = a->length < b->length ? a->length : b->length;
    int order = n ? memcmp(a->data, b->data, n) : 0;
    if (order)
        return order < 0 ? -1 : 1;
    return (a->length > b->length) - (a->length < b->length);
}

int op_compare(const ir_tensor *t, int64_t a, int64_t b)
{
    switch (ir_dtype_classify(t->dtype)) {
    case IR_CLASS_STRING:
        return compare_strings((const ir_string *)t->data + a, (const ir_string *)t->data + b);
    case IR_CLASS_COMPLEX: {
        double x[2], y[2];
        ir_load_complex(t->dtype, t->data, a, x);
        ir_load_complex(t->dtype, t->data, b, y);
        int order = compare_f64(x[0], y[0]);
        return order ? order : compare_f64(x[1], y[1]);
    }
    case IR_CLASS_FLOAT:
        return compare_f64(ir_load_f64(t->dtype, t->data, a), ir_load_f64(t->dtype, t->data, b));
    default: {
        int64_t x = ir_load_i64(t->dtype, t->data, a), y = ir_load_i64(t->dtype, t->data, b);
        if (t->dtype == TACIT_U64)
            return ((uint64_t)x > (uint64_t)y) - ((uint64_t)x < (uint64_t)y);
        return (x > y) - (x < y);
    }
    }
}

/* Merge sort, bottom up. */
void op_sort(int64_t *items, int64_t *spare, int64_t n,
             int (*compare)(const void *context, int64_t a, int64_t b), const void *context)
{
    int64_t *from = items, *to = spare;
    for (int64_t width = 1; width < n; width *= 2) {
        for (int64_t start = 0; start < n; start += 2 * width) {
            int64_t middle = start + width < n ? start + width : n;
            int64_t end = start + 2 * width < n ? start + 2 * width : n;
            int64_t a = start, b = middle;
            for (int64_t k = start; k < end; k++) {
                bool left = a < middle && (b >= end || compare(context, from[a], from[b]) <= 0);
                to[k] = left ? from[a++] : from[b++];
            }
        }
        int64_t *swap = from;
        from = to;
        to = swap;
    }
    if (from != items && n > 0)
        memcpy(items, from, (size_t)n * sizeof *items);
}

bool op_has_key(tacit_dtype dtype)
{
    ir_dtype_class class = ir_dtype_classify(dtype);
    return class != IR_CLASS_STRING && class != IR_CLASS_COMPLEX;
}

uint64_t op_key(const ir_tensor *t, int64_t i)
{
    const uint64_t sign = UINT64_C(1) << 63;
    uint64_t bits;
    if (ir_dtype_classify(t->dtype) != IR_CLASS_FLOAT) {
        bits = (uint64_t)ir_load_i64(t->dtype, t->data, i);
        return t->dtype == TACIT_U64 ? bits : bits ^ sign;
    }
    double v = ir_load_f64(t->dtype, t->data, i) + 0.0; /* one zero */
    if (isnan(v))
        return UINT64_MAX;
    memcpy(&bits, &v, sizeof bits);
    return bits & sign ? ~bits : bits | sign;
}

/* By bytes, the lowest first; bytes that are the same everywhere are passed over. */
void op_sort_keyed(op_keyed *items, op_keyed *spare, int64_t n)
{
    enum { BYTES = sizeof(uint64_t) };
    int64_t counts[BYTES][256] = {{0}};
    op_keyed *from = items, *to = spare;
    for (int64_t i = 0; i < n; i++)
        for (int b = 0; b < BYTES; b++)
            counts[b][items[i].key >> 8 * b & 255]++;
    for (int b = 0; b < BYTES; b++) {
        int64_t at = 0, *count = counts[b];
        if (n == 0 || count[items[0].key >> 8 * b & 255] == n)
            continue;
        for (int v = 0; v < 256; v++) {
            int64_t here = count[v];
            count[v] = at;
            at += here;
        }
        for (int64_t i = 0; i < n; i++)
            to[count[from[i].key >> 8 * b & 255]++] = from[i];
        op_keyed *swap = from;
        from = to;
        to = swap;
    }
    if (from != items)
        memcpy(items, from, (size_t)n * sizeof *items);
}
