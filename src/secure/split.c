/* SPDX-License-Identifier: Apache-2.0
 * Batches within budget: a gate whose keys or jobs are more than a batch may have becomes several
 * gates over slices of its inputs, in the same rounds. The dealer holds the keys of one gate at a
 * time, so its memory does not grow with the model. */
#include "secure/build.h"

static sec_wire_id slice_wire(sec_builder *b, size_t count, unsigned bits)
{
    sec_wire w = {.count = (uint32_t)count, .bits = (uint8_t)bits};
    if (b->status == TACIT_OK && !vec_push(&b->p->memory, &b->p->wires, w))
        b->status = error_memory(b->err, "the secure program");
    return b->p->wires.count - 1;
}

static void push(sec_builder *b, sec_instr in)
{
    for (uint32_t k = 0; k < in.n_out && b->status == TACIT_OK; k++)
        sb_wire(b, in.out[k])->producer = b->p->instrs.count;
    if (b->status == TACIT_OK && !vec_push(&b->p->memory, &b->p->instrs, in))
        b->status = error_memory(b->err, "the secure program");
}

static void push_gather(sec_builder *b, const sec_instr *whole, uint32_t n, const sec_wire_id *from,
                        sec_wire_id to, const int32_t *index)
{
    sec_instr g = {.op = SEC_GATHER,
                   .node = whole->node,
                   .guard = whole->guard,
                   .n_in = n,
                   .n_out = 1,
                   .index = index};
    g.out[0] = to;
    g.in = sb_alloc(b, n, sizeof *g.in);
    if (!g.in)
        return;
    memcpy(g.in, from, n * sizeof *from);
    push(b, g);
}

/* Elements of a batch: whole ranges, as equal as they can be. */
static size_t batch_of(const sec_builder *b, const sec_instr *in)
{
    const sec_program *p = b->p;
    uint64_t bytes = b->options->batch_bytes ? b->options->batch_bytes : SEC_BATCH_BYTES;
    uint64_t jobs = b->options->batch_jobs ? b->options->batch_jobs : SEC_BATCH_JOBS;
    uint64_t most = 1, key[] = {sec_key_bytes(p, in, 0), sec_key_bytes(p, in, 1)};
    for (int i = 0; i < 2; i++)
        most = key[i] > most ? key[i] : most;
    uint64_t by_bytes = (most + bytes - 1) / bytes, by_jobs = (in->gate.count + jobs - 1) / jobs;
    uint64_t batches = by_bytes > by_jobs ? by_bytes : by_jobs;
    size_t per = (in->gate.count + batches - 1) / (batches ? batches : 1);
    return (per + FSS_RANGE - 1) / FSS_RANGE * FSS_RANGE;
}

static sec_instr slice_gate(sec_builder *b, const sec_instr *in, size_t at, size_t n)
{
    sec_instr piece = *in;
    piece.gate.count = n;
    piece.in = sb_alloc(b, in->n_in, sizeof *piece.in);
    int32_t *index = sb_alloc(b, n, sizeof *index);
    for (size_t i = 0; index && i < n; i++)
        index[i] = (int32_t)(at + i);
    for (uint32_t k = 0; k < in->n_in && b->status == TACIT_OK; k++) {
        sec_wire_id w = slice_wire(b, n, in->info.in_bits[k]);
        push_gather(b, in, 1, &in->in[k], w, index);
        piece.in[k] = w;
    }
    for (uint32_t v = 0; v < in->n_out && b->status == TACIT_OK; v++) {
        size_t rows = sb_wire(b, in->out[v])->count / in->gate.count;
        piece.out[v] = slice_wire(b, rows * n, sb_wire(b, in->out[v])->bits);
    }
    piece.keep_count = (uint32_t)n;
    if (b->status == TACIT_OK)
        b->status = fss_gate_info(&b->p->suite, &piece.gate, &piece.info, b->err);
    push(b, piece);
    return piece;
}

/* Outputs of the pieces, row by row, into the wire that the gate had. */
static void join(sec_builder *b, const sec_instr *in, uint32_t v, size_t per,
                 const sec_instr *pieces, uint32_t n)
{
    size_t count = in->gate.count, rows = sb_wire(b, in->out[v])->count / count;
    int32_t *index = sb_alloc(b, rows * count, sizeof *index);
    sec_wire_id *from = sb_alloc(b, n, sizeof *from);
    if (b->status != TACIT_OK)
        return;
    for (uint32_t j = 0; j < n; j++)
        from[j] = pieces[j].out[v];
    for (size_t r = 0; r < rows; r++)
        for (size_t e = 0; e < count; e++) {
            size_t j = e / per, size = pieces[j].gate.count;
            index[r * count + e] = (int32_t)(j * per * rows + r * size + (e - j * per));
        }
    push_gather(b, in, n, from, in->out[v], index);
}

static void split(sec_builder *b, const sec_instr *in)
{
    size_t per = batch_of(b, in);
    uint32_t n = (uint32_t)((in->gate.count + per - 1) / per);
    sec_instr *pieces = sb_alloc(b, n, sizeof *pieces);
    for (uint32_t j = 0; j < n && b->status == TACIT_OK; j++) {
        size_t left = in->gate.count - j * per;
        pieces[j] = slice_gate(b, in, j * per, left < per ? left : per);
    }
    for (uint32_t v = 0; v < in->n_out && b->status == TACIT_OK; v++)
        join(b, in, v, per, pieces, n);
}

void sec_split(sec_builder *b)
{
    sec_program *p = b->p;
    uint32_t n = p->instrs.count;
    sec_instr *all = sb_alloc(b, n, sizeof *all);
    if (!all)
        return;
    memcpy(all, p->instrs.data, n * sizeof *all);
    p->instrs.count = 0;
    for (uint32_t i = 0; i < n && b->status == TACIT_OK; i++) {
        const sec_instr *in = &all[i];
        bool whole = in->op != SEC_GATE || in->gate.kind == FSS_SHARE || in->keep || in->keep_sum ||
                     sec_key_bytes(p, in, 0) + sec_key_bytes(p, in, 1) == 0;
        if (whole || batch_of(b, in) >= in->gate.count)
            push(b, *in);
        else
            split(b, in);
    }
}
