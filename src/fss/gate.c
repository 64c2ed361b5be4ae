/* SPDX-License-Identifier: Apache-2.0
 * The face of the gates: rows, layout of keys, ranges cut into tiles. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "fss/gate_impl.h"

static const gate_row *const rows[FSS_KINDS] = {
#define GATE_ROW_POINTER(name) &gate_row_##name,
    FSS_KIND_MAP(GATE_ROW_POINTER)
#undef GATE_ROW_POINTER
};

static const gate_row *row_of(const fss_gate *gate)
{
    const gate_row *direct = direct_row(gate);
    const gate_row *wide = direct ? direct : wide_row(gate);
    return wide ? wide : rows[gate->kind];
}

const char *fss_kind_name(fss_kind kind)
{
    return (unsigned)kind < FSS_KINDS ? rows[kind]->name : "unknown";
}

tacit_status gate_error(const fss_gate *gate, tacit_error *err, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return error_set(err, TACIT_ERR_ARGUMENT, "gate %s (id %llu): %s", fss_kind_name(gate->kind),
                     (unsigned long long)gate->id, text);
}

unsigned info_item(fss_info *info, unsigned type, unsigned bits, unsigned repeat)
{
    info->item[info->items] = (fss_item){.type = (uint8_t)type,
                                         .bits = (uint8_t)bits,
                                         .leaf = FSS_LEAF_BITS,
                                         .repeat = (uint16_t)repeat};
    return info->items++;
}

unsigned info_lookup(fss_info *info, unsigned bits)
{
    unsigned item = info_item(info, FSS_ITEM_TREE, bits, 1);
    info->item[item].leaf = (uint8_t)fss_dpf_full_leaf(bits);
    return item;
}

unsigned info_compare(const fss_gate *gate, fss_info *info, unsigned bits, unsigned evals)
{
    if (!gate->digits || !evals || bits <= FSS_LEAF_BITS || bits > DIGITS_MAX_BITS)
        return info_item(info, FSS_ITEM_TREE, bits, evals ? 1 : 0);
    unsigned item = info_item(info, FSS_ITEM_DIGITS, bits, evals);
    info->item[item].row = info->digits.rows;
    info->digits.rows = (uint16_t)(info->digits.rows + digits_rows(&info->item[item]));
    info->digits.bits = 1;
    return item;
}

void info_input(fss_info *info, unsigned bits, bool needs_share)
{
    info->in_bits[info->inputs] = (uint8_t)bits;
    info->needs_share[info->inputs++] = needs_share;
}

void info_inner(fss_info *info, unsigned rows_, unsigned bits)
{
    info->inner[info->inner_vectors++] = (fss_vector){(uint16_t)rows_, (uint8_t)bits};
    info->steps = 2;
}

void info_out(fss_info *info, unsigned rows_, unsigned bits)
{
    info->out[info->out_vectors++] = (fss_vector){(uint16_t)rows_, (uint8_t)bits};
}

/* Bytes of an item in the light and the heavy party's key. */
static void item_bytes(const fss_suite *suite, const fss_gate *gate, const fss_item *item,
                       size_t bytes[2])
{
    bytes[0] = bytes[1] = 0;
    if (item->type == FSS_ITEM_WORD)
        bytes[1] = item->repeat * fss_pack_bytes(item->bits, gate->count);
    if (item->type == FSS_ITEM_DIGITS)
        bytes[1] = digits_bytes(item, gate->count);
    if (item->type == FSS_ITEM_TABLES)
        bytes[1] = tables_bytes(item, gate->count);
    if (item->type == FSS_ITEM_DIRECT)
        bytes[0] = bytes[1] = direct_bytes(item, gate->count);
    if (item->type == FSS_ITEM_TREE && item->repeat) {
        if (item->bits > FSS_LEAF_BITS)
            bytes[0] = bytes[1] = fss_dpf_bytes(suite->tree, item->bits, item->leaf, gate->count);
        else
            bytes[1] = string_bytes(1u << item->bits, gate->count);
    }
}

tacit_status fss_gate_info(const fss_suite *suite, const fss_gate *gate, fss_info *info,
                           tacit_error *err)
{
    if ((unsigned)gate->kind >= FSS_KINDS)
        return error_set(err, TACIT_ERR_ARGUMENT, "unknown gate kind %d", (int)gate->kind);
    if (gate->heavy > 1)
        return gate_error(gate, err, "heavy party %u is neither 0 nor 1", gate->heavy);
    if (gate->in_bits > 64 || gate->out_bits > 64)
        return gate_error(gate, err, "rings of %u and %u bits; at most 64", gate->in_bits,
                          gate->out_bits);
    if (gate->count > (size_t)1 << 40)
        return gate_error(gate, err, "%zu elements in one batch", gate->count);
    memset(info, 0, sizeof *info);
    info->steps = 1;
    TRY(row_of(gate)->info(gate, info, err));
    for (unsigned i = 0; i < info->items; i++) {
        size_t bytes[2];
        item_bytes(suite, gate, &info->item[i], bytes);
        for (unsigned b = 0; b < 2; b++) {
            info->item[i].at[b] = info->key_bytes[b];
            info->key_bytes[b] += bytes[b == gate->heavy];
        }
    }
    if (info->digits.rows)
        info->steps++;
    info->wire_bits = (uint64_t)gate->count * info->digits.rows;
    for (unsigned v = 0; v < info->inner_vectors; v++)
        info->wire_bits += (uint64_t)gate->count * info->inner[v].rows * info->inner[v].bits;
    return TACIT_OK;
}

unsigned fss_step_vectors(const fss_info *info, unsigned step, fss_vector v[2])
{
    bool last = step + 1u == info->steps;
    if (info->digits.rows && step == 0) {
        v[0] = info->digits;
        return 1;
    }
    v[0] = last ? info->out[0] : info->inner[0];
    v[1] = last ? info->out[1] : info->inner[1];
    return last ? info->out_vectors : info->inner_vectors;
}

/* Hash calls of one element's trees: a walk per threshold, or the whole tree of a look-up. */
static uint64_t tree_work(const fss_gate *gate, const fss_item *item)
{
    if (item->type == FSS_ITEM_DIRECT) /* two children and their payloads a level */
        return (gate->kind == FSS_PIECES ? gate->thresholds + 1u : 1u) * 4 * (uint64_t)item->bits;
    if (item->type != FSS_ITEM_TREE || !item->repeat || item->bits <= FSS_LEAF_BITS)
        return 0;
    unsigned levels = item->bits - item->leaf, blocks = 1u << (item->leaf - FSS_LEAF_BITS);
    switch (gate->kind) {
    case FSS_LUT:
    case FSS_SPLINE:
    case FSS_CURVE:
    case FSS_LUT2:
        return ((uint64_t)(1 + blocks) << levels) - 1;
    case FSS_LESS:
    case FSS_PIECES:
        return (uint64_t)(gate->thresholds + 1) * (levels + 1);
    default:
        return levels + 1;
    }
}

tacit_status fss_gate_cost(const fss_suite *suite, const fss_gate *gate, fss_cost *cost,
                           tacit_error *err)
{
    fss_info info;
    TRY(fss_gate_info(suite, gate, &info, err));
    *cost =
        (fss_cost){{info.key_bytes[0], info.key_bytes[1]}, info.wire_bits, 0, info.steps - 1u, 0};
    for (unsigned v = 0; v < info.out_vectors; v++)
        cost->out_bits += (uint64_t)gate->count * info.out[v].rows * info.out[v].bits;
    for (unsigned i = 0; i < info.items; i++)
        cost->walks += gate->count * tree_work(gate, &info.item[i]);
    return TACIT_OK;
}

static size_t tile(size_t at, size_t end)
{
    return end - at < GATE_TILE ? end - at : GATE_TILE;
}

tacit_status fss_gate_deal(const fss_dealer *dealer, const fss_gate *gate, const fss_info *info,
                           const fss_mask *in, uint64_t *const *out, uint8_t *const key[2],
                           size_t begin, size_t end, tacit_error *err)
{
    for (unsigned i = 0; i < info->inputs; i++)
        if (in[i].count != gate->count)
            return gate_error(gate, err, "%zu masks for %zu elements of input %u", in[i].count,
                              gate->count, i);
    if (begin % FSS_RANGE || end > gate->count || (end % FSS_RANGE && end != gate->count))
        return gate_error(gate, err, "range [%zu, %zu) of %zu is not on a border of %d", begin, end,
                          gate->count, FSS_RANGE);
    deal_ctx c = {dealer, gate, info, in, out, key};
    for (size_t at = begin; at < end; at += GATE_TILE)
        row_of(gate)->deal(&c, at, tile(at, end));
    return TACIT_OK;
}

void fss_gate_step(const fss_party *party, const fss_gate *gate, const fss_info *info,
                   unsigned step, const fss_io *io, size_t begin, size_t end)
{
    uint64_t unused[GATE_TILE];
    bool opening = info->digits.rows && step == 0;
    step_ctx c = {party, gate, info, io, party->index, opening ? unused : NULL};
    if (info->digits.rows && step > 0)
        step--; /* the row's own steps begin once the digits are open */
    for (size_t at = begin; at < end; at += GATE_TILE)
        row_of(gate)->step(&c, step, at, tile(at, end));
}

void fss_gate_sim(const fss_gate *gate, const fss_info *info, const uint64_t *const *x,
                  const uint64_t *const *masked, uint64_t *const *y, size_t begin, size_t end)
{
    sim_ctx c = {gate, info, x, masked, y};
    rows[gate->kind]->sim(&c, begin, end - begin);
}
