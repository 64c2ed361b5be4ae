/* SPDX-License-Identifier: Apache-2.0
 * Element-wise arithmetic, comparisons and choices on types that the f32 strips (cpu/map.h) do not
 * compute in: integers of every width, f64, and moves by element size. */
#ifndef CPU_PLAIN_H
#define CPU_PLAIN_H

#include "cpu/kernel.h"
#include "cpu/nd.h"
#include "cpu/number.h"

typedef enum cpu_plain_op {
    CPU_PLAIN_ADD,
    CPU_PLAIN_SUB,
    CPU_PLAIN_MUL,
    CPU_PLAIN_DIV,  /* no divisor of integers may be 0 */
    CPU_PLAIN_MOD,  /* integers alone, as what follows up to XOR; the sign of the divisor */
    CPU_PLAIN_FMOD, /* the sign of the dividend */
    CPU_PLAIN_MIN,
    CPU_PLAIN_MAX,
    CPU_PLAIN_AND,
    CPU_PLAIN_OR,
    CPU_PLAIN_XOR,
    CPU_PLAIN_EQUAL, /* from here to GREATER_EQUAL the result is a truth */
    CPU_PLAIN_LESS,
    CPU_PLAIN_LESS_EQUAL,
    CPU_PLAIN_GREATER,
    CPU_PLAIN_GREATER_EQUAL,
    CPU_PLAIN_NEG,
    CPU_PLAIN_ABS,
    CPU_PLAIN_SIGN,
    CPU_PLAIN_NOT, /* integers: every bit */
    CPU_PLAIN_OPS,
} cpu_plain_op;

/* n elements; steps in elements, of the operands and then of the result. */
typedef void cpu_plain_fn(const void *const *in, const int64_t *steps, void *out, int64_t n);
/* NULL: there is none for this type. */
cpu_plain_fn *cpu_plain_find(cpu_plain_op op, cpu_number type);
/* out = in[0] ? in[1] : in[2], in[0] a truth, the others elements of 1, 2, 4, 8 or 16 bytes. */
cpu_plain_fn *cpu_plain_choice(uint32_t size);

typedef struct cpu_plain_args {
    const char *in[3];
    char *out;
    cpu_plain_fn *fn;
    cpu_nd nd; /* operands: the inputs, then the output */
    uint32_t inputs;
    uint32_t size[4]; /* bytes of an element: inputs, output last */
} cpu_plain_args;

void cpu_plain(const void *args, uint32_t begin, uint32_t end);

#endif
