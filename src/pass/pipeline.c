/* SPDX-License-Identifier: Apache-2.0
 * The table of passes, and running it until nothing changes. */
#include <string.h>

#include "base/cpu.h"
#include "pass/edit.h"

enum {
    PASS_ROUNDS = 64, /* a stage that has not settled by then is stopped: still right, not best */
};
#define PASS_FOLD_BUDGET ((uint64_t)256 << 20)

/* Order matters inside a round: absorbing goes before folding, or folding would copy transposed
 * weights; what the fusions of stage 2 look for is made by stage 1. */
static const pass_def table[] = {
    {"inline-if", "the branch of an If whose condition is known takes its place", pass_inline_if, 0,
     true},
    {"inline-loop", "a Loop with a few rounds, all known, is written out", pass_inline_loop, 0,
     false},
    {"loop-constants", "constants that a Loop carries unchanged are constants of its body",
     pass_loop_constants, 0, false},
    {"open-sequences", "what was put into a sequence and is taken out again goes past it",
     pass_open_sequences, 0, false},
    {"decompose", "ops without an evaluator of their own become simpler ones", pass_decompose, 0,
     true},
    {"widen-halves", "what is computed in f16 or bf16 is computed in f32, and rounded at the end",
     pass_widen_halves, 0, false},
    {"unfold", "composites without a kernel become ops that have one", pass_unfold, 0, false},
    {"clean-up", "x+0, x*1, Identity, Dropout at inference, Cast round trips", pass_clean_up, 0,
     false},
    {"clean-views", "Reshape, Transpose, Squeeze and Unsqueeze that do nothing or undo each other",
     pass_clean_views, 0, false},
    {"rewrite-gemm", "Gemm becomes tacit.MatMul", pass_rewrite_gemm, 0, false},
    {"absorb-transpose", "transposes, and factors of weights, go into MatMul",
     pass_absorb_transpose, 0, false},
    {"fold-constants", "what depends on constants alone is computed now, within a budget",
     pass_fold_constants, 0, false},
    {"share", "equal computations and equal small constants become one", pass_share, 0, false},
    {"drop-dead", "nodes and outputs that nobody reads go", pass_drop_dead, 0, false},
    {"drop-taps", "taps of convolutions that read nothing but padding go", pass_drop_taps, 1,
     false},
    {"late-halves", "weights in f16 or bf16 are widened when they are packed", pass_late_halves, 1,
     false},
    {"fold-batch-norm", "BatchNormalization goes into the weights of the Conv before it",
     pass_fold_batch_norm, 1, false},
    {"recognise-activation", "GELU, SiLU, HardSwish spelled out", pass_recognise_activation, 1,
     false},
    {"recognise-norm", "LayerNormalization, RMSNormalization spelled out", pass_recognise_norm, 1,
     false},
    {"recognise-softmax", "Softmax spelled out", pass_recognise_softmax, 1, false},
    {"absorb-scale", "constant factors before and after MatMul become its alpha", pass_absorb_scale,
     2, false},
    {"int-matmul", "products of quantised tensors run on bytes: tacit.IntMatMul", pass_int_matmul,
     2, false},
    {"int-conv", "convolutions of quantised tensors run on bytes: tacit.IntConv", pass_int_conv, 2,
     false},
    {"int-images",
     "sums, products and means of quantised tensors run on bytes: tacit.IntAdd, tacit.IntMul, "
     "tacit.IntMean",
     pass_int_images, 2, false},
    {"narrow-weights", "weights in few bits stay so: products with them become DequantMatMul",
     pass_narrow_weights, 2, false},
    {"fuse-attention", "attention in any spelling becomes tacit.Attention", pass_fuse_attention, 2,
     false},
    {"causal-mask", "known triangular and banded masks become attributes of attention",
     pass_causal_mask, 2, false},
    {"fuse-rotary", "rotary embeddings spelled out become RotaryEmbedding", pass_fuse_rotary, 2,
     false},
    {"fuse-gated", "SwiGLU and GeGLU become tacit.Gated", pass_fuse_gated, 2, false},
    {"sink-transposes", "what lies between Transposes works in the layout in front of them",
     pass_sink_transposes, 3, false},
    {"fuse-matmul", "bias, activation and residual go into MatMul", pass_fuse_matmul, 3, false},
    {"fuse-conv", "bias, activation and residual go into Conv", pass_fuse_conv, 3, false},
    {"fuse-norm", "a residual sum and the normalisation of it become tacit.Norm", pass_fuse_norm, 3,
     false},
    {"fuse-qkv", "three MatMuls of one input become one, split into views", pass_fuse_qkv, 4,
     false},
    {"push-slice", "a slice of rows goes in front of what it cuts: only these rows are computed",
     pass_push_slice, 4, false},
    {"channels-inside", "byte convolutions and what lies between them keep channels together",
     pass_channels_inside, 5, false},
    {"block-channels", "convolutions and what lies between them work on blocks of 16 channels",
     pass_block_channels, 5, false},
    {"fuse-elementwise", "chains of element-wise ops become one strip-mined program",
     pass_fuse_elementwise, 6, false},
};
enum { PASS_COUNT = sizeof table / sizeof *table };

const pass_def *pass_at(uint32_t index)
{
    return index < PASS_COUNT ? &table[index] : NULL;
}

static tacit_status check_name(const char *name, tacit_error *err)
{
    for (uint32_t i = 0; i < PASS_COUNT; i++)
        if (strcmp(table[i].name, name) == 0)
            return TACIT_OK;
    return error_set(err, TACIT_ERR_ARGUMENT, "there is no pass named '%s'", name);
}

static tacit_status choose(const pass_options *o, bool *on, tacit_error *err)
{
    for (uint32_t i = 0; i < PASS_COUNT; i++)
        on[i] = true;
    if (o && o->only)
        TRY(check_name(o->only, err));
    for (uint32_t k = 0; o && k < o->n_disabled; k++)
        if (strcmp(o->disabled[k], "all") != 0)
            TRY(check_name(o->disabled[k], err));
    for (uint32_t i = 0; o && i < PASS_COUNT; i++) {
        if (table[i].required)
            continue;
        on[i] = !o->only || strcmp(o->only, table[i].name) == 0;
        for (uint32_t k = 0; k < o->n_disabled; k++)
            if (strcmp(o->disabled[k], "all") == 0 || strcmp(o->disabled[k], table[i].name) == 0)
                on[i] = false;
    }
    return TACIT_OK;
}

typedef struct runner {
    pass_context c;
    pass_edit kept;
    arena *memory;
    pass_report *report;
    bool on[PASS_COUNT];
    uint64_t settled[PASS_COUNT]; /* 1 + the version of the graph that a pass last left alone */
} runner;

/* A pass that counts no rewrite may have made nodes and constants for one that was refused. Without
 * them the graph is of the version that it was. */
static tacit_status forget_attempts(pass_context *c, uint32_t nodes, uint64_t version)
{
    if (c->graph->version == version)
        return TACIT_OK;
    for (uint32_t i = nodes; i < c->graph->nodes.count; i++)
        ir_node_kill(c->graph->nodes.data[i]);
    TRY(ir_graph_sweep(c->graph, c->err));
    c->graph->version = version;
    return TACIT_OK;
}

static tacit_status run_pass(runner *r, uint32_t i)
{
    r->c.rewrites = 0;
    r->c.name = table[i].name;
    uint32_t before = r->c.graph->nodes.count;
    uint64_t version = r->c.graph->version;
    uint64_t start = clock_ns();
    tacit_status status = table[i].run(&r->c);
    arena_reset(r->c.scratch);
    if (r->c.graph->version != version) {
        r->kept = (pass_edit){0};
        arena_reset(r->c.lists);
    }
    if (status == TACIT_OK && r->c.rewrites)
        status = ir_graph_sort(r->c.graph, r->c.err);
    else if (status == TACIT_OK)
        status = forget_attempts(&r->c, before, version);
    if (status != TACIT_OK)
        return error_context(r->c.err, status, "pass %s", table[i].name);
    if (!r->c.rewrites) {
        r->settled[i] = version + 1;
        return TACIT_OK;
    }
    pass_change change = {.pass = table[i].name,
                          .round = r->report->rounds,
                          .rewrites = r->c.rewrites,
                          .nodes_before = before,
                          .nodes_after = r->c.graph->nodes.count,
                          .nanoseconds = clock_ns() - start};
    if (!vec_push(r->memory, &r->report->changes, change))
        return error_memory(r->c.err, "the report of the passes");
    return TACIT_OK;
}

/* Rounds over the passes of this stage and the earlier ones until nothing changes. */
static tacit_status run_stage(runner *r, uint32_t stage)
{
    for (uint32_t round = 0; round < PASS_ROUNDS; round++) {
        uint64_t before = r->c.graph->version;
        bool ran = false;
        for (uint32_t i = 0; i < PASS_COUNT; i++) {
            if (!r->on[i] || table[i].stage > stage || r->settled[i] == r->c.graph->version + 1)
                continue;
            ran = true;
            TRY(run_pass(r, i));
        }
        r->report->rounds += ran;
        if (before == r->c.graph->version)
            break;
    }
    return TACIT_OK;
}

tacit_status pass_pipeline(ir_graph *g, const pass_options *options, arena *memory,
                           pass_report *report, tacit_error *err)
{
    *report = (pass_report){0};
    uint64_t budget =
        options && options->fold_budget ? options->fold_budget : (uint64_t)PASS_FOLD_BUDGET;
    const op_def *ops[PASS_OP_COUNT];
    pass_ops_find(ops);
    arena scratch, lists;
    arena_init(&scratch, g->memory->allocator);
    arena_init(&lists, g->memory->allocator);
    runner r = {.c = {.graph = g,
                      .ops = ops,
                      .scratch = &scratch,
                      .lists = &lists,
                      .fold_left = &budget,
                      .late_weights = options && options->late_weights,
                      .log = options ? options->log : NULL,
                      .err = err},
                .memory = memory,
                .report = report};
    r.c.kept = &r.kept;
    tacit_status status = choose(options, r.on, err);
    uint32_t last = 0;
    for (uint32_t i = 0; i < PASS_COUNT; i++)
        last = table[i].stage > last ? table[i].stage : last;
    for (uint32_t s = 0; status == TACIT_OK && s <= last; s++)
        status = run_stage(&r, s);
    arena_free(&scratch);
    arena_free(&lists);
    return status;
}
