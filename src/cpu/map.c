/* SPDX-License-Identifier: Apache-2.0
 * Drivers of the strip operations; the vector code is in strip.inc. */
#include "cpu/map.h"

#include <string.h>

void cpu_map1(const void *args, uint32_t begin, uint32_t end)
{
    const cpu_map1_args *p = args;
    int64_t from = begin * p->tile, to = end * p->tile < p->count ? end * p->tile : p->count;
    const float *in[3];
    for (int k = 0; k < 3; k++)
        in[k] = p->scalars >> k & 1 ? p->in[k] : p->in[k] + from;
    p->fn(p->out + from, in, p->scalars, to - from);
}

static int64_t store_bytes(cpu_store s)
{
    return s == CPU_STORE_F32 ? 4 : s == CPU_STORE_BOOL ? 1 : 2;
}

/* Elements [0, n) at `p` as an f32 strip: in place where they are one, else through `buffer`. */
static const float *strip_in(const cpu_map_args *a, uint32_t k, const char *p, int64_t stride,
                             int64_t n, float *buffer)
{
    cpu_store store = a->in_store[k];
    if (stride == 0)
        n = 1;
    if (store == CPU_STORE_F32 && (stride == 1 || n == 1))
        return (const float *)p;
    uint16_t gathered[CPU_MAP_STRIP];
    if (store == CPU_STORE_F32) {
        for (int64_t i = 0; i < n; i++)
            buffer[i] = ((const float *)p)[i * stride];
        return buffer;
    }
    if (store == CPU_STORE_BOOL) {
        const uint8_t *x = (const uint8_t *)p;
        if (stride != 1 && n > 1) {
            for (int64_t i = 0; i < n; i++)
                ((uint8_t *)gathered)[i] = x[i * stride];
            x = (uint8_t *)gathered;
        }
        a->strips->from_bool(buffer, x, n);
        return buffer;
    }
    const uint16_t *x = (const uint16_t *)p;
    if (stride != 1 && n > 1) {
        for (int64_t i = 0; i < n; i++)
            gathered[i] = x[i * stride];
        x = gathered;
    }
    if (store == CPU_STORE_F16)
        a->strips->from_f16(buffer, x, n);
    else
        a->strips->from_bf16(buffer, x, n);
    return buffer;
}

/* Elements [first, first + n) of a period that comes again and again, from its begin at `p`. */
static void fill_period(const cpu_map_args *a, uint32_t k, const char *p, int64_t first, int64_t n,
                        float *to)
{
    float buffer[CPU_MAP_SHORT];
    int64_t period = a->nd.period[k], at = first % period;
    const float *one = strip_in(a, k, p, 1, period, buffer);
    for (int64_t i = 0, run; i < n; i += run, at = 0) {
        run = period - at < n - i ? period - at : n - i;
        memcpy(to + i, one + at, (size_t)run * sizeof *to);
    }
}

static void strip_out(const cpu_map_args *a, void *to, const float *from, int64_t n)
{
    if (a->out_store == CPU_STORE_BOOL)
        a->strips->to_bool(to, from, n);
    else if (a->out_store == CPU_STORE_F16)
        a->strips->to_f16(to, from, n);
    else
        a->strips->to_bf16(to, from, n);
}

typedef struct map_buffers {
    float registers[CPU_MAP_REGISTERS][CPU_MAP_STRIP] __attribute__((aligned(64)));
    float inputs[CPU_MAP_INPUTS][CPU_MAP_STRIP];
    const float *in[CPU_MAP_INPUTS];
    const char *filled[CPU_MAP_INPUTS]; /* periods that the inputs have now… */
    int64_t phase[CPU_MAP_INPUTS];      /* …and where in them they begin; whole strips */
    uint32_t scalars;                   /* of the inputs */
} map_buffers;

/* As strip_in; the next strip of a period is often the same. */
static const float *period_in(const cpu_map_args *a, map_buffers *m, uint32_t k, const char *p,
                              int64_t first)
{
    int64_t phase = first % a->nd.period[k];
    if (m->filled[k] != p || m->phase[k] != phase)
        fill_period(a, k, p, phase, CPU_MAP_STRIP, m->inputs[k]);
    m->filled[k] = p;
    m->phase[k] = phase;
    return m->inputs[k];
}

/* All steps on one strip; the last one writes to `out`. */
static void map_steps(const cpu_map_args *a, map_buffers *m, float *out, int64_t n)
{
    for (uint32_t s = 0; s < a->n_steps; s++) {
        const cpu_map_step *step = &a->steps[s];
        const float *in[3];
        uint32_t scalars = 0;
        for (uint32_t k = 0; k < step->operands; k++) {
            uint32_t code = step->in[k];
            if (code >= CPU_MAP_CONSTANT) {
                in[k] = &a->constants[code - CPU_MAP_CONSTANT];
                scalars |= 1u << k;
            } else if (code >= CPU_MAP_INPUT) {
                in[k] = m->in[code - CPU_MAP_INPUT];
                scalars |= (m->scalars >> (code - CPU_MAP_INPUT) & 1) << k;
            } else {
                in[k] = m->registers[code];
            }
        }
        step->fn(s + 1 == a->n_steps ? out : m->registers[step->dst], in, scalars, n);
    }
}

void cpu_map(const void *args, uint32_t begin, uint32_t end)
{
    const cpu_map_args *a = args;
    map_buffers m;
    m.scalars = 0;
    int32_t inner = a->nd.rank - 1;
    for (uint32_t k = 0; k < a->inputs; k++) {
        m.scalars |= (uint32_t)(a->nd.strides[k][inner] == 0 && !a->nd.period[k]) << k;
        m.filled[k] = NULL;
    }
    int64_t out_bytes = store_bytes(a->out_store);
    cpu_nd_walk w;
    for (cpu_nd_start(&a->nd, &w, begin, end); cpu_nd_more(&w); cpu_nd_next(&a->nd, &w))
        for (int64_t i = 0; i < w.count; i += CPU_MAP_STRIP) {
            int64_t n = w.count - i < CPU_MAP_STRIP ? w.count - i : CPU_MAP_STRIP;
            for (uint32_t k = 0; k < a->inputs; k++) {
                int64_t stride = a->nd.strides[k][inner];
                const char *p =
                    (const char *)a->in[k] + (w.at[k] + i * stride) * store_bytes(a->in_store[k]);
                m.in[k] = a->nd.period[k] ? period_in(a, &m, k, p, w.piece * a->nd.piece + i)
                                          : strip_in(a, k, p, stride, n, m.inputs[k]);
            }
            char *to = (char *)a->out + (w.at[a->inputs] + i) * out_bytes;
            if (a->out_store == CPU_STORE_F32) {
                map_steps(a, &m, (float *)to, n);
                continue;
            }
            map_steps(a, &m, m.registers[0], n);
            strip_out(a, to, m.registers[0], n);
        }
}
