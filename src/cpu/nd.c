/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/nd.h"

#include <string.h>

void cpu_nd_begin(cpu_nd *nd, int32_t rank, const int64_t *dims)
{
    *nd = (cpu_nd){.rank = rank};
    memcpy(nd->dims, dims, (size_t)rank * sizeof *dims);
}

void cpu_nd_operand(cpu_nd *nd, const int64_t *strides)
{
    memcpy(nd->strides[nd->operands++], strides, (size_t)nd->rank * sizeof *strides);
}

static void drop_axis(cpu_nd *nd, int32_t axis)
{
    nd->rank--;
    for (int32_t d = axis; d < nd->rank; d++) {
        nd->dims[d] = nd->dims[d + 1];
        for (uint32_t k = 0; k < nd->operands; k++)
            nd->strides[k][d] = nd->strides[k][d + 1];
    }
}

/* Can axis d and the one after it be walked as one by operand k? */
static bool runs_on(const cpu_nd *nd, uint32_t k, int32_t d)
{
    return nd->strides[k][d] == nd->strides[k][d + 1] * nd->dims[d + 1];
}

/* By all? */
static bool mergeable(const cpu_nd *nd, int32_t d)
{
    for (uint32_t k = 0; k < nd->operands; k++)
        if (!runs_on(nd, k, d))
            return false;
    return true;
}

static void reduce_axes(cpu_nd *nd)
{
    for (int32_t d = nd->rank; d-- > 0;)
        if (nd->dims[d] == 1)
            drop_axis(nd, d);
    for (int32_t d = nd->rank - 1; d-- > 0;)
        if (mergeable(nd, d)) {
            nd->dims[d + 1] *= nd->dims[d];
            drop_axis(nd, d);
        }
    if (nd->rank == 0) {
        nd->rank = 1;
        nd->dims[0] = 1;
        for (uint32_t k = 0; k < nd->operands; k++)
            nd->strides[k][0] = 1;
    }
}

void cpu_nd_repeat(cpu_nd *nd, int64_t shorter)
{
    reduce_axes(nd);
    int32_t inner = nd->rank - 1, outer = inner - 1;
    if (outer < 0 || nd->dims[inner] >= shorter || !runs_on(nd, nd->operands - 1, outer))
        return;
    for (uint32_t k = 0; k < nd->operands; k++)
        if (!runs_on(nd, k, outer) && (nd->strides[k][outer] || nd->strides[k][inner] != 1))
            return;
    for (uint32_t k = 0; k < nd->operands; k++)
        if (!runs_on(nd, k, outer)) {
            nd->period[k] = nd->dims[inner];
            nd->strides[k][inner] = 0;
        }
    nd->dims[inner] *= nd->dims[outer];
    drop_axis(nd, outer);
}

uint32_t cpu_nd_ready(cpu_nd *nd, int64_t tile)
{
    int64_t count = 1;
    for (int32_t d = 0; d < nd->rank; d++)
        count *= nd->dims[d];
    if (count == 0) {
        nd->units = 0;
        return 0;
    }
    reduce_axes(nd);
    int64_t inner = nd->dims[nd->rank - 1], rows = count / inner;
    nd->piece = inner <= tile + tile / 2 ? inner : tile;
    nd->pieces = (inner + nd->piece - 1) / nd->piece;
    nd->units = rows * nd->pieces;
    nd->tile_units = tile / nd->piece;
    if (nd->tile_units < 1)
        nd->tile_units = 1;
    /* The tile number is 32 bits wide. */
    while ((nd->units + nd->tile_units - 1) / nd->tile_units > INT32_MAX)
        nd->tile_units *= 2;
    return (uint32_t)((nd->units + nd->tile_units - 1) / nd->tile_units);
}

bool cpu_nd_dense(const cpu_nd *nd, uint32_t k)
{
    int64_t expected = 1;
    for (int32_t d = nd->rank; d-- > 0;) {
        if (nd->strides[k][d] != expected)
            return false;
        expected *= nd->dims[d];
    }
    return true;
}

int64_t cpu_nd_tile_elements(const cpu_nd *nd)
{
    if (nd->pieces > 1 && nd->rank > 1)
        return 0;
    return nd->tile_units * nd->piece;
}

static void set_count(const cpu_nd *nd, cpu_nd_walk *w)
{
    int64_t left = nd->dims[nd->rank - 1] - w->piece * nd->piece;
    w->count = left < nd->piece ? left : nd->piece;
}

void cpu_nd_start(const cpu_nd *nd, cpu_nd_walk *w, uint32_t begin, uint32_t end)
{
    w->unit = begin * nd->tile_units;
    w->last = end * nd->tile_units < nd->units ? end * nd->tile_units : nd->units;
    int64_t row = w->unit / nd->pieces;
    w->piece = w->unit % nd->pieces;
    for (uint32_t k = 0; k < nd->operands; k++)
        w->at[k] = w->piece * nd->piece * nd->strides[k][nd->rank - 1];
    for (int32_t d = nd->rank - 1; d-- > 0;) {
        w->index[d] = row % nd->dims[d];
        row /= nd->dims[d];
        for (uint32_t k = 0; k < nd->operands; k++)
            w->at[k] += w->index[d] * nd->strides[k][d];
    }
    set_count(nd, w);
}

void cpu_nd_next(const cpu_nd *nd, cpu_nd_walk *w)
{
    w->unit++;
    int32_t inner = nd->rank - 1;
    if (++w->piece < nd->pieces) {
        for (uint32_t k = 0; k < nd->operands; k++)
            w->at[k] += nd->piece * nd->strides[k][inner];
        set_count(nd, w);
        return;
    }
    if (nd->pieces > 1) {
        for (uint32_t k = 0; k < nd->operands; k++)
            w->at[k] -= (nd->pieces - 1) * nd->piece * nd->strides[k][inner];
        w->piece = 0;
        set_count(nd, w);
    }
    w->piece = 0;
    for (int32_t d = inner; d-- > 0;) {
        for (uint32_t k = 0; k < nd->operands; k++)
            w->at[k] += nd->strides[k][d];
        if (++w->index[d] < nd->dims[d])
            return;
        for (uint32_t k = 0; k < nd->operands; k++)
            w->at[k] -= nd->strides[k][d] * nd->dims[d];
        w->index[d] = 0;
    }
}
