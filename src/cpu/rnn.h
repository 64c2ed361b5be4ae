/* SPDX-License-Identifier: Apache-2.0
 * RNN, GRU and LSTM over time. What the inputs give to the gates is one product for all steps
 * (cpu/gemm.h or cpu/paired.h), made before; a tile carries a few sequences of one direction
 * through every step, multiplying their states with the packed recurrent weights. */
#ifndef CPU_RNN_H
#define CPU_RNN_H

#include <stdbool.h>

#include "cpu/epilogue.h"
#include "cpu/isa.h"

enum { CPU_RNN_ROWS = 4, CPU_RNN_GATES = 4 }; /* sequences of a tile, most gates of a cell */

typedef enum cpu_rnn_cell { CPU_RNN_PLAIN, CPU_RNN_GRU, CPU_RNN_LSTM } cpu_rnn_cell;

typedef struct cpu_rnn_args {
    const float *x;       /* inputs' share of the gates, biases included */
    const float *packed;  /* [directions][gates][panels][hidden][cpu_rnn_width] */
    const float *late;    /* GRU that is linear before the reset: the bias inside; else NULL */
    const float *h0, *c0; /* NULL: zeros */
    float *y, *h, *c;     /* NULL: not wanted */
    float *work;          /* work_tile floats for every tile */
    int64_t steps, batch, hidden, work_tile;
    int64_t x_direction, x_step, x_row; /* strides in floats; row: sequence */
    int64_t y_direction, y_step, y_row;
    int64_t state_direction, state_row;
    uint32_t row_tiles; /* tile t: direction t / row_tiles */
    cpu_rnn_cell cell;
    bool backward[2];
    cpu_act act[2][3];
} cpu_rnn_args;

CPU_DECLARE(cpu_rnn_f32);

/* One step of all, where few sequences leave processors idle: tile t is part t % parts of the state
 * of what tile t / parts is above. Steps run one behind the other. Not for a GRU that resets before
 * it multiplies: two products behind each other are one step of it. */
typedef struct cpu_rnn_step_args {
    cpu_rnn_args all;
    int64_t step;
    uint32_t parts; /* of whole panels */
} cpu_rnn_step_args;
CPU_DECLARE(cpu_rnn_step_f32);
/* Before the first of them, with cpu_rnn_args and its tiles. */
CPU_DECLARE(cpu_rnn_begin_f32);

/* Columns of a panel of recurrent weights. */
static inline int64_t cpu_rnn_width(cpu_isa isa)
{
    return isa == CPU_AVX512 ? 64 : isa == CPU_AVX2 ? 32 : 16;
}
static inline int64_t cpu_rnn_padded(cpu_isa isa, int64_t hidden)
{
    int64_t width = cpu_rnn_width(isa);
    return (hidden + width - 1) / width * width;
}
static inline int64_t cpu_rnn_work(cpu_isa isa, int64_t hidden)
{
    return CPU_RNN_ROWS * (CPU_RNN_GATES * cpu_rnn_padded(isa, hidden) + 3 * hidden);
}

#endif
