/* SPDX-License-Identifier: Apache-2.0
 * The cleartext twin: the same program on the values themselves, bit for bit what two parties
 * compute. With dither the rounding depends on the masks, so the dealer's walk goes alongside. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "secure/run.h"

typedef struct sim_state {
    run_state s;
    deal_state *masks; /* NULL without dither */
    const ir_tensor *const *inputs;
    ir_tensor *const *outputs;
} sim_state;

/* The public word of an input of a gate. */
static tacit_status masked_words(sim_state *m, const sec_instr *in, const uint64_t *x,
                                 uint64_t **out, tacit_error *err)
{
    size_t count = in->gate.count;
    if (!(*out = run_new(count)))
        return error_memory(err, "simulating");
    const uint64_t *r = m->masks->s.words[in->in[0]];
    for (size_t i = 0; i < count; i++)
        (*out)[i] = fss_low(x[i] + r[i], in->gate.in_bits);
    return TACIT_OK;
}

static const char *node_name(const sim_state *m, const sec_instr *in)
{
    return in->node != SEC_NONE ? m->s.p->graph->nodes.data[in->node]->name : "?";
}

/* What the guard would say of the wires an instruction made. */
static tacit_status check_limits(const sim_state *m, const sec_instr *in, tacit_error *err)
{
    for (uint32_t k = 0; k < in->n_out; k++) {
        const sec_wire *w = &m->s.p->wires.data[in->out[k]];
        const uint64_t *x = m->s.words[in->out[k]];
        for (size_t i = 0; i < w->count && w->limit > 0; i++)
            if (fabs((double)fss_signed(x[i], w->bits)) > w->limit)
                return error_set(err, TACIT_ERR_VALUE,
                                 "node '%s': a value leaves the range that was calibrated; "
                                 "calibrate on more samples, or use the full range",
                                 node_name(m, in));
    }
    return TACIT_OK;
}

/* The canary: a value that a truncation's ring has no room for. Proven ranges never meet it. */
static tacit_status check_gap(const sim_state *m, const sec_instr *in, const uint64_t *x,
                              tacit_error *err)
{
    int64_t quarter = (int64_t)1 << (in->gate.in_bits - 2);
    for (size_t i = 0; i < in->gate.count; i++) {
        int64_t v = fss_signed(x[i], in->gate.in_bits);
        if (v >= quarter || v < -quarter)
            return error_set(err, TACIT_ERR_VALUE,
                             "node '%s': a value leaves the range of %u bits it was given",
                             node_name(m, in), in->gate.in_bits - 1u);
    }
    return TACIT_OK;
}

static tacit_status sim_gate(sim_state *m, const sec_instr *in, tacit_error *err)
{
    const uint64_t *x[FSS_MAX_INPUTS] = {0}, *masked[FSS_MAX_INPUTS] = {0};
    uint64_t *copy[FSS_MAX_INPUTS] = {0}, *open = NULL, *y[2] = {0}, **words = m->s.words;
    bool keep = in->keep || in->keep_sum;
    tacit_status status = TACIT_OK;
    if (in->gate.kind == FSS_SHARE)
        return TACIT_OK;
    for (uint32_t k = 0; k < in->n_in && status == TACIT_OK; k++) {
        x[k] = run_narrow(&m->s, words, in->in[k], run_in_bits(in, k), &copy[k]);
        status = x[k] ? TACIT_OK : error_memory(err, "simulating");
    }
    if (status == TACIT_OK && in->gate.kind == FSS_GAP)
        status = check_gap(m, in, x[0], err);
    if (status == TACIT_OK && in->gate.kind == FSS_GAP && in->gate.dither) {
        status = masked_words(m, in, x[0], &open, err);
        masked[0] = open;
    }
    for (uint32_t v = 0; v < in->n_out && status == TACIT_OK && !keep; v++) {
        status = run_vector(&m->s, &words, in->out[v], err);
        y[v] = words[in->out[v]];
    }
    size_t full = in->info.out[0].rows * in->gate.count;
    if (keep && status == TACIT_OK && !(y[0] = run_new(full)))
        status = error_memory(err, "simulating");
    if (status == TACIT_OK)
        fss_gate_sim(&in->gate, &in->info, x, masked, y, 0, in->gate.count);
    if (keep && status == TACIT_OK)
        status = run_vector(&m->s, &words, in->out[0], err);
    if (keep && status == TACIT_OK)
        sec_keep(in, in->info.out[0].bits, y[0], words[in->out[0]]);
    if (keep)
        run_release(y[0], full);
    for (uint32_t k = 0; k < in->n_in; k++)
        run_release(copy[k], in->gate.count);
    run_release(open, in->gate.count);
    return status;
}

static tacit_status sim_product(sim_state *m, const sec_instr *in, tacit_error *err)
{
    uint64_t **words = m->s.words;
    size_t full =
        in->op == SEC_PRODUCT ? m->s.p->wires.data[in->in[0]].count : in->batch * in->m * in->n;
    uint64_t *z = run_new(full);
    if (!z)
        return error_memory(err, "simulating");
    const uint64_t *w = in->owner == SEC_PUBLIC ? m->s.clear[in->in[1]] : words[in->in[1]];
    sec_multiply(m->s.p, in, words[in->in[0]], w, z);
    tacit_status status = run_vector(&m->s, &words, in->out[0], err);
    if (status == TACIT_OK) {
        if (in->keep || in->keep_sum)
            sec_keep(in, in->bits, z, words[in->out[0]]);
        else
            memcpy(words[in->out[0]], z, full * 8);
    }
    run_release(z, full);
    return status;
}

static tacit_status sim_instr(sim_state *m, const sec_instr *in, tacit_error *err)
{
    const sec_program *p = m->s.p;
    uint64_t **words = m->s.words, **clear = m->s.clear;
    if (sec_is_local(in) && in->op <= SEC_LOCALS)
        return run_local(&m->s, in, words, true, err);
    switch (in->op) {
    case SEC_INPUT:
        TRY(run_vector(&m->s, &words, in->out[0], err));
        return sec_encode(p, in->port, m->inputs[p->inputs.data[in->port].input], words[in->out[0]],
                          err);
    case SEC_CONST:
        return run_local(&m->s, in, words, true, err);
    case SEC_WEIGHT:
        TRY(run_vector(&m->s, &words, in->out[0], err));
        TRY(sec_weight_words(p, in, words[in->out[0]], err));
        if (in->owner == SEC_PUBLIC) {
            TRY(run_vector(&m->s, &clear, in->out[0], err));
            memcpy(clear[in->out[0]], words[in->out[0]], p->wires.data[in->out[0]].count * 8);
        }
        return TACIT_OK;
    case SEC_GATE:
        return sim_gate(m, in, err);
    case SEC_OUTPUT:
        sec_decode(p, in->port, words[in->in[0]], m->outputs[in->port]);
        return TACIT_OK;
    default:
        return sim_product(m, in, err);
    }
}

tacit_status sec_simulate(const sec_program *p, const fss_dealer *dealer, uint64_t run,
                          const ir_tensor *const *inputs, ir_tensor *const *outputs,
                          tacit_error *err)
{
    deal_state masks = {.dealer = dealer, .run = run};
    sim_state m = {.inputs = inputs, .outputs = outputs};
    if (p->mode.dither && !dealer)
        return error_set(
            err, TACIT_ERR_ARGUMENT,
            "dithered rounding depends on the masks: simulate with the dealer's seeds");
    TRY(run_init(&m.s, p, err));
    tacit_status status = TACIT_OK;
    if (p->mode.dither) {
        status = run_init(&masks.s, p, err);
        m.masks = &masks;
    }
    for (uint32_t i = 0; i < p->instrs.count && status == TACIT_OK; i++) {
        const sec_instr *in = &p->instrs.data[i];
        if (m.masks)
            status = deal_instr(&masks, in, err);
        if (status == TACIT_OK && !in->guard)
            status = sim_instr(&m, in, err);
        if (status == TACIT_OK && !in->guard)
            status = check_limits(&m, in, err);
        if (m.masks)
            run_done(&masks.s, in);
        run_done(&m.s, in);
    }
    run_free(&m.s);
    run_free(&masks.s);
    return status;
}
