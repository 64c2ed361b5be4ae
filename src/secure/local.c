/* SPDX-License-Identifier: Apache-2.0
 * Arithmetic that needs nobody else: linear maps on words, masks and cleartext alike. */
#include <math.h>

#include <stdlib.h>

#include "base/sha256.h"
#include "secure/program.h"

static uint64_t ring_mask(unsigned bits)
{
    return bits >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << bits) - 1;
}

static void gather(const sec_program *p, const sec_instr *in, const uint64_t *const *x,
                   uint64_t *out, size_t count, uint64_t mask)
{
    if (in->n_in == 1) {
        for (size_t i = 0; i < count; i++)
            out[i] = in->index[i] < 0 ? 0 : x[0][in->index[i]] & mask;
        return;
    }
    for (size_t i = 0; i < count; i++) {
        int64_t at = in->index[i];
        uint32_t k = 0;
        out[i] = 0;
        if (at < 0)
            continue;
        while (at >= p->wires.data[in->in[k]].count)
            at -= p->wires.data[in->in[k++]].count;
        out[i] = x[k][at] & mask;
    }
}

void sec_multiply(const sec_program *p, const sec_instr *in, const uint64_t *x, const uint64_t *w,
                  uint64_t *z)
{
    if (in->op == SEC_PRODUCT) {
        size_t count = p->wires.data[in->in[0]].count;
        uint64_t mask = ring_mask(in->bits);
        for (size_t i = 0; i < count; i++)
            z[i] = x[i] * w[i % in->period] & mask;
        return;
    }
    for (uint32_t t = 0; t < in->batch; t++) {
        const uint64_t *xt = x + (in->x_at ? in->x_at[t] : t) * in->m * in->k;
        const uint64_t *wt = w + (in->w_at ? in->w_at[t] : t) * in->k * in->n;
        fss_gemm(&p->gemm, in->bits,
                 &(fss_gemm_args){in->m, in->n, in->k, xt, wt, z + t * in->m * in->n, in->k, in->n,
                                  in->n, FSS_GEMM_SET});
    }
}

void sec_local(const sec_program *p, const sec_instr *in, const uint64_t *const *x, uint64_t *out,
               bool constants)
{
    size_t count = p->wires.data[in->out[0]].count;
    uint64_t mask = ring_mask(p->wires.data[in->out[0]].bits);
    switch (in->op) {
    case SEC_CONST:
        for (size_t i = 0; i < count; i++)
            out[i] = constants ? (uint64_t)in->values[i] & mask : 0;
        return;
    case SEC_GATHER:
        gather(p, in, x, out, count, mask);
        return;
    case SEC_SUM:
        for (size_t i = 0; i < count; i++) {
            uint64_t sum = 0;
            for (uint32_t j = in->offset[i]; j < in->offset[i + 1]; j++)
                sum += x[0][j];
            out[i] = sum & mask;
        }
        return;
    case SEC_LINEAR:
        for (size_t i = 0; i < count; i++) {
            uint64_t sum = constants ? (uint64_t)in->add : 0;
            for (uint32_t k = 0; k < in->n_in; k++)
                sum += (uint64_t)in->coef[k] * x[k][i];
            out[i] = sum & mask;
        }
        return;
    case SEC_SCALE:
        for (size_t i = 0; i < count; i++)
            out[i] = x[0][i] * (uint64_t)in->values[i] & mask;
        return;
    default: /* products with public weights: x[1] is the weight itself */
        sec_multiply(p, in, x[0], x[1], out);
        return;
    }
}

tacit_status sec_weight_words(const sec_program *p, const sec_instr *in, uint64_t *out,
                              tacit_error *err)
{
    const sec_wire *w = &p->wires.data[in->out[0]];
    const ir_tensor *t = in->value->constant;
    if (!t || !t->data)
        return error_set(err, TACIT_ERR_STATE, "weight '%s' is not in this file", in->value->name);
    size_t have = (size_t)ir_tensor_count(t);
    uint64_t mask = ring_mask(w->bits);
    for (size_t i = 0; i < w->count; i++) {
        size_t at = in->layout ? in->layout[i] : i;
        double v = at < have ? ir_load_f64(t->dtype, t->data, (int64_t)at) * in->factor : 0;
        v = ldexp(v, in->frac);
        if (!(fabs(v) < 0x1p62))
            return error_set(err, TACIT_ERR_VALUE, "weight '%s' holds NaN or is out of range",
                             in->value->name);
        out[i] = (uint64_t)llrint(v) & mask;
    }
    return TACIT_OK;
}

tacit_status sec_weights_hash(const sec_program *p, uint8_t hash[32], tacit_error *err)
{
    sha256 s;
    sha256_init(&s);
    for (uint32_t i = 0; i < p->instrs.count; i++) {
        const sec_instr *in = &p->instrs.data[i];
        if (in->op != SEC_WEIGHT)
            continue;
        size_t count = p->wires.data[in->out[0]].count;
        uint64_t *words = malloc((count ? count : 1) * 8);
        tacit_status status =
            words ? sec_weight_words(p, in, words, err) : error_memory(err, "the weights");
        if (status == TACIT_OK)
            sha256_add(&s, words, count * 8);
        free(words);
        TRY(status);
    }
    sha256_end(&s, hash);
    return TACIT_OK;
}

void sec_keep(const sec_instr *in, unsigned bits, const uint64_t *from, uint64_t *to)
{
    uint64_t mask = ring_mask(bits);
    for (size_t i = 0; i < in->keep_count; i++) {
        if (in->keep) {
            to[i] = from[in->keep[i]];
            continue;
        }
        uint64_t sum = 0;
        for (uint32_t j = in->keep_sum[i]; j < in->keep_sum[i + 1]; j++)
            sum += from[j];
        to[i] = sum & mask;
    }
}

unsigned sec_steps(const sec_instr *in)
{
    if (in->op == SEC_GATE)
        return in->gate.kind == FSS_SHARE ? 0 : in->info.steps;
    return (in->op == SEC_MATMUL || in->op == SEC_PRODUCT) && in->owner != SEC_PUBLIC ? 1 : 0;
}

unsigned sec_openings(const sec_program *p, const sec_instr *in, unsigned step, sec_opening o[2])
{
    if (step + 1 == sec_steps(in)) {
        for (uint32_t v = 0; v < in->n_out; v++) {
            const sec_wire *w = &p->wires.data[in->out[v]];
            o[v] = (sec_opening){w->count, w->bits};
        }
        return in->n_out;
    }
    fss_vector v[2];
    unsigned n = fss_step_vectors(&in->info, step, v);
    for (unsigned i = 0; i < n; i++)
        o[i] = (sec_opening){v[i].rows * in->gate.count, v[i].bits};
    return n;
}

size_t sec_key_bytes(const sec_program *p, const sec_instr *in, unsigned party)
{
    if (in->op == SEC_GATE)
        return in->info.key_bytes[party];
    if (sec_learns(in, party)) {
        const sec_wire *w = &p->wires.data[in->in[0]];
        return fss_pack_bytes(w->bits, w->count);
    }
    return 0;
}
