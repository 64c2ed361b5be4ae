/* SPDX-License-Identifier: Apache-2.0
 * The plan: what a run costs, by node and in total, before anything is dealt. */
#include <stdio.h>

#include "secure/program.h"

void sec_mode_text(const sec_mode *m, char *out, size_t size)
{
    static const char *const weights[] = {"public", "shared", "server-owned"};
    static const char *const compare[] = {"auto", "trees", "digits", "direct"};
    snprintf(out, size, "%s, %s, %s weights, compare %s, 2^-%u", m->dither ? "dither" : "faithful",
             m->calibrated ? "calibrated" : "full range", weights[m->weights + 2],
             compare[m->compare], m->frac);
}

typedef struct node_cost {
    uint64_t key[2], wire;
    uint32_t first, last, gates, elements;
    uint8_t widest;
} node_cost;

static void add_instr(const sec_program *p, const sec_instr *in, node_cost *c)
{
    unsigned steps = sec_steps(in);
    for (unsigned b = 0; b < 2; b++)
        c->key[b] += sec_key_bytes(p, in, b);
    for (unsigned s = 0; s < steps; s++) {
        sec_opening o[2];
        unsigned n = sec_openings(p, in, s, o);
        for (unsigned v = 0; v < n; v++)
            c->wire += 2 * fss_pack_bytes(o[v].bits, o[v].count);
    }
    if (steps) {
        c->first = !c->gates || in->start < c->first ? in->start : c->first;
        c->last = in->start + steps > c->last ? in->start + steps : c->last;
        c->gates++;
    }
    for (uint32_t k = 0; k < in->n_out; k++) {
        const sec_wire *w = &p->wires.data[in->out[k]];
        c->widest = w->bits > c->widest ? w->bits : c->widest;
        c->elements = w->count;
    }
}

/* Rounds from one attention to the next; of all of it where there is only one. */
uint32_t sec_rounds_per_block(const sec_program *p)
{
    uint32_t before = UINT32_MAX, node = SEC_NONE, most = 0;
    for (uint32_t i = 0; i < p->instrs.count; i++) {
        const sec_instr *in = &p->instrs.data[i];
        if (in->node == SEC_NONE || in->node == node || !sec_steps(in) ||
            strcmp(p->graph->nodes.data[in->node]->type, "Attention") != 0)
            continue;
        if (in->op != SEC_MATMUL || (node != SEC_NONE && in->node < node))
            continue;
        if (before != UINT32_MAX && in->start - before > most)
            most = in->start - before;
        before = in->start;
        node = in->node;
    }
    return most ? most : p->rounds;
}

static void print_json(const sec_program *p, sbuf *out)
{
    char mode[96];
    sec_mode_text(&p->mode, mode, sizeof mode);
    sbuf_printf(out,
                "{\"key_bytes_server\":%llu,\"key_bytes_client\":%llu,\"wire_bytes\":%llu,"
                "\"weight_bytes_once\":%llu,\"rounds\":%u,\"rounds_per_block\":%u,"
                "\"batch_jobs\":%llu,\"batch_bytes\":%llu,\"round_bytes\":%llu,\"guarded\":%llu,"
                "\"mode\":",
                (unsigned long long)p->key_bytes[0], (unsigned long long)p->key_bytes[1],
                (unsigned long long)p->wire_bytes[0] + p->wire_bytes[1],
                (unsigned long long)p->weight_bytes, p->rounds, sec_rounds_per_block(p),
                (unsigned long long)p->batch_jobs, (unsigned long long)p->batch_bytes,
                (unsigned long long)p->round_bytes, (unsigned long long)p->guarded);
    sbuf_json(out, mode);
    sbuf_text(out, ",\"hash\":\"");
    for (int i = 0; i < 32; i++)
        sbuf_printf(out, "%02x", p->hash[i]);
    sbuf_text(out, "\"}\n");
}

static void print_node(const sec_program *p, const ir_node *node, const node_cost *c, sbuf *out)
{
    const sec_range *r = &p->ranges[node->id];
    sbuf_printf(out, "%-34.34s %-20.20s %12llu %12llu %12llu %4u-%-4u %5u  ", node->name,
                node->type, (unsigned long long)c->key[0], (unsigned long long)c->key[1],
                (unsigned long long)c->wire, c->first, c->last, c->widest);
    if (r->frac >= 0)
        sbuf_printf(out, "[%.4g, %.4g] 2^-%d", r->lo, r->hi, r->frac);
    sbuf_text(out, "\n");
}

void sec_plan_print(const sec_program *p, bool json, sbuf *out)
{
    if (json) {
        print_json(p, out);
        return;
    }
    char mode[96];
    sec_mode_text(&p->mode, mode, sizeof mode);
    sbuf_printf(out, "mode: %s\n\n%-34s %-20s %12s %12s %12s %9s %5s  %s\n", mode, "node", "op",
                "key server", "key client", "wire", "rounds", "ring", "range");
    for (uint32_t n = 0; n < p->graph->nodes.count; n++) {
        node_cost c = {0};
        const ir_node *node = p->graph->nodes.data[n];
        for (uint32_t i = 0; i < p->instrs.count; i++)
            if (p->instrs.data[i].node == n)
                add_instr(p, &p->instrs.data[i], &c);
        if (c.gates)
            print_node(p, node, &c, out);
    }
    sbuf_printf(out,
                "\nlargest batch: %llu jobs of %d, %llu key bytes of %d; fullest round: %llu key "
                "bytes\n",
                (unsigned long long)p->batch_jobs, SEC_BATCH_JOBS,
                (unsigned long long)p->batch_bytes, SEC_BATCH_BYTES,
                (unsigned long long)p->round_bytes);
    if (p->mode.calibrated)
        sbuf_printf(out, "guard: %llu elements are checked against calibrated ranges\n",
                    (unsigned long long)p->guarded);
    sbuf_printf(out,
                "\none run (%s): key %llu bytes server, %llu bytes client; wire %llu bytes both "
                "ways;\nrounds %u, per block %u; weights once %llu bytes\n",
                mode, (unsigned long long)p->key_bytes[0], (unsigned long long)p->key_bytes[1],
                (unsigned long long)p->wire_bytes[0] + p->wire_bytes[1], p->rounds,
                sec_rounds_per_block(p), (unsigned long long)p->weight_bytes);
}
