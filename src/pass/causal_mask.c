/* SPDX-License-Identifier: Apache-2.0
 * Known masks of attention that are a triangle or a band: they become attributes, so that a kernel
 * can skip what they hide instead of reading them. */
#include "pass/recognise.h"

/* 1: seen, 0: hidden, -1: neither (a bias that means something). */
static int openness(const ir_tensor *t, int64_t i)
{
    if (t->dtype == TACIT_BOOL)
        return ((const uint8_t *)t->data)[i] != 0;
    double x = ir_load_f64(t->dtype, t->data, i);
    return x == 0 ? 1 : x <= -1e4 ? 0 : -1;
}

/* Keys [*low, *high] are seen in this row and no others. */
static bool row_range(const ir_tensor *t, int64_t start, int64_t width, int64_t *low, int64_t *high)
{
    int64_t seen = 0;
    *low = width;
    *high = -1;
    for (int64_t j = 0; j < width; j++) {
        int open = openness(t, start + j);
        if (open < 0)
            return false;
        if (!open)
            continue;
        *low = j < *low ? j : *low;
        *high = j;
        seen++;
    }
    return seen > 0 && seen == *high - *low + 1;
}

static int64_t at_least_zero(int64_t x)
{
    return x < 0 ? 0 : x;
}

/* Does row i show exactly what the band lets through? */
static bool row_agrees(const pass_band *b, int64_t i, int64_t width, int64_t low, int64_t high)
{
    int64_t last = i + b->offset < width - 1 ? i + b->offset : width - 1;
    int64_t first = b->window ? at_least_zero(i + b->offset - b->window + 1) : 0;
    return high == last && low == first;
}

/* The offset shows in the first row that ends early (where all reach the end, it is such that they
 * do); the window in the last that begins late. */
static bool find_band(const ir_tensor *t, int64_t height, int64_t width, pass_band *b)
{
    bool found = false;
    *b = (pass_band){.all_open = true};
    for (int64_t i = 0; i < height; i++) {
        int64_t low, high;
        if (!row_range(t, i * width, width, &low, &high))
            return false;
        if (high < width - 1 && !found) {
            b->offset = high - i;
            found = true;
        }
        if (low > 0 && !found) {
            b->offset = width - 1;
            found = true;
        }
        if (low > 0)
            b->window = i + b->offset - low + 1;
        b->all_open &= low == 0 && high == width - 1;
    }
    if (b->all_open)
        return true;
    for (int64_t i = 0; found && i < height; i++) {
        int64_t low, high;
        if (!row_range(t, i * width, width, &low, &high) || !row_agrees(b, i, width, low, high))
            return false;
    }
    return found;
}

/* All [Sq,Sk] planes of the mask are one and the same. */
static bool one_plane(const ir_tensor *t, size_t plane)
{
    for (size_t at = plane; at < t->bytes; at += plane)
        if (memcmp(t->data, (const char *)t->data + at, plane) != 0)
            return false;
    return true;
}

bool pass_match_band(const ir_value *mask, int64_t sq, int64_t sk, pass_band *b)
{
    const ir_tensor *t = ir_value_known(mask);
    if (!t || t->shape.rank < 2 || sq * sk == 0 || t->shape.dims[t->shape.rank - 1] != sk ||
        t->shape.dims[t->shape.rank - 2] != sq)
        return false;
    return one_plane(t, ir_dtype_bytes(t->dtype, sq * sk)) && find_band(t, sq, sk, b);
}

/* The layers of a model share their mask: the newest answer is kept. (Queries and keys cannot
 * differ between readers of one mask unless it broadcasts, and then it is no band.) */
typedef struct memory {
    const ir_tensor *mask;
    bool found;
    pass_band band;
} memory;

static tacit_status recognise(pass_edit *e, ir_node *n, memory *last)
{
    if (!pass_is(e, n, PASS_T_ATTENTION) || n->n_inputs < 4 || ir_attr_int(n, "causal", 0) ||
        ir_attr_int(n, "window", 0))
        return TACIT_OK;
    const ir_tensor *t = ir_value_known(n->inputs[3]);
    if (!t || !pass_static(n->inputs[0]) || !pass_static(n->inputs[1]))
        return TACIT_OK;
    if (last->mask != t) {
        last->mask = t;
        last->found = pass_match_band(n->inputs[3], pass_dim(n->inputs[0], 2),
                                      pass_dim(n->inputs[1], 2), &last->band);
    }
    if (!last->found) {
        pass_near_miss(e, n, "the mask is known but no causal triangle or band");
        return TACIT_OK;
    }
    pass_band b = last->band;
    pass_fusion f = {.op = PASS_T_ATTENTION, .root = n, .n_inputs = 3, .n_outputs = 1};
    memcpy(f.inputs, n->inputs, 3 * sizeof *f.inputs);
    f.outputs[0] = n->outputs[0];
    pass_set_add(&f.nodes, n);
    pass_fusion_attrs(&f, n);
    if (!b.all_open)
        pass_fusion_int(&f, "causal", 1);
    if (!b.all_open && b.offset)
        pass_fusion_int(&f, "causal_offset", b.offset);
    if (!b.all_open && b.window)
        pass_fusion_int(&f, "window", b.window);
    return pass_fuse(e, &f);
}

tacit_status pass_causal_mask(pass_context *c)
{
    pass_edit e;
    TRY(pass_edit_begin(&e, c));
    memory last = {0};
    for (uint32_t i = 0, n = c->graph->nodes.count; i < n; i++)
        TRY(recognise(&e, c->graph->nodes.data[i], &last));
    return TACIT_OK;
}
