/* SPDX-License-Identifier: Apache-2.0
 * What becomes of a row's sums in the classical models of ai.onnx.ml: base values, the transform
 * behind them, and the class that wins. */
#ifndef CPU_SCORES_H
#define CPU_SCORES_H

#include <stdbool.h>
#include <stdint.h>

typedef enum cpu_post {
    CPU_POST_NONE,
    CPU_POST_SOFTMAX,
    CPU_POST_LOGISTIC,
    CPU_POST_SOFTMAX_ZERO,
    CPU_POST_PROBIT,
} cpu_post;

double cpu_logistic(double x);
double cpu_probit(double p);
/* The transform of one row. */
void cpu_post_transform(cpu_post post, double *v, int64_t n);

typedef struct cpu_scores {
    cpu_post post;
    bool alone_plain; /* of one target, PROBIT alone is applied */
    bool classify;
    bool binary;   /* two classes, of which the weights name one */
    bool positive; /* no weight is below zero: binary sums are probabilities */
    int64_t named; /* the class that they name */
    int64_t n;     /* sums of a row; as many scores */
    const double *base;
    int64_t n_base; /* 0, 1 or n */
    double divisor; /* of sums that are averaged; else 1 */
} cpu_scores;

/* Sums become scores, in place. `reached`: which sums any leaf was added to. Returns the index of
 * the winning class; of one class: does it win? */
int64_t cpu_scores_finish(const cpu_scores *s, double *sum, const uint8_t *reached);

#endif
