/* SPDX-License-Identifier: Apache-2.0
 * Vectors of bytes, as wide as those of vec_*.h, which is included before. */
#ifndef CPU_VEC_BYTES_H
#define CPU_VEC_BYTES_H

typedef uint8_t vb __attribute__((vector_size(4 * VL)));

static inline vb vb_flip(vb v)
{
    return v ^ (uint8_t)0x80;
}
static inline vb vb_low(vb v)
{
    return v & (uint8_t)15;
}
#if !defined(CPU_VEC_AVX512_H) /* which has masks for that */
static inline vb vb_load_n(const void *p, int64_t n)
{
    vb v = {0};
    __builtin_memcpy(&v, p, (size_t)n);
    return v;
}
static inline void vb_store_n(void *p, vb v, int64_t n)
{
    __builtin_memcpy(p, &v, (size_t)n);
}
#endif

#endif
