/* SPDX-License-Identifier: Apache-2.0
 * From the description of a gate to what the device reads. */
#include <string.h>

#include "secure/device.h"

enum { ALIGN = 16, OVERRUN = 16 };

static uint64_t item_size(const fss_info *info, unsigned item, unsigned party)
{
    size_t end = item + 1 < info->items ? info->item[item + 1].at[party] : info->key_bytes[party];
    return end - info->item[item].at[party];
}

static uint64_t string_bytes(unsigned width, size_t count)
{
    return width <= 64 ? fss_pack_bytes(width, count)
                       : fss_pack_bytes(64, count) + fss_pack_bytes(width - 64, count);
}

static uint64_t digit_tables(const cuda_item *it, size_t count)
{
    uint64_t bytes = 0;
    for (unsigned d = 0; d < it->digits; d++)
        bytes += string_bytes(1u << (it->bits / it->digits + (d < it->bits % it->digits)), count);
    return bytes;
}

static uint64_t place_items(const fss_gate *gate, const fss_info *info, unsigned party,
                            cuda_gate *out)
{
    uint64_t at[2] = {0, 0};
    for (unsigned i = 0; i < info->items; i++) {
        const fss_item *from = &info->item[i];
        cuda_item *to = &out->item[i];
        *to = (cuda_item){.type = from->type,
                          .bits = from->bits,
                          .leaf = from->leaf,
                          .repeat = from->repeat,
                          .row = from->row,
                          .at = at[0],
                          .at_1 = at[1]};
        for (unsigned b = 0; b < 2; b++) {
            uint64_t size = item_size(info, i, b);
            at[b] += size ? (size + OVERRUN + ALIGN - 1) / ALIGN * ALIGN : 0;
        }
        if (party == 1)
            to->at = to->at_1;
        if (from->type == FSS_ITEM_TABLES)
            to->digits = (uint8_t)from->repeat;
        if (from->type == FSS_ITEM_DIGITS) {
            to->digits = (uint8_t)fss_digits(from);
            to->tables = digit_tables(to, gate->count);
        }
    }
    return at[party];
}

uint64_t sec_device_key_bytes(const fss_suite *suite, const fss_gate *gate, const fss_info *info,
                              unsigned party)
{
    cuda_gate unused;
    (void)suite;
    return place_items(gate, info, party, &unused);
}

void sec_device_gate(const fss_suite *suite, const fss_gate *gate, const fss_info *info,
                     unsigned party, cuda_gate *out)
{
    *out = (cuda_gate){.id = gate->id,
                       .count = gate->count,
                       .offset = gate->offset,
                       .kind = (uint8_t)gate->kind,
                       .party = (uint8_t)party,
                       .heavy = gate->heavy,
                       .prg = (uint8_t)suite->prg.id,
                       .tree = (uint8_t)suite->tree,
                       .in_bits = gate->in_bits,
                       .out_bits = info->out[0].bits,
                       .out1_bits = info->out[1].bits,
                       .inner_bits = {info->inner[0].bits, info->inner[1].bits},
                       .inner_vectors = info->inner_vectors,
                       .eff_bits = gate->eff_bits ? gate->eff_bits : gate->in_bits,
                       .shift = gate->shift,
                       .index_bits = gate->index_bits,
                       .index2_bits = gate->index2_bits,
                       .degree = gate->degree,
                       .faithful = gate->shift && !gate->dither,
                       .opens = info->digits.rows > 0,
                       .inputs = info->inputs,
                       .rows = gate->rows ? gate->rows : 1,
                       .thresholds = gate->thresholds,
                       .threshold = gate->threshold,
                       .slope = gate->slope,
                       .base = gate->base,
                       .table = gate->table,
                       .table2 = gate->table2};
    for (unsigned k = 0; k < info->inputs; k++)
        out->input_bits[k] = info->in_bits[k];
    for (unsigned i = 0; i < info->items; i++)
        out->form = info->item[i].type == FSS_ITEM_DIRECT   ? CUDA_DIRECT
                    : info->item[i].type == FSS_ITEM_TABLES ? CUDA_WIDE
                                                            : out->form;
    place_items(gate, info, party, out);
}

void sec_device_keys(const fss_suite *suite, const fss_prf *seed0, const fss_prf *seed1,
                     uint32_t words[CUDA_KEY_WORDS])
{
    memset(words, 0, CUDA_KEY_WORDS * sizeof *words);
    for (unsigned r = 0; r < FSS_ROLES; r++)
        memcpy(words + 44 * r, suite->prg.role[r].round, 176);
    memcpy(words + 44 * CUDA_SEED, seed0->key.round, 176);
    if (seed1)
        memcpy(words + 44 * CUDA_SEED_1, seed1->key.round, 176);
    memcpy(words + CUDA_TWEAK, suite->prg.tweak, 16);
}
