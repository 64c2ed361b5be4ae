/* SPDX-License-Identifier: Apache-2.0
 * tacit.Attention becomes the tiled kernel of cpu/attention.h. */
#include <string.h>

#include "cpu/attention.h"
#include "cpu/gemm.h"
#include "op/attention.h"
#include "op/lowerings.h"

static bool kernel_fits(const ir_node *node)
{
    for (uint32_t i = 0; i < 3; i++)
        if (node->inputs[i]->type.dtype != TACIT_F32)
            return false;
    const ir_value *mask = node->n_inputs > 3 ? node->inputs[3] : NULL;
    return node->inputs[0]->type.shape.dims[3] <= CPU_ATTENTION_DEPTH &&
           (!mask || mask->type.dtype == TACIT_F32 || mask->type.dtype == TACIT_BOOL);
}

bool op_accepts_attention(const ir_node *node, uint32_t in, const op_operand *view)
{
    if (!kernel_fits(node))
        return false;
    return in == 3 || view->strides[3] == 1 || view->type.shape.dims[3] == 1;
}

/* Blocks of at most `most` queries, about equal, at most `group` a tile. */
static void cut_queries(cpu_attention_args *a, int64_t most, int64_t group)
{
    int64_t blocks = (a->queries + most - 1) / most;
    if (blocks == 0)
        return;
    a->block_rows = (a->queries + blocks - 1) / blocks;
    a->group = (uint32_t)(blocks < group ? blocks : group);
    int64_t rows = a->block_rows * a->group;
    a->blocks = (uint32_t)((a->queries + rows - 1) / rows);
}

static void set_shape(const op_lower *c, cpu_attention_args *a)
{
    const int64_t *q = c->in[0].type.shape.dims, *k = c->in[1].type.shape.dims;
    a->batch = q[0], a->heads = q[1], a->queries = q[2], a->depth = q[3];
    a->kv_heads = k[1], a->keys = k[2];
    a->v_depth = c->in[2].type.shape.dims[3];
    for (int i = 0; i < 3; i++) {
        a->q_stride[i] = c->in[0].strides[i];
        a->k_stride[i] = c->in[1].strides[i];
        a->v_stride[i] = c->in[2].strides[i];
    }
    bool bshd = op_attention_bshd(c->node);
    a->out_stride[0] = a->heads * a->queries * a->v_depth;
    a->out_stride[1] = bshd ? a->v_depth : a->queries * a->v_depth;
    a->out_stride[2] = bshd ? a->heads * a->v_depth : a->v_depth;
    /* Blocks share packed keys where there are heads enough to go round. */
    cut_queries(a, CPU_ATTENTION_QUERIES, a->batch * a->heads >= 8 ? CPU_ATTENTION_GROUP : 1);
}

static void set_mask(const op_lower *c, cpu_attention_args *a)
{
    if (!op_lower_has(c, 3))
        return;
    ir_shape all = ir_shape_of(4, (int64_t[]){a->batch, a->heads, a->queries, a->keys});
    int64_t strides[IR_MAX_RANK];
    op_lower_strides(&c->in[3], &all, strides);
    memcpy(a->mask_stride, strides, sizeof a->mask_stride);
    a->mask_kind = c->in[3].type.dtype == TACIT_BOOL ? CPU_MASK_BOOL : CPU_MASK_ADD;
}

/* May terms be paired? A value whose key is hidden would count in the scale of its column, so every
 * query must see every key, or those up to its own, the first at least. */
static bool can_pair(const op_lower *c, const cpu_attention_args *a)
{
    return !c->batch_invariant && !c->plain_sums && a->mask_kind == CPU_MASK_NONE &&
           (!a->causal || a->causal_offset >= 0) && a->window <= 0 && a->softcap == 0 &&
           a->scale > 0 && a->depth <= CPU_ATTENTION_PAIRED_DEPTH &&
           a->v_depth <= CPU_ATTENTION_PAIRED_DEPTH;
}

/* Where it was measured to be faster: what is made of keys and values serves enough queries. */
static bool pairing_suits(const op_lower *c, const cpu_attention_args *a)
{
    bool many = a->queries >= 24 && a->depth >= 32;
    return c->cpu.isa == CPU_AVX512 && (many || (a->queries >= 48 && a->depth >= 16)) &&
           a->keys >= 16 && a->v_depth >= 16;
}

static void set_paired(op_lower *c, cpu_attention_args *a)
{
    enum { WAY_OWN, WAY_PLAIN, WAY_PAIRED };
    enum { FEW_KEYS = 192 }; /* of a block on the diagonal, whose weights are not paired */
    if (!can_pair(c, a))
        return;
    int way = op_lower_choice(c, WAY_PAIRED, "attention%s %lld %lld %lld %lld",
                              a->causal ? "-causal" : "", (long long)a->queries, (long long)a->keys,
                              (long long)a->depth, (long long)a->v_depth);
    if (way == WAY_PLAIN || (way == WAY_OWN && !pairing_suits(c, a)))
        return;
    int64_t depth = (a->depth + 15) / 16 * 16, v_depth = (a->v_depth + 15) / 16 * 16;
    int64_t keys = CPU_ATTENTION_PAIRED_RIGHT / (depth + v_depth) / 16 * 16;
    keys = keys < CPU_ATTENTION_PAIRED_KEYS ? keys : CPU_ATTENTION_PAIRED_KEYS;
    if (a->causal && keys > FEW_KEYS)
        keys = FEW_KEYS;
    int64_t blocks = (a->keys + keys - 1) / keys;
    a->terms = cpu_terms_of(&c->cpu);
    a->block_keys = ((a->keys + blocks - 1) / blocks + 15) / 16 * 16;
    /* Packed keys serve all queries of a head where there are heads enough to go round. */
    cut_queries(a, a->batch * a->heads >= 4 ? CPU_ATTENTION_PAIRED_ROWS : CPU_ATTENTION_QUERIES, 1);
}

/* Output bytes of a tile, where heads and their query blocks lie one after another. */
static uint64_t out_run(const cpu_attention_args *a)
{
    if (a->out_stride[2] != a->v_depth)
        return 0;
    int64_t rows = a->block_rows * a->group;
    if (a->blocks > 1 && a->queries % rows != 0)
        return 0;
    rows = a->blocks > 1 ? rows : a->queries;
    return (uint64_t)(rows * a->v_depth) * sizeof(float);
}

/* The attention thunk; K and V are inputs k and k + 1. */
static tacit_status emit(op_lower *c, cpu_attention_args *plan, uint32_t k)
{
    int64_t tiles = plan->batch * plan->heads * plan->blocks;
    if (tiles * plan->v_depth == 0)
        return TACIT_OK;
    if (tiles > INT32_MAX)
        return OP_LOWER_NO_KERNEL;
    bool paired = plan->block_keys > 0;
    const char *name = paired ? CPU_PICK_NAME(c->cpu.isa, attention_paired_f32)
                              : CPU_PICK_NAME(c->cpu.isa, attention_f32);
    cpu_attention_args *a = op_lower_thunk(c, name,
                                           paired ? CPU_PICK(c->cpu.isa, cpu_attention_paired_f32)
                                                  : CPU_PICK(c->cpu.isa, cpu_attention_f32),
                                           sizeof *a, (uint32_t)tiles);
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = *plan;
    TRY(op_lower_in(c, offsetof(cpu_attention_args, q), 0));
    TRY(op_lower_in(c, offsetof(cpu_attention_args, k), k));
    TRY(op_lower_in(c, offsetof(cpu_attention_args, v), k + 1));
    if (a->mask_kind != CPU_MASK_NONE)
        TRY(op_lower_in(c, offsetof(cpu_attention_args, mask), 3));
    TRY(op_lower_out_tiled(c, offsetof(cpu_attention_args, out), 0, out_run(a), out_run(a)));
    double pairs = (double)(a->batch * a->heads * a->queries) * (double)a->keys;
    if (a->causal && a->queries > 1)
        pairs /= 2;
    op_lower_cost(c, pairs * (2.0 * (double)(a->depth + a->v_depth) + 12), op_lower_all_bytes(c));
    op_lower_note(c,
                  "%s: %u tiles a head, %s; scores are never stored, so the "
                  "unfused form would move %lld floats more",
                  name, a->blocks,
                  paired && a->terms == CPU_TERMS_PLAIN ? "keys and values packed, term by term"
                  : paired && a->causal
                      ? "terms paired but for weights of the last keys that are seen"
                  : paired          ? "terms paired, since every query sees every key"
                  : a->queries <= 3 ? "keys read in place"
                                    : "keys packed by blocks",
                  (long long)2 * a->batch * a->heads * a->queries * a->keys);
    return TACIT_OK;
}

static cpu_attention_args read_attributes(const ir_node *node)
{
    return (cpu_attention_args){.scale = (float)ir_attr_float(node, "scale", 1),
                                .softcap = (float)ir_attr_float(node, "softcap", 0),
                                .causal = ir_attr_int(node, "causal", 0) != 0,
                                .causal_offset = ir_attr_int(node, "causal_offset", 0),
                                .window = ir_attr_int(node, "window", 0)};
}

tacit_status op_lower_attention(op_lower *c)
{
    if (!kernel_fits(c->node))
        return OP_LOWER_NO_KERNEL;
    cpu_attention_args plan = read_attributes(c->node);
    set_shape(c, &plan);
    if (plan.keys == 0) /* of no keys the evaluator gives zeros */
        return OP_LOWER_NO_KERNEL;
    set_mask(c, &plan);
    set_paired(c, &plan);
    return emit(c, &plan, 1);
}

/* --- with a cache ------------------------------------------------------------------------------
 */

enum { NEW_K = 1, NEW_V, CACHE_K, CACHE_V, LENGTH };

bool op_accepts_cached_attention(const ir_node *node, uint32_t in, const op_operand *view)
{
    return in < CACHE_K && node->inputs[0]->type.dtype == TACIT_F32 &&
           (view->strides[3] == 1 || view->type.shape.dims[3] == 1);
}

static tacit_status emit_append(op_lower *c, size_t token)
{
    const int64_t *k = c->in[NEW_K].type.shape.dims;
    cpu_cache_args *a =
        op_lower_thunk(c, "cache_append", cpu_cache_append, sizeof *a, (uint32_t)(k[0] * k[1]));
    if (!a)
        return TACIT_ERR_MEMORY;
    a->heads = k[1];
    a->positions = k[2];
    a->capacity = c->in[CACHE_K].type.shape.dims[2];
    a->depth = k[3];
    a->v_depth = c->in[NEW_V].type.shape.dims[3];
    memcpy(a->k_stride, c->in[NEW_K].strides, sizeof a->k_stride);
    memcpy(a->v_stride, c->in[NEW_V].strides, sizeof a->v_stride);
    TRY(op_lower_in(c, offsetof(cpu_cache_args, k), NEW_K));
    TRY(op_lower_in(c, offsetof(cpu_cache_args, v), NEW_V));
    TRY(op_lower_in(c, offsetof(cpu_cache_args, k_cache), CACHE_K));
    TRY(op_lower_in(c, offsetof(cpu_cache_args, v_cache), CACHE_V));
    TRY(op_lower_in(c, offsetof(cpu_cache_args, length), LENGTH));
    TRY(op_lower_fault(c, offsetof(cpu_cache_args, fault)));
    TRY(op_lower_scratch(c, offsetof(cpu_cache_args, token), token, true));
    op_lower_cost(c, 0, 2 * (op_lower_bytes(&c->in[NEW_K]) + op_lower_bytes(&c->in[NEW_V])));
    return TACIT_OK;
}

tacit_status op_lower_cached_attention(op_lower *c)
{
    if (c->in[0].type.dtype != TACIT_F32 || c->in[0].type.shape.dims[3] > CPU_ATTENTION_DEPTH)
        return OP_LOWER_NO_KERNEL;
    size_t token = op_lower_reserve(c, 64);
    TRY(emit_append(c, token));
    cpu_attention_args plan = read_attributes(c->node);
    set_shape(c, &plan); /* heads and depths are those of the new keys */
    plan.keys = c->in[CACHE_K].type.shape.dims[2];
    memcpy(plan.k_stride, c->in[CACHE_K].strides, sizeof plan.k_stride);
    memcpy(plan.v_stride, c->in[CACHE_V].strides, sizeof plan.v_stride);
    set_paired(c, &plan);
    TRY(emit(c, &plan, CACHE_K));
    if (c->thunks.count < 2)
        return TACIT_OK;
    op_lower_together(c, (uint32_t)(plan.batch * plan.heads * plan.blocks / 4)); /* short caches */
    TRY(op_lower_in(c, offsetof(cpu_attention_args, length), LENGTH));
    return op_lower_scratch(c, offsetof(cpu_attention_args, token), token, false);
}
