/* SPDX-License-Identifier: Apache-2.0 */
#include "secure/run.h"

#include <stdlib.h>
#include <string.h>

tacit_status run_init(run_state *s, const sec_program *p, tacit_error *err)
{
    size_t n = p->wires.count ? p->wires.count : 1;
    *s = (run_state){.p = p};
    s->words = calloc(n, sizeof *s->words);
    s->share[0] = calloc(n, sizeof **s->share);
    s->share[1] = calloc(n, sizeof **s->share);
    s->clear = calloc(n, sizeof *s->clear);
    s->uses = calloc(n, sizeof *s->uses);
    if (!s->clear || !s->words || !s->share[0] || !s->share[1] || !s->uses) {
        run_free(s);
        return error_memory(err, "running a secure program");
    }
    for (uint32_t i = 0; i < p->instrs.count; i++)
        for (uint32_t k = 0; k < p->instrs.data[i].n_in; k++)
            s->uses[p->instrs.data[i].in[k]]++;
    return TACIT_OK;
}

uint64_t *run_new(size_t count)
{
    return malloc((count ? count : 1) * sizeof(uint64_t));
}

void run_release(uint64_t *words, size_t count)
{
    if (words)
        explicit_bzero(words, count * sizeof *words);
    free(words);
}

static void drop(run_state *s, sec_wire_id w)
{
    size_t count = s->p->wires.data[w].count;
    uint64_t **all[] = {s->words, s->clear, s->share[0], s->share[1]};
    bool borrowed =
        s->borrows_weights && s->p->instrs.data[s->p->wires.data[w].producer].op == SEC_WEIGHT;
    for (int i = 0; i < 4; i++)
        if (all[i]) {
            if (!borrowed || i > 1)
                run_release(all[i][w], count);
            all[i][w] = NULL;
        }
}

void run_free(run_state *s)
{
    for (uint32_t w = 0; s->p && w < s->p->wires.count; w++)
        drop(s, w);
    free(s->words);
    free(s->share[0]);
    free(s->share[1]);
    free(s->clear);
    free(s->uses);
    *s = (run_state){0};
}

tacit_status run_vector(run_state *s, uint64_t ***where, sec_wire_id w, tacit_error *err)
{
    (*where)[w] = run_new(s->p->wires.data[w].count);
    return (*where)[w] ? TACIT_OK : error_memory(err, "a vector of a secure program");
}

void run_done(run_state *s, const sec_instr *in)
{
    for (uint32_t k = 0; k < in->n_in; k++)
        if (--s->uses[in->in[k]] == 0)
            drop(s, in->in[k]);
    for (uint32_t k = 0; k < in->n_out; k++)
        if (s->uses[in->out[k]] == 0)
            drop(s, in->out[k]);
}

const uint64_t *run_narrow(const run_state *s, uint64_t *const *from, sec_wire_id w, unsigned bits,
                           uint64_t **copy)
{
    const sec_wire *wire = &s->p->wires.data[w];
    *copy = NULL;
    if (wire->bits <= bits)
        return from[w];
    *copy = run_new(wire->count);
    for (size_t i = 0; *copy && i < wire->count; i++)
        (*copy)[i] = fss_low(from[w][i], bits);
    return *copy;
}

tacit_status run_local(run_state *s, const sec_instr *in, uint64_t **table, bool constants,
                       tacit_error *err)
{
    const uint64_t *few[8], **x = few;
    if (in->n_in > 8 && !(x = malloc(in->n_in * sizeof *x)))
        return error_memory(err, "running a secure program");
    for (uint32_t k = 0; k < in->n_in; k++)
        x[k] = table[in->in[k]];
    if (in->op == SEC_MATMUL || in->op == SEC_PRODUCT)
        x[1] = s->clear[in->in[1]];
    tacit_status status = run_vector(s, &table, in->out[0], err);
    if (status == TACIT_OK)
        sec_local(s->p, in, x, table[in->out[0]], constants);
    if (x != few)
        free(x);
    return status;
}

fss_gate run_gate(const sec_program *p, const sec_instr *in, uint64_t run)
{
    fss_gate g = in->gate;
    g.id = run_id(p, in, run);
    return g;
}

unsigned run_in_bits(const sec_instr *in, unsigned k)
{
    return in->gate.kind == FSS_SHARE ? in->gate.in_bits : in->info.in_bits[k];
}
