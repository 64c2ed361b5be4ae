/* SPDX-License-Identifier: Apache-2.0
 * One or more gates of every kind, with tree sizes on both sides of a leaf, for tests that must
 * visit all of them. */
#ifndef TEST_FSS_CATALOGUE_H
#define TEST_FSS_CATALOGUE_H

#include "fss/gate.h"

static const int64_t catalogue_threshold[] = {-20, 3, 40};
static const uint64_t catalogue_slope[] = {1, 2, 3, 4}, catalogue_base[] = {5, 6, 7, 8};
static const uint64_t catalogue_none[] = {0, 0, 0, 0};
static uint64_t catalogue_table[1 << 13], catalogue_small[2 << 9];

static inline void catalogue_init(void)
{
    for (size_t i = 0; i < 1 << 13; i++)
        catalogue_table[i] = (i + 1) * 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i < 2 << 9; i++)
        catalogue_small[i] = i % 1000;
}

static const fss_gate catalogue[] = {
    {.kind = FSS_SHARE, .in_bits = 40},
    {.kind = FSS_BIT, .out_bits = 40},
    {.kind = FSS_DRELU, .in_bits = 40, .eff_bits = 12},
    {.kind = FSS_DRELU, .in_bits = 8},
    {.kind = FSS_DRELU, .in_bits = 5, .heavy = 1},
    {.kind = FSS_DRELU, .in_bits = 40, .eff_bits = 37, .digits = true},
    {.kind = FSS_MAX, .in_bits = 50, .digits = true, .heavy = 1},
    {.kind = FSS_PIECES,
     .in_bits = 40,
     .eff_bits = 14,
     .thresholds = 3,
     .digits = true,
     .threshold = catalogue_threshold,
     .slope = catalogue_slope,
     .base = catalogue_base},
    {.kind = FSS_ARS, .in_bits = 24, .out_bits = 40, .shift = 12, .digits = true},
    {.kind = FSS_GAP, .in_bits = 40, .shift = 12, .digits = true, .heavy = 1},
    {.kind = FSS_LESS, .in_bits = 16, .thresholds = 3, .threshold = catalogue_threshold},
    {.kind = FSS_SELECT, .in_bits = 40},
    {.kind = FSS_RELU, .in_bits = 40, .eff_bits = 20, .heavy = 1},
    {.kind = FSS_PIECES,
     .in_bits = 40,
     .eff_bits = 14,
     .thresholds = 3,
     .threshold = catalogue_threshold,
     .slope = catalogue_slope,
     .base = catalogue_base},
    {.kind = FSS_MAX, .in_bits = 40, .eff_bits = 20, .index_bits = 16},
    {.kind = FSS_TR, .in_bits = 40, .shift = 12},
    {.kind = FSS_TR, .in_bits = 40, .shift = 4, .heavy = 1},
    {.kind = FSS_ARS, .in_bits = 24, .out_bits = 40, .shift = 8},
    {.kind = FSS_GAP, .in_bits = 40, .shift = 12},
    {.kind = FSS_GAP, .in_bits = 40, .shift = 8, .dither = true, .heavy = 1},
    {.kind = FSS_LUT, .index_bits = 9, .out_bits = 40, .table = catalogue_table, .rows = 2},
    {.kind = FSS_LUT, .index_bits = 13, .out_bits = 33, .table = catalogue_table},
    {.kind = FSS_LUT, .index_bits = 6, .out_bits = 40, .table = catalogue_table, .heavy = 1},
    {.kind = FSS_SPLINE, .in_bits = 40, .index_bits = 8, .degree = 1, .table = catalogue_table},
    {.kind = FSS_LUT2,
     .index_bits = 8,
     .index2_bits = 7,
     .out_bits = 40,
     .table = catalogue_table,
     .table2 = catalogue_table},
    {.kind = FSS_TR, .in_bits = 40, .shift = 12, .wide = true},
    {.kind = FSS_TR, .in_bits = 40, .out_bits = 9, .shift = 23, .wide = true, .heavy = 1},
    {.kind = FSS_GAP, .in_bits = 52, .out_bits = 40, .shift = 35, .wide = true},
    {.kind = FSS_GAP, .in_bits = 30, .out_bits = 50, .shift = 9, .wide = true, .heavy = 1},
    {.kind = FSS_TR, .in_bits = 40, .shift = 12, .direct = true},
    {.kind = FSS_TR, .in_bits = 40, .out_bits = 9, .shift = 5, .direct = true, .heavy = 1},
    {.kind = FSS_GAP, .in_bits = 40, .shift = 12, .direct = true},
    {.kind = FSS_GAP, .in_bits = 30, .out_bits = 50, .shift = 9, .direct = true, .heavy = 1},
    {.kind = FSS_RELU, .in_bits = 40, .eff_bits = 20, .direct = true},
    {.kind = FSS_MAX, .in_bits = 40, .eff_bits = 20, .direct = true, .heavy = 1},
    {.kind = FSS_MAX, .in_bits = 40, .eff_bits = 20, .index_bits = 16, .direct = true},
    {.kind = FSS_PIECES,
     .in_bits = 40,
     .eff_bits = 14,
     .thresholds = 3,
     .direct = true,
     .threshold = catalogue_threshold,
     .slope = catalogue_slope,
     .base = catalogue_base},
    {.kind = FSS_PIECES,
     .in_bits = 40,
     .eff_bits = 9,
     .thresholds = 3,
     .direct = true,
     .heavy = 1,
     .threshold = catalogue_threshold,
     .base = catalogue_base},
    {.kind = FSS_CURVE,
     .in_bits = 40,
     .index_bits = 8,
     .degree = 1,
     .table = catalogue_table,
     .slope = catalogue_slope,
     .base = catalogue_base},
    {.kind = FSS_CURVE,
     .in_bits = 40,
     .out_bits = 33,
     .index_bits = 5,
     .degree = 2,
     .heavy = 1,
     .table = catalogue_table,
     .slope = catalogue_none,
     .base = catalogue_base},
    {.kind = FSS_CURVE,
     .in_bits = 40,
     .index_bits = 8,
     .degree = 1,
     .table = catalogue_small,
     .slope = catalogue_slope,
     .base = catalogue_base},
    {.kind = FSS_LUT2,
     .index_bits = 8,
     .index2_bits = 7,
     .out_bits = 40,
     .heavy = 1,
     .table = catalogue_small,
     .table2 = catalogue_small},
    {.kind = FSS_MUL, .in_bits = 40},
    {.kind = FSS_SQUARE, .in_bits = 40},
};

enum { CATALOGUE = sizeof catalogue / sizeof *catalogue };

#endif
