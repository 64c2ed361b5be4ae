/* SPDX-License-Identifier: Apache-2.0
 * Real functions as tables for the gates, with their error measured when they are built: every
 * input of the domain is tried, so the stated bound is a fact and not an estimate.
 *
 * Fixed point: a ring word stands for itself (signed) times 2^-frac. */
#ifndef FSS_FUNC_H
#define FSS_FUNC_H

#include "base/arena.h"
#include "fss/gate.h"

typedef double (*fss_real_fn)(double x);

double fss_gelu(double x);      /* by erf */
double fss_gelu_tanh(double x); /* the tanh form */
double fss_silu(double x);
double fss_sigmoid(double x);
double fss_exp_neg(double x); /* e^-x */
double fss_recip(double x);
double fss_rsqrt(double x);

typedef struct fss_error {
    double max, mean; /* absolute, over every fixed-point input of [low, high) */
} fss_error;

/* A function cut into 2^index_bits segments of 2^shift input units, a polynomial on each.
 * Feed FSS_SPLINE with x and with index = x >> shift (mod 2^index_bits): by FSS_TR, or, with
 * `dither`, locally (fss_dither_tr_sim) - then each polynomial also serves its left neighbour. */
typedef struct fss_spline {
    fss_real_fn fn;
    unsigned in_frac, shift, index_bits, degree;
    unsigned out_frac; /* of the result; at least degree * in_frac */
    bool is_signed;    /* domain [-2^(b+s-1), 2^(b+s-1)) or [0, 2^(b+s)) units */
    bool dither;
    double low, high; /* where fn is defined and the error is measured */
} fss_spline;

/* table: (degree + 1) << index_bits words, rows a_0, a_1, .. as FSS_SPLINE wants them. */
tacit_status fss_spline_build(const fss_spline *spline, uint64_t *table, fss_error *error,
                              tacit_error *err);

/* Activations over a whole ring: clip, look up inside, straight tails outside.
 *   1. `clip` (PIECES, two rows): c = x clipped to [-range, spline.high) and the tail's own term
 *   2. index = c >> spline.shift
 *   3. `gate` (SPLINE) of c and index, at scale out_frac
 *   4. y = that + (tail << (out_frac - in_frac)), then truncate by out_frac - in_frac
 * Where x is proven to lie in [-range, spline.high), step 1 and the tail fall away. */
typedef enum fss_activation_kind {
    FSS_GELU,
    FSS_GELU_TANH,
    FSS_SILU,
    FSS_SIGMOID,
    FSS_TANH,
    FSS_ACTIVATIONS
} fss_activation_kind;

typedef struct fss_activation {
    fss_gate clip, gate; /* id, count, heavy to be filled in by the caller */
    fss_spline spline;
    double range;    /* real, a power of two */
    fss_error error; /* of steps 1 to 3 against the real function, inside the range */
    double tail;     /* largest error outside */
} fss_activation;

/* `bits`: ring of x and y; `eff_bits`: known bound on x; `segment`: segments are 2^-segment wide.
 * Tables belong to the arena. */
tacit_status fss_activation_build(fss_activation_kind kind, unsigned bits, unsigned eff_bits,
                                  unsigned frac, unsigned segment, unsigned degree,
                                  unsigned out_frac, bool dither, arena *memory,
                                  fss_activation *out, tacit_error *err);

/* e^-d for d in [0, 2^int_bits) as a product of two look-ups: d = hi * 2^lo_bits + lo, index
 * hi = d >> lo_bits (FSS_TR, ring hi_bits) and lo = d mod 2^lo_bits, which is free: the low bits of
 * a masked word are a masked word. With dither hi is local too and lo lies in (-2^lo, 2^lo): index
 * lo^ = d^ mod 2^lo_bits and mask r mod 2^lo_bits, both read in a ring one bit wider. */
typedef struct fss_exp {
    fss_gate gate; /* LUT2 of hi and lo */
    unsigned lo_bits, hi_bits, out_frac;
    fss_error error;
} fss_exp;
tacit_status fss_exp_build(unsigned out_bits, unsigned frac, unsigned int_bits, unsigned out_frac,
                           bool dither, arena *memory, fss_exp *out, tacit_error *err);

/* 1/x or 1/sqrt(x) of any positive word below 2^in_bits, by normalising:
 *   1. `scale` (PIECES, two rows): u = 2^(in_bits-1-e) and g for e = floor(log2 x)
 *   2. t = x u (MUL) in [2^(in_bits-1), 2^in_bits)
 *   3. m = (t >> (in_bits-1-b)) mod 2^b (FSS_TR into a ring of b bits)
 *   4. v = table[m] (LUT), the function of the mantissa in [1, 2) at scale v_frac
 *   5. y = v g (MUL), at scale v_frac + g_frac; truncate as needed
 * The relative error is about 2^-(b+2), plus 2^-g_frac absolute. */
typedef struct fss_normal {
    fss_gate scale, lut;
    unsigned mantissa_bits, v_frac, g_frac;
    double relative; /* largest relative error of v */
} fss_normal;
tacit_status fss_normal_build(fss_real_fn fn, unsigned in_bits, unsigned in_frac, unsigned bits,
                              unsigned mantissa_bits, unsigned v_frac, unsigned g_frac,
                              arena *memory, fss_normal *out, tacit_error *err);

#endif
