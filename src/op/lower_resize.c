/* SPDX-License-Identifier: Apache-2.0
 * Resize and Upsample of f32: one pass over the data for every axis that changes, with the entries
 * and weights of the filter worked out at compile time. */
#include <math.h>
#include <string.h>

#include "cpu/resample.h"
#include "op/lowerings.h"
#include "op/resize.h"

enum { MOST_TAPS = 64 };

static const ir_tensor *known(const op_lower *c, uint32_t i)
{
    return op_resize_filled(op_lower_known(c, i));
}

/* Is the input absent, empty or known? */
static bool settled(const op_lower *c, uint32_t i)
{
    return !op_lower_has(c, i) || known(c, i) || ir_shape_size(&c->in[i].type.shape) == 0;
}

/* Tables [taps][out]. Where fewer are needed the first tap stands several times, with parts of its
 * weight that add up to it without rounding, the smallest first: a weight of zero would make NaN of
 * an infinite neighbour. */
static tacit_status make_tables(op_lower *c, const op_resize *r, int32_t d, cpu_resample_args *p)
{
    int32_t index[MOST_TAPS];
    float weight[MOST_TAPS];
    for (int64_t o = 0; o < p->out; o++) {
        int32_t n = op_resize_taps(r, d, o, p->in, MOST_TAPS, index, weight);
        if (n < 0)
            return OP_LOWER_NO_KERNEL;
        p->taps = n > p->taps ? n : p->taps;
    }
    size_t entries = (size_t)(p->taps * p->out);
    int32_t *indices = op_lower_pack(c, entries * sizeof *indices);
    float *weights = op_lower_pack(c, entries * sizeof *weights);
    if (!indices || !weights)
        return TACIT_ERR_MEMORY;
    p->copies = p->taps == 1;
    for (int64_t o = 0; o < p->out; o++) {
        int32_t n = op_resize_taps(r, d, o, p->in, MOST_TAPS, index, weight);
        int32_t more = (int32_t)p->taps - n;
        for (int32_t t = 0; t < p->taps; t++) {
            int32_t tap = t < more ? 0 : t - more, halvings = t ? more - t + 1 : more;
            indices[t * p->out + o] = index[tap];
            weights[t * p->out + o] = tap ? weight[tap] : ldexpf(weight[0], -halvings);
        }
        p->copies &= weight[0] == 1;
    }
    p->index = indices;
    p->weight = weights;
    return TACIT_OK;
}

/* One axis; `from` and `to` are offsets in the scratch, or SIZE_MAX for input and output. */
static tacit_status emit_axis(op_lower *c, const op_resize *r, const ir_shape *now, int32_t d,
                              size_t from, size_t to)
{
    cpu_resample_args p = {.in = now->dims[d], .out = r->y.dims[d], .outer = 1, .inner = 1};
    for (int32_t i = 0; i < now->rank; i++)
        *(i < d ? &p.outer : &p.inner) *= i == d ? 1 : now->dims[i];
    TRY(make_tables(c, r, d, &p));
    int64_t unit = p.inner == 1 ? p.out : p.inner, units = p.outer * p.out * p.inner / unit;
    p.tile = 65536 / (unit * p.taps) + 1;
    if ((units + p.tile - 1) / p.tile > INT32_MAX)
        return OP_LOWER_NO_KERNEL;
    cpu_resample_args *a = op_lower_thunk(c, CPU_PICK_NAME(c->cpu.isa, resample_f32),
                                          CPU_PICK(c->cpu.isa, cpu_resample_f32), sizeof *a,
                                          (uint32_t)((units + p.tile - 1) / p.tile));
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = p;
    uint64_t run = (uint64_t)(p.tile * unit) * sizeof(float);
    TRY(from == SIZE_MAX ? op_lower_in(c, offsetof(cpu_resample_args, x), 0)
                         : op_lower_scratch(c, offsetof(cpu_resample_args, x), from, false));
    TRY(to == SIZE_MAX ? op_lower_out_tiled(c, offsetof(cpu_resample_args, y), 0, run, run)
                       : op_lower_scratch(c, offsetof(cpu_resample_args, y), to, true));
    double count = (double)units * (double)unit;
    op_lower_cost(c, 2 * count * (double)p.taps, (uint64_t)(8 * count));
    op_lower_note(c, "resample_f32_%s along axis %d: %lld entries of %lld weights each",
                  cpu_isa_name(c->cpu.isa), d, (long long)p.out, (long long)p.taps);
    return TACIT_OK;
}

tacit_status op_lower_resize(op_lower *c)
{
    bool upsample = c->node->type[0] == 'U';
    const ir_shape *x = &c->in[0].type.shape;
    const ir_tensor *scales = known(c, upsample ? 1 : 2), *sizes = upsample ? NULL : known(c, 3);
    op_resize r;
    int32_t last = -1;
    if (c->in[0].type.dtype != TACIT_F32 || (!scales && !sizes))
        return OP_LOWER_NO_KERNEL;
    for (uint32_t i = 1; i < c->node->n_inputs; i++)
        if (!settled(c, i))
            return OP_LOWER_NO_KERNEL;
    TRY(op_resize_read(c->node, x, upsample ? NULL : known(c, 1), scales, sizes, upsample, &r,
                       c->err));
    if (ir_shape_size(&r.y) == 0)
        return TACIT_OK;
    if (strcmp(r.coordinates, "tf_crop_and_resize") == 0) /* knows an outside */
        return OP_LOWER_NO_KERNEL;
    for (int32_t d = 0; d < x->rank; d++)
        if (op_resize_changes(&r, x, d))
            last = d;
    if (last < 0)
        return op_lower_copy_whole(c, 0, 0);
    ir_shape now = *x;
    size_t from = SIZE_MAX;
    for (int32_t d = 0; d <= last; d++) {
        if (!op_resize_changes(&r, x, d))
            continue;
        ir_shape next = now;
        next.dims[d] = r.y.dims[d];
        size_t to = d == last ? SIZE_MAX
                              : op_lower_reserve(c, (size_t)ir_shape_size(&next) * sizeof(float));
        TRY(emit_axis(c, &r, &now, d, from, to));
        now = next;
        from = to;
    }
    return TACIT_OK;
}
