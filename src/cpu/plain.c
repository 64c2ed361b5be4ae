/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/plain.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct wide {
    uint64_t part[2];
} wide;

/* The usual steps have loops of their own, which vectorise. */
#define BINARY(name, type, result, value)                                                          \
    static void name(const void *const *in, const int64_t *steps, void *out, int64_t n)            \
    {                                                                                              \
        const type *p = in[0], *q = in[1];                                                         \
        result *y = out;                                                                           \
        int64_t sp = steps[0], sq = steps[1], sy = steps[2];                                       \
        if (sp == 1 && sq == 1 && sy == 1) {                                                       \
            for (int64_t i = 0; i < n; i++) {                                                      \
                type a = p[i], b = q[i];                                                           \
                y[i] = (result)(value);                                                            \
            }                                                                                      \
        } else if (sp == 1 && sq == 0 && sy == 1) {                                                \
            type b = *q;                                                                           \
            for (int64_t i = 0; i < n; i++) {                                                      \
                type a = p[i];                                                                     \
                y[i] = (result)(value);                                                            \
            }                                                                                      \
        } else if (sp == 0 && sq == 1 && sy == 1) {                                                \
            type a = *p;                                                                           \
            for (int64_t i = 0; i < n; i++) {                                                      \
                type b = q[i];                                                                     \
                y[i] = (result)(value);                                                            \
            }                                                                                      \
        } else {                                                                                   \
            for (int64_t i = 0; i < n; i++) {                                                      \
                type a = p[i * sp], b = q[i * sq];                                                 \
                y[i * sy] = (result)(value);                                                       \
            }                                                                                      \
        }                                                                                          \
    }
#define UNARY(name, type, value)                                                                   \
    static void name(const void *const *in, const int64_t *steps, void *out, int64_t n)            \
    {                                                                                              \
        const type *p = in[0];                                                                     \
        type *y = out;                                                                             \
        int64_t sp = steps[0], sy = steps[1];                                                      \
        for (int64_t i = 0; i < n; i++) {                                                          \
            type a = p[i * sp];                                                                    \
            y[i * sy] = (type)(value);                                                             \
        }                                                                                          \
    }

/* One divisor of many: a multiplication takes the place of the division. With 2^64 / size rounded
 * down the quotient is right or one too small. */
typedef struct divisor {
    uint64_t size, inverse;
    bool negative;
} divisor;

static inline divisor divisor_of(uint64_t b, bool negative)
{
    uint64_t size = negative ? 0 - b : b;
    return (divisor){size, UINT64_MAX / size, negative};
}

/* x where the condition holds, else 0; -x there, else x: signs come as they like, and branches on
 * them would be guessed wrong every other time. */
static inline uint64_t only_if(bool condition, uint64_t x)
{
    return x & (0 - (uint64_t)condition);
}
static inline uint64_t minus_if(bool condition, uint64_t x)
{
    return (x ^ (0 - (uint64_t)condition)) + condition;
}

/* `op` of an element whose size is u, as the bits of a wide integer. */
static inline uint64_t divide(cpu_plain_op op, const divisor *d, uint64_t u, bool negative)
{
    uint64_t q = (uint64_t)((unsigned __int128)u * d->inverse >> 64), r = u - q * d->size;
    bool more = r >= d->size, unlike = negative ^ d->negative;
    q += more;
    r -= only_if(more, d->size);
    if (op == CPU_PLAIN_DIV)
        return minus_if(unlike, q);
    if (op == CPU_PLAIN_FMOD)
        return minus_if(negative, r);
    bool other = unlike & (r != 0); /* from the other end: size - r */
    return minus_if(d->negative, minus_if(other, r) + only_if(other, d->size));
}

/* Below 1 and not 0: negative, where the type has a sign. */
#define DIVISION(name, type, op)                                                                   \
    static void name(const void *const *in, const int64_t *steps, void *out, int64_t n)            \
    {                                                                                              \
        const type *p = in[0], *q = in[1];                                                         \
        type *y = out;                                                                             \
        int64_t sp = steps[0], sq = steps[1], sy = steps[2];                                       \
        divisor d = {0};                                                                           \
        for (int64_t i = 0; i < n; i++) {                                                          \
            if (i == 0 || sq != 0)                                                                 \
                d = divisor_of((uint64_t)q[i * sq], q[i * sq] < (type)1);                          \
            type a = p[i * sp];                                                                    \
            bool negative = a < (type)1 && a != 0;                                                 \
            y[i * sy] = (type)divide(op, &d, minus_if(negative, (uint64_t)a), negative);           \
        }                                                                                          \
    }
#define DIVISIONS(id, type)                                                                        \
    DIVISION(div_##id, type, CPU_PLAIN_DIV)                                                        \
    DIVISION(mod_##id, type, CPU_PLAIN_MOD)                                                        \
    DIVISION(fmod_##id, type, CPU_PLAIN_FMOD)
CPU_INTEGERS(DIVISIONS)

/* Integers wrap: what may overflow is computed without a sign. */
#define COMPARISONS(id, type)                                                                      \
    BINARY(equal_##id, type, uint8_t, a == b)                                                      \
    BINARY(less_##id, type, uint8_t, a < b)                                                        \
    BINARY(less_equal_##id, type, uint8_t, a <= b)                                                 \
    BINARY(greater_##id, type, uint8_t, a > b)                                                     \
    BINARY(greater_equal_##id, type, uint8_t, a >= b)
#define OF_INTEGERS(id, type)                                                                      \
    COMPARISONS(id, type)                                                                          \
    BINARY(add_##id, type, type, (uint64_t)a + (uint64_t)b)                                        \
    BINARY(sub_##id, type, type, (uint64_t)a - (uint64_t)b)                                        \
    BINARY(mul_##id, type, type, (uint64_t)a *(uint64_t)b)                                         \
    BINARY(min_##id, type, type, b < a ? b : a)                                                    \
    BINARY(max_##id, type, type, b > a ? b : a)                                                    \
    BINARY(and_##id, type, type, a &b)                                                             \
    BINARY(or_##id, type, type, a | b)                                                             \
    BINARY(xor_##id, type, type, a ^ b)                                                            \
    UNARY(neg_##id, type, 0 - (uint64_t)a)                                                         \
    UNARY(abs_##id, type, a < (type)1 ? 0 - (uint64_t)a : (uint64_t)a)                             \
    UNARY(sign_##id, type, (a > 0) - (a < (type)1 && a != 0))                                      \
    UNARY(not_##id, type, ~(uint64_t)a)
CPU_INTEGERS(OF_INTEGERS)

COMPARISONS(F64, double)
BINARY(add_F64, double, double, a + b)
BINARY(sub_F64, double, double, a - b)
BINARY(mul_F64, double, double, a *b)
BINARY(div_F64, double, double, a / b)
UNARY(neg_F64, double, -a)
UNARY(abs_F64, double, __builtin_fabs(a))

cpu_plain_fn *cpu_plain_find(cpu_plain_op op, cpu_number type)
{
#define COMMON(id)                                                                                 \
    [CPU_PLAIN_ADD] = add_##id, [CPU_PLAIN_SUB] = sub_##id, [CPU_PLAIN_MUL] = mul_##id,            \
    [CPU_PLAIN_EQUAL] = equal_##id, [CPU_PLAIN_LESS] = less_##id,                                  \
    [CPU_PLAIN_LESS_EQUAL] = less_equal_##id, [CPU_PLAIN_GREATER] = greater_##id,                  \
    [CPU_PLAIN_GREATER_EQUAL] = greater_equal_##id, [CPU_PLAIN_NEG] = neg_##id,                    \
    [CPU_PLAIN_ABS] = abs_##id
#define INTEGER_ROW(id, type)                                                                      \
    [CPU_##id] = {COMMON(id),                                                                      \
                  [CPU_PLAIN_DIV] = div_##id,                                                      \
                  [CPU_PLAIN_MOD] = mod_##id,                                                      \
                  [CPU_PLAIN_FMOD] = fmod_##id,                                                    \
                  [CPU_PLAIN_MIN] = min_##id,                                                      \
                  [CPU_PLAIN_MAX] = max_##id,                                                      \
                  [CPU_PLAIN_AND] = and_##id,                                                      \
                  [CPU_PLAIN_OR] = or_##id,                                                        \
                  [CPU_PLAIN_XOR] = xor_##id,                                                      \
                  [CPU_PLAIN_SIGN] = sign_##id,                                                    \
                  [CPU_PLAIN_NOT] = not_##id},
    static cpu_plain_fn *const table[CPU_NUMBERS][CPU_PLAIN_OPS] = {
        CPU_INTEGERS(INTEGER_ROW)[CPU_F64] = {COMMON(F64), [CPU_PLAIN_DIV] = div_F64}};
    return table[type][op];
}

#define CHOICE(name, type)                                                                         \
    static void name(const void *const *in, const int64_t *steps, void *out, int64_t n)            \
    {                                                                                              \
        const uint8_t *c = in[0];                                                                  \
        const type *p = in[1], *q = in[2];                                                         \
        type *y = out;                                                                             \
        int64_t sc = steps[0], sp = steps[1], sq = steps[2], sy = steps[3];                        \
        for (int64_t i = 0; i < n; i++)                                                            \
            y[i * sy] = *(c[i * sc] ? p + i * sp : q + i * sq);                                    \
    }
CHOICE(choose_1, uint8_t)
CHOICE(choose_2, uint16_t)
CHOICE(choose_4, uint32_t)
CHOICE(choose_8, uint64_t)
CHOICE(choose_16, wide)

cpu_plain_fn *cpu_plain_choice(uint32_t size)
{
    switch (size) {
    case 1:
        return choose_1;
    case 2:
        return choose_2;
    case 4:
        return choose_4;
    case 8:
        return choose_8;
    default:
        return size == 16 ? choose_16 : NULL;
    }
}

void cpu_plain(const void *args, uint32_t begin, uint32_t end)
{
    const cpu_plain_args *a = args;
    int32_t inner = a->nd.rank - 1;
    int64_t steps[4];
    for (uint32_t k = 0; k <= a->inputs; k++)
        steps[k] = a->nd.strides[k][inner];
    cpu_nd_walk w;
    for (cpu_nd_start(&a->nd, &w, begin, end); cpu_nd_more(&w); cpu_nd_next(&a->nd, &w)) {
        const void *in[3];
        for (uint32_t k = 0; k < a->inputs; k++)
            in[k] = a->in[k] + w.at[k] * a->size[k];
        a->fn(in, steps, a->out + w.at[a->inputs] * a->size[a->inputs], w.count);
    }
}
