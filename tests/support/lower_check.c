/* SPDX-License-Identifier: Apache-2.0 */
#include "support/lower_check.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "op/lower.h"

enum { INPUTS = OP_CASE_INPUTS, OUTPUTS = OP_CASE_OUTPUTS };

typedef struct run_mode {
    cpu_isa isa;
    cpu_terms terms;        /* of AVX-512: whose processor it is */
    bool strided, streamed; /* streamed: one thread, weights count as more than a cache holds */
    bool keep;              /* the results become what is expected */
    int in_place;           /* output 0 lies over this input; -1: apart */
    uint32_t constants;
    uint64_t core_bytes, cache_bytes;
} run_mode;

typedef struct run_state {
    op_case *c;
    run_mode mode;
    op_operand in[INPUTS], out[OUTPUTS];
    char *in_data[INPUTS], *out_data[OUTPUTS], *scratch;
    cpu_fault fault;
    uint32_t n_out;
} run_state;

static size_t element_bytes(const ir_type *t)
{
    return ir_dtype_bytes(t->dtype, 1);
}

/* Axes in a random order with a gap after the innermost: not dense, but every element its own. */
static void random_strides(rng *r, const ir_shape *s, int64_t *strides)
{
    int32_t order[IR_MAX_RANK];
    for (int32_t d = 0; d < s->rank; d++)
        order[d] = d;
    if (rng_below(r, 2))
        for (int32_t d = s->rank; d-- > 1;) {
            int32_t other = (int32_t)rng_below(r, (uint64_t)d + 1), t = order[d];
            order[d] = order[other];
            order[other] = t;
        }
    int64_t step = 1;
    for (int32_t i = s->rank; i-- > 0;) {
        strides[order[i]] = step;
        step *= s->dims[order[i]] + (i == s->rank - 1 ? 3 : 0);
    }
}

static int64_t view_span(const op_operand *o)
{
    int64_t last = 1;
    for (int32_t d = 0; d < o->type.shape.rank; d++)
        last += (o->type.shape.dims[d] - 1) * o->strides[d];
    return last;
}

/* Lay input i out as the mode says; returns its data. */
static char *lay_out(run_state *s, rng *r, uint32_t i)
{
    const ir_tensor *t = s->c->in[i];
    op_operand *o = &s->in[i];
    *o = (op_operand){.type = ir_tensor_type(t), .dense = true, .value = s->c->node->inputs[i]};
    ir_shape_strides(&t->shape, o->strides);
    if (s->mode.constants >> i & 1) { /* a weight, then */
        o->constant = s->c->late[i] ? s->c->late[i] : t;
        s->c->node->inputs[i]->constant = o->constant;
        s->c->node->inputs[i]->is_input = false;
        s->c->node->inputs[i]->is_initializer = true;
    }
    const op_def *op = s->c->node->op;
    int64_t count = ir_tensor_count(t);
    if (s->mode.strided && !o->constant && op->accepts && count > 0) {
        op_operand view = *o;
        view.dense = false;
        random_strides(r, &t->shape, view.strides);
        if (op->accepts(s->c->node, i, &view))
            *o = view;
    }
    size_t size = element_bytes(&o->type);
    char *data = malloc((size_t)(count ? view_span(o) : 1) * size + 64);
    assert_non_null(data);
    if (tacit_dtype_bits(t->dtype) < 8) { /* packed: no element has an address */
        assert_true(o->dense);
        memcpy(data, t->data, t->bytes);
        return data;
    }
    int64_t index[IR_MAX_RANK] = {0};
    for (int64_t k = 0; k < count; k++, next_index(&t->shape, index)) {
        int64_t at = 0;
        for (int32_t d = 0; d < t->shape.rank; d++)
            at += index[d] * o->strides[d];
        memcpy(data + (size_t)at * size, (const char *)t->data + (size_t)k * size, size);
    }
    return data;
}

static void bind_pointers(run_state *s, const op_thunk *t, char *args)
{
    for (uint32_t i = 0; i < t->binds.count; i++) {
        const op_bind *b = &t->binds.data[i];
        char *p = b->kind == OP_BIND_INPUT    ? s->in_data[b->index]
                  : b->kind == OP_BIND_OUTPUT ? s->out_data[b->index]
                  : b->kind == OP_BIND_FAULT  ? (char *)&s->fault
                                              : s->scratch;
        assert_non_null(p);
        p += b->byte_offset;
        memcpy(args + b->field, &p, sizeof p);
    }
}

/* Runs one tile; what it declared about its writes must hold. */
static void run_tile(run_state *s, const op_thunk *t, const char *args, uint32_t tile)
{
    char *before[OUTPUTS] = {0};
    size_t bytes[OUTPUTS] = {0};
    for (uint32_t i = 0; i < t->binds.count; i++) {
        const op_bind *b = &t->binds.data[i];
        if (b->kind != OP_BIND_OUTPUT || b->tile_bytes == 0 || before[b->index])
            continue;
        assert_true(ir_type_bytes(&s->out[b->index].type, &bytes[b->index]));
        before[b->index] = malloc(bytes[b->index] + 1);
        memcpy(before[b->index], s->out_data[b->index], bytes[b->index]);
    }
    t->fn(args, tile, tile + 1);
    for (uint32_t i = 0; i < t->binds.count; i++) {
        const op_bind *b = &t->binds.data[i];
        if (b->kind != OP_BIND_OUTPUT || !before[b->index])
            continue;
        size_t low = (size_t)b->byte_offset + tile * b->tile_stride, high = low + b->tile_bytes;
        const char *now = s->out_data[b->index], *was = before[b->index];
        low = low < bytes[b->index] ? low : bytes[b->index];
        if (memcmp(now, was, low) != 0 ||
            (high < bytes[b->index] && memcmp(now + high, was + high, bytes[b->index] - high) != 0))
            fail_msg("%s (%s): tile %u wrote outside of the bytes it declared", s->c->type,
                     t->kernel, tile);
        free(before[b->index]);
        before[b->index] = NULL;
    }
}

static void compare(run_state *s, uint32_t i, double eps)
{
    const ir_tensor *want = &s->c->out[i];
    for (int64_t k = 0, n = ir_tensor_count(want); k < n; k++) {
        double w = ir_load_f64(want->dtype, want->data, k);
        double v = ir_load_f64(want->dtype, s->out_data[i], k);
        if (v == w || (isnan(v) && isnan(w)) || fabs(v - w) <= eps * (1 + fabs(w)))
            continue;
        char text[IR_SHAPE_TEXT];
        fail_msg("%s on %s%s%s: output %u %s, element %lld is %.9g, expected %.9g", s->c->type,
                 cpu_isa_name(s->mode.isa), s->mode.strided ? ", strided" : "",
                 s->mode.in_place >= 0 ? ", in place" : "", i, ir_shape_text(&want->shape, text),
                 (long long)k, v, w);
    }
}

static void prepare(run_state *s, rng *r)
{
    op_case *c = s->c;
    for (uint32_t i = 0; i < c->n_in; i++)
        if (c->in[i])
            s->in_data[i] = lay_out(s, r, i);
    for (uint32_t i = 0; i < s->n_out; i++) {
        s->out[i] = (op_operand){
            .type = ir_tensor_type(&c->out[i]), .dense = true, .value = c->node->outputs[i]};
        ir_shape_strides(&c->out[i].shape, s->out[i].strides);
        c->node->outputs[i]->type = s->out[i].type;
        if (i == 0 && s->mode.in_place >= 0) {
            s->out_data[0] = s->in_data[s->mode.in_place];
            continue;
        }
        s->out_data[i] = malloc(c->out[i].bytes + 64);
        memset(s->out_data[i], 0x5a, c->out[i].bytes + 64);
    }
}

static void release(run_state *s)
{
    for (uint32_t i = 0; i < INPUTS; i++)
        free(s->in_data[i]);
    for (uint32_t i = 0; i < s->n_out; i++)
        if (i > 0 || s->mode.in_place < 0)
            free(s->out_data[i]);
    free(s->scratch);
}

static void run_mode_once(op_case *c, rng *r, uint32_t n_out, run_mode mode, double eps)
{
    run_state s = {.c = c, .mode = mode, .n_out = n_out};
    arena memory;
    arena_init(&memory, NULL);
    slab constants;
    slab_init(&constants, NULL, 0);
    prepare(&s, r);
    op_lower lower = {.graph = c->graph,
                      .node = c->node,
                      .in = s.in,
                      .out = s.out,
                      .cpu = cpu_detect(),
                      .memory = &memory,
                      .constants = &constants,
                      .constant_bytes = mode.streamed ? SIZE_MAX : 0,
                      .serial = mode.streamed,
                      .err = &c->err};
    lower.cpu.isa = mode.isa;
    lower.cpu.core_bytes = mode.core_bytes;
    lower.cpu.cache_bytes = mode.cache_bytes;
    if (mode.isa < CPU_AVX512)
        lower.cpu.avx512_vnni = lower.cpu.avx512_bf16 = lower.cpu.wide_pipes = false;
    else {
        lower.cpu.adds_beside_fma = mode.terms != CPU_TERMS_PLAIN;
        lower.cpu.wide_pipes = mode.terms == CPU_TERMS_WIDE;
    }
    tacit_status status = c->node->op->lower(&lower);
    if (status != TACIT_OK)
        fail_msg("%s on %s: lower says %d", c->type, cpu_isa_name(mode.isa), (int)status);
    s.scratch = aligned_alloc(64, (lower.scratch / 64 + 2) * 64); /* as an arena is */
    memset(s.scratch, 0x5a, lower.scratch + 64);
    for (uint32_t i = 0; i < lower.thunks.count; i++) {
        const op_thunk *t = lower.thunks.data[i];
        char *args = malloc(t->args_size);
        memcpy(args, t->args, t->args_size);
        bind_pointers(&s, t, args);
        for (uint32_t tile = t->tiles; tile-- > 0;)
            run_tile(&s, t, args, tile);
        free(args);
    }
    assert_int_equal(s.fault.code, 0);
    for (uint32_t i = 0; i < n_out; i++) {
        compare(&s, i, eps);
        if (mode.keep)
            memcpy(c->out[i].data, s.out_data[i], c->out[i].bytes);
        if (i > 0 || mode.in_place < 0)
            assert_true((uint8_t)s.out_data[i][c->out[i].bytes] == 0x5a);
    }
    slab_free(&constants);
    release(&s);
    arena_free(&memory);
}

/* In every layout of its inputs, and in place. */
static void check_layouts(op_case *c, rng *r, uint32_t n_out, run_mode mode, double eps)
{
    const op_def *op = c->node->op;
    run_mode_once(c, r, n_out, mode, eps);
    if (mode.constants) {
        mode.streamed = true;
        run_mode_once(c, r, n_out, mode, eps);
        mode.streamed = false;
    }
    if (op->accepts) {
        mode.strided = true;
        run_mode_once(c, r, n_out, mode, eps);
        mode.strided = false;
    }
    for (int k = 0; k < (int)c->n_in; k++) {
        bool dies = op->inplace >> k & 1 && c->in[k] && !(mode.constants >> k & 1);
        if (!dies || c->in[k]->bytes != c->out[0].bytes)
            continue;
        mode.in_place = k;
        run_mode_once(c, r, n_out, mode, eps);
    }
}

/* How many kinds of processors with these instructions sum in their own way. */
static int kinds_of(cpu_isa isa)
{
    return isa == CPU_AVX512 ? CPU_TERMS_WIDE + 1 : 1;
}

void lower_check(op_case *c, rng *r, uint32_t n_out, uint32_t constants, double eps)
{
    op_case_run(c, n_out);
    assert_non_null(c->node->op->lower);
    for (cpu_isa isa = CPU_PORTABLE; isa <= cpu_detect().isa; isa++)
        for (int kind = 0; kind < kinds_of(isa); kind++) {
            run_mode mode = {
                .isa = isa, .terms = (cpu_terms)kind, .in_place = -1, .constants = constants};
            check_layouts(c, r, n_out, mode, eps);
        }
}

void lower_check_caches(op_case *c, rng *r, uint32_t n_out, uint32_t constants, double eps)
{
    static const struct {
        uint64_t core, whole;
    } sizes[] = {{0, 0}, {1 << 18, 1 << 20}, {1 << 20, 1 << 25}, {1 << 23, 1 << 30}};
    op_case_run(c, n_out);
    for (cpu_isa isa = CPU_PORTABLE; isa <= cpu_detect().isa; isa++)
        for (int kind = 0; kind < kinds_of(isa); kind++)
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
                run_mode mode = {.isa = isa,
                                 .terms = (cpu_terms)kind,
                                 .keep = i == 0,
                                 .in_place = -1,
                                 .constants = constants,
                                 .core_bytes = sizes[i].core,
                                 .cache_bytes = sizes[i].whole};
                run_mode_once(c, r, n_out, mode, i == 0 ? eps : 0);
            }
}

void lower_check_none(op_case *c, uint32_t n_out)
{
    op_case_run(c, n_out);
    run_state s = {.c = c, .mode = {.isa = CPU_PORTABLE, .in_place = -1}, .n_out = n_out};
    arena memory;
    arena_init(&memory, NULL);
    rng r = rng_seed(0);
    prepare(&s, &r);
    op_lower lower = {.graph = c->graph,
                      .node = c->node,
                      .in = s.in,
                      .out = s.out,
                      .memory = &memory,
                      .err = &c->err};
    assert_int_equal(c->node->op->lower(&lower), OP_LOWER_NO_KERNEL);
    assert_int_equal(lower.thunks.count, 0);
    release(&s);
    arena_free(&memory);
}
