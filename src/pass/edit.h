/* SPDX-License-Identifier: Apache-2.0
 *
 * What every pass is written with: who reads a value, kept current while the graph is edited;
 * matching helpers; and the one way to put a fused node in the place of others.
 */
#ifndef PASS_EDIT_H
#define PASS_EDIT_H

#include "pass/pass.h"

/* Ops that patterns look for. A node matches by its row, so an operator that the caller replaced
 * by one of their own never takes part in a rewrite. */
#define PASS_OPS(ROW)                                                                              \
    ROW(ABS, "", "Abs")                                                                            \
    ROW(ACOS, "", "Acos")                                                                          \
    ROW(ACOSH, "", "Acosh")                                                                        \
    ROW(ADD, "", "Add")                                                                            \
    ROW(AND, "", "And")                                                                            \
    ROW(ASIN, "", "Asin")                                                                          \
    ROW(ASINH, "", "Asinh")                                                                        \
    ROW(ATAN, "", "Atan")                                                                          \
    ROW(ATANH, "", "Atanh")                                                                        \
    ROW(ATTENTION, "", "Attention")                                                                \
    ROW(AVERAGE_POOL, "", "AveragePool")                                                           \
    ROW(BATCH_NORM, "", "BatchNormalization")                                                      \
    ROW(CAST, "", "Cast")                                                                          \
    ROW(CEIL, "", "Ceil")                                                                          \
    ROW(CELU, "", "Celu")                                                                          \
    ROW(CLIP, "", "Clip")                                                                          \
    ROW(CONCAT, "", "Concat")                                                                      \
    ROW(CONCAT_FROM_SEQUENCE, "", "ConcatFromSequence")                                            \
    ROW(CONV, "", "Conv")                                                                          \
    ROW(COS, "", "Cos")                                                                            \
    ROW(COSH, "", "Cosh")                                                                          \
    ROW(DEQUANTIZE, "", "DequantizeLinear")                                                        \
    ROW(DIV, "", "Div")                                                                            \
    ROW(DROPOUT, "", "Dropout")                                                                    \
    ROW(DYNAMIC_QUANTIZE, "", "DynamicQuantizeLinear")                                             \
    ROW(ELU, "", "Elu")                                                                            \
    ROW(EQUAL, "", "Equal")                                                                        \
    ROW(ERF, "", "Erf")                                                                            \
    ROW(EXP, "", "Exp")                                                                            \
    ROW(EXPAND, "", "Expand")                                                                      \
    ROW(FLATTEN, "", "Flatten")                                                                    \
    ROW(FLOOR, "", "Floor")                                                                        \
    ROW(GATHER, "", "Gather")                                                                      \
    ROW(GELU, "", "Gelu")                                                                          \
    ROW(GEMM, "", "Gemm")                                                                          \
    ROW(GLOBAL_AVERAGE_POOL, "", "GlobalAveragePool")                                              \
    ROW(GREATER, "", "Greater")                                                                    \
    ROW(GREATER_EQUAL, "", "GreaterOrEqual")                                                       \
    ROW(HARD_SIGMOID, "", "HardSigmoid")                                                           \
    ROW(HARD_SWISH, "", "HardSwish")                                                               \
    ROW(IDENTITY, "", "Identity")                                                                  \
    ROW(IF, "", "If")                                                                              \
    ROW(IS_NAN, "", "IsNaN")                                                                       \
    ROW(LAYER_NORM, "", "LayerNormalization")                                                      \
    ROW(LEAKY_RELU, "", "LeakyRelu")                                                               \
    ROW(LESS, "", "Less")                                                                          \
    ROW(LESS_EQUAL, "", "LessOrEqual")                                                             \
    ROW(LOG, "", "Log")                                                                            \
    ROW(LOOP, "", "Loop")                                                                          \
    ROW(MATMUL, "", "MatMul")                                                                      \
    ROW(MATMUL_INTEGER, "", "MatMulInteger")                                                       \
    ROW(MATMUL_NBITS, "com.microsoft", "MatMulNBits")                                              \
    ROW(MAX, "", "Max")                                                                            \
    ROW(MAX_POOL, "", "MaxPool")                                                                   \
    ROW(MIN, "", "Min")                                                                            \
    ROW(MUL, "", "Mul")                                                                            \
    ROW(NEG, "", "Neg")                                                                            \
    ROW(NOT, "", "Not")                                                                            \
    ROW(OR, "", "Or")                                                                              \
    ROW(PAD, "", "Pad")                                                                            \
    ROW(POW, "", "Pow")                                                                            \
    ROW(QUANTIZE, "", "QuantizeLinear")                                                            \
    ROW(RECIPROCAL, "", "Reciprocal")                                                              \
    ROW(REDUCE_MAX, "", "ReduceMax")                                                               \
    ROW(REDUCE_MEAN, "", "ReduceMean")                                                             \
    ROW(REDUCE_SUM, "", "ReduceSum")                                                               \
    ROW(REDUCE_SUM_SQUARE, "", "ReduceSumSquare")                                                  \
    ROW(RELU, "", "Relu")                                                                          \
    ROW(RESHAPE, "", "Reshape")                                                                    \
    ROW(RMS_NORM, "", "RMSNormalization")                                                          \
    ROW(ROTARY, "", "RotaryEmbedding")                                                             \
    ROW(ROUND, "", "Round")                                                                        \
    ROW(SEQUENCE_AT, "", "SequenceAt")                                                             \
    ROW(SEQUENCE_CONSTRUCT, "", "SequenceConstruct")                                               \
    ROW(SEQUENCE_EMPTY, "", "SequenceEmpty")                                                       \
    ROW(SEQUENCE_ERASE, "", "SequenceErase")                                                       \
    ROW(SEQUENCE_INSERT, "", "SequenceInsert")                                                     \
    ROW(SEQUENCE_LENGTH, "", "SequenceLength")                                                     \
    ROW(SIGMOID, "", "Sigmoid")                                                                    \
    ROW(SIGN, "", "Sign")                                                                          \
    ROW(SIN, "", "Sin")                                                                            \
    ROW(SINH, "", "Sinh")                                                                          \
    ROW(SLICE, "", "Slice")                                                                        \
    ROW(SOFTMAX, "", "Softmax")                                                                    \
    ROW(SOFTPLUS, "", "Softplus")                                                                  \
    ROW(SOFTSIGN, "", "Softsign")                                                                  \
    ROW(SPLIT, "", "Split")                                                                        \
    ROW(SPLIT_TO_SEQUENCE, "", "SplitToSequence")                                                  \
    ROW(SQRT, "", "Sqrt")                                                                          \
    ROW(SQUEEZE, "", "Squeeze")                                                                    \
    ROW(SUB, "", "Sub")                                                                            \
    ROW(SUM, "", "Sum")                                                                            \
    ROW(SWISH, "", "Swish")                                                                        \
    ROW(TAN, "", "Tan")                                                                            \
    ROW(TANH, "", "Tanh")                                                                          \
    ROW(TRANSPOSE, "", "Transpose")                                                                \
    ROW(UNSQUEEZE, "", "Unsqueeze")                                                                \
    ROW(WHERE, "", "Where")                                                                        \
    ROW(XOR, "", "Xor")                                                                            \
    ROW(T_ATTENTION, "tacit", "Attention")                                                         \
    ROW(T_BLOCK, "tacit", "Block")                                                                 \
    ROW(T_BLOCKED_CONV, "tacit", "BlockedConv")                                                    \
    ROW(T_BLOCKED_POOL, "tacit", "BlockedPool")                                                    \
    ROW(T_CONV, "tacit", "Conv")                                                                   \
    ROW(T_DEQUANT_MATMUL, "tacit", "DequantMatMul")                                                \
    ROW(T_ELEMENTWISE, "tacit", "Elementwise")                                                     \
    ROW(T_GATED, "tacit", "Gated")                                                                 \
    ROW(T_INT_ADD, "tacit", "IntAdd")                                                              \
    ROW(T_INT_MUL, "tacit", "IntMul")                                                              \
    ROW(T_INT_CONV, "tacit", "IntConv")                                                            \
    ROW(T_INT_MATMUL, "tacit", "IntMatMul")                                                        \
    ROW(T_INT_MAX_POOL, "tacit", "IntMaxPool")                                                     \
    ROW(T_INT_MEAN, "tacit", "IntMean")                                                            \
    ROW(T_MATMUL, "tacit", "MatMul")                                                               \
    ROW(T_NORM, "tacit", "Norm")                                                                   \
    ROW(T_UNBLOCK, "tacit", "Unblock")

typedef enum pass_op {
#define PASS_OP_ENUM(id, domain, name) PASS_##id,
    PASS_OPS(PASS_OP_ENUM)
#undef PASS_OP_ENUM
        PASS_OP_COUNT
} pass_op;

/* Fills `rows` (PASS_OP_COUNT entries; NULL: the table has no such op) from the op table. */
void pass_ops_find(const op_def **rows);

/* One reading of a value. */
typedef struct pass_use {
    ir_node *node; /* NULL: the graph's output number `index` */
    uint32_t index;
    uint32_t next, previous; /* uses of the same value; PASS_NONE ends */
} pass_use;
#define PASS_NONE UINT32_MAX

typedef struct pass_edit {
    pass_context *c;
    ir_graph *g;
    VEC(pass_use) uses;
    VEC(uint32_t) head;  /* by value id: first use */
    VEC(uint32_t) count; /* by value id */
    VEC(uint32_t) first; /* by node id: the use of its input 0; the others follow */
    uint32_t outputs;    /* the use of graph output 0 */
    uint64_t version;    /* of the graph when the lists were made */
} pass_edit;

/* Builds the use lists, or takes the kept ones if the graph has not been edited since; they stay
 * right as long as edits go through the functions below. */
tacit_status pass_edit_begin(pass_edit *e, pass_context *c);

typedef tacit_status pass_visit_fn(pass_edit *e, ir_node *n);
/* Visits the nodes the graph had at the start, if the op table has `made`, the op the pass makes.
 */
tacit_status pass_each(pass_context *c, pass_op made, pass_visit_fn *visit);

/* Is a derived weight of so many bytes made when it is packed? Small ones are compared by contents,
 * so they are made at once. */
static inline bool pass_late(const pass_edit *e, size_t bytes)
{
    return e->c->late_weights && bytes > 4096;
}
/* The tensor that the recipe tells of, late where it may be. */
tacit_status pass_derive(pass_edit *e, const ir_shape *shape, const ir_recipe *recipe,
                         ir_tensor **out);

/* --- looking ---------------------------------------------------------------------------------- */
/* Has the graph such a node? For passes that have nothing to do in most graphs. */
static inline bool pass_holds(const pass_context *c, pass_op op)
{
    for (uint32_t i = 0; c->ops[op] && i < c->graph->nodes.count; i++)
        if (c->graph->nodes.data[i]->op == c->ops[op])
            return true;
    return false;
}
static inline bool pass_is(const pass_edit *e, const ir_node *n, pass_op op)
{
    return n && n->type && n->op && n->op == e->c->ops[op];
}
/* The producer of `v` when it is `op`, else NULL. */
static inline ir_node *pass_from(const pass_edit *e, const ir_value *v, pass_op op)
{
    return v && pass_is(e, v->producer, op) ? v->producer : NULL;
}
static inline bool pass_has(const pass_edit *e, pass_op op)
{
    return e->c->ops[op] != NULL;
}
static inline uint32_t pass_uses(const pass_edit *e, const ir_value *v)
{
    return e->count.data[v->id];
}
static inline const pass_use *pass_first_use(const pass_edit *e, const ir_value *v)
{
    uint32_t i = e->head.data[v->id];
    return i == PASS_NONE ? NULL : &e->uses.data[i];
}
static inline const pass_use *pass_next_use(const pass_edit *e, const pass_use *u)
{
    return u->next == PASS_NONE ? NULL : &e->uses.data[u->next];
}
/* The node that is the only reader of `v`, else NULL. */
ir_node *pass_only_user(const pass_edit *e, const ir_value *v);
bool pass_is_output(const pass_edit *e, const ir_value *v);
/* Where a value of `g`, a graph or the body of a node, comes from, past Identity nodes. */
const ir_value *pass_origin(const pass_edit *e, const ir_graph *g, const ir_value *v);
/* What a Loop reads before the values it carries, and what its body gives before them. */
enum { PASS_ROUNDS_AND_CONDITION = 2, PASS_CONDITION = 1 };
/* `v` is known, numeric and has one element. */
bool pass_scalar(const ir_value *v, double *out);
bool pass_scalar_is(const ir_value *v, double expected); /* within float rounding */
/* A known integer tensor of at most `most` entries. */
bool pass_ints(const ir_value *v, int64_t *out, uint32_t most, uint32_t *count);
/* `n` is `op` with a scalar constant on one side that does not change the other's shape; for Sub
 * and Div the constant must be second. */
bool pass_with_scalar(const pass_edit *e, const ir_node *n, pass_op op, ir_value **x, double *c);
/* The input of a two-input node that is not `v`; NULL when it does not read `v`. */
ir_value *pass_other(const ir_node *n, const ir_value *v);
bool pass_same_shape(const ir_value *a, const ir_value *b);
static inline bool pass_static(const ir_value *v)
{
    return v && ir_type_is_static(&v->type);
}
static inline bool pass_float(const ir_value *v) /* a static tensor the fused kernels speak of */
{
    return pass_static(v) && (v->type.dtype == TACIT_F32 || v->type.dtype == TACIT_F64 ||
                              v->type.dtype == TACIT_F16 || v->type.dtype == TACIT_BF16);
}
static inline bool pass_half(const ir_value *v) /* a tensor of half precision */
{
    return v && v->type.kind == IR_TENSOR &&
           (v->type.dtype == TACIT_F16 || v->type.dtype == TACIT_BF16);
}
/* Will the pass unfold spell it out? No kernel, but a spelling that has them: vendors' fused ops,
 * norms over groups, classes told by strings. The patterns of later stages then put together what
 * belongs together. */
bool pass_unfolds(const ir_node *n);
/* Does the model compute `n` in half precision, and we in f32? */
bool pass_was_half(const ir_node *n);
/* Is `n` a Cast of known halves to f32 that only products and convolutions read, as weights? */
bool pass_widens_weight(const pass_edit *e, const ir_node *n);
static inline int64_t pass_dim(const ir_value *v, int32_t from_end) /* 1 is the last */
{
    return v->type.shape.dims[v->type.shape.rank - from_end];
}
/* The permutation of a Transpose of this rank (its default is the reversal). */
bool pass_permutation(const ir_node *n, int64_t *perm);
/* `perm` exchanges the last two axes and nothing else. */
bool pass_swaps_last_two(const int64_t *perm, int32_t rank);
/* The single axis a reduction works on, counted from the end (1: the last), 0 when it is not one
 * axis with keepdims. */
int32_t pass_reduced_axis(const ir_node *n);

/* --- a set of nodes a rewrite would swallow ----------------------------------------------------
 */
enum { PASS_SET_MOST = 40 };
typedef struct pass_set {
    ir_node *nodes[PASS_SET_MOST];
    uint32_t count;
    bool overflow;
} pass_set;
bool pass_set_has(const pass_set *s, const ir_node *n);
void pass_set_add(pass_set *s, ir_node *n);
/* Every value the set produces, other than `kept`, is read inside the set only and is no graph
 * output. Otherwise the reason is noted on `root` and the answer is false. */
bool pass_set_closed(pass_edit *e, const pass_set *s, ir_node *root, uint32_t n_kept,
                     ir_value *const *kept);

/* --- changing --------------------------------------------------------------------------------- */
void pass_set_input(pass_edit *e, ir_node *n, uint32_t k, ir_value *v);
/* Removes the node and its readings. */
void pass_kill(pass_edit *e, ir_node *n);
/* The node goes: its outputs become weights, with the contents that they have (value->constant). */
void pass_become_constants(pass_edit *e, ir_node *n);
/* May every use of `old` read `replacement` instead? A graph output must keep its name, which a
 * graph input, a weight or another output cannot take over. */
bool pass_replaceable(const pass_edit *e, const ir_value *old, const ir_value *replacement);
void pass_replace(pass_edit *e, ir_value *old, ir_value *replacement);
/* A new, inferred node of one output in domain ""; NULL and the error in `status` otherwise. */
ir_node *pass_node(pass_edit *e, pass_op op, const char *name, uint32_t n_inputs,
                   ir_value *const *inputs, uint32_t n_attrs, const ir_attr *attrs,
                   tacit_status *status);
/* A node in the place of `old`, which dies: output 0 keeps its value. Used for one-to-one
 * rewrites; the old node's history is inherited. */
typedef struct pass_fusion {
    pass_op op;
    ir_node *root;  /* lends its name, and gets the note when the rewrite is refused */
    pass_set nodes; /* to be swallowed; includes root */
    uint32_t n_inputs, n_outputs;
    ir_value *inputs[16];
    ir_value *outputs[4]; /* values taken over from the swallowed nodes */
    ir_attr attrs[24];
    uint32_t n_attrs;
    ir_node *made; /* the new node, when the rewrite happened */
} pass_fusion;
void pass_fusion_int(pass_fusion *f, const char *name, int64_t value);
void pass_fusion_float(pass_fusion *f, const char *name, double value);
void pass_fusion_string(pass_fusion *f, const char *name, const char *value);
void pass_fusion_ints(pass_fusion *f, const char *name, uint32_t count, const int64_t *values);
void pass_fusion_floats(pass_fusion *f, const char *name, uint32_t count, const double *values);
/* All attributes of a node, as they are. */
void pass_fusion_attrs(pass_fusion *f, const ir_node *from);
/* Checks that the set is closed and that the fused op accepts its operands and yields the same
 * types; then swaps it in, counts the rewrite, and records where it came from. A refusal is noted
 * on the root and leaves the graph as it was. */
tacit_status pass_fuse(pass_edit *e, pass_fusion *f);
/* 1 when a size is 0: a Reshape then needs allowzero, or the 0 would mean "copy". */
static inline uint32_t pass_has_zero(int32_t rank, const int64_t *dims)
{
    for (int32_t i = 0; i < rank; i++)
        if (dims[i] == 0)
            return 1;
    return 0;
}
/* "pass: text" on the node, once. */
void pass_near_miss(pass_edit *e, ir_node *n, const char *format, ...) PRINTF_LIKE(3, 4);

/* --- the passes --------------------------------------------------------------------------------
 */
tacit_status pass_inline_if(pass_context *c);
tacit_status pass_inline_loop(pass_context *c);
tacit_status pass_loop_constants(pass_context *c);
tacit_status pass_open_sequences(pass_context *c);
tacit_status pass_decompose(pass_context *c);
tacit_status pass_unfold(pass_context *c);
tacit_status pass_widen_halves(pass_context *c);
tacit_status pass_late_halves(pass_context *c);
tacit_status pass_absorb_transpose(pass_context *c);
tacit_status pass_absorb_scale(pass_context *c);
tacit_status pass_rewrite_gemm(pass_context *c);
tacit_status pass_fold_constants(pass_context *c);
tacit_status pass_fold_batch_norm(pass_context *c);
tacit_status pass_clean_up(pass_context *c);
tacit_status pass_clean_views(pass_context *c);
tacit_status pass_share(pass_context *c);
tacit_status pass_drop_dead(pass_context *c);
tacit_status pass_drop_taps(pass_context *c);
tacit_status pass_recognise_activation(pass_context *c);
tacit_status pass_recognise_norm(pass_context *c);
tacit_status pass_recognise_softmax(pass_context *c);
tacit_status pass_causal_mask(pass_context *c);
tacit_status pass_fuse_attention(pass_context *c);
tacit_status pass_fuse_rotary(pass_context *c);
tacit_status pass_fuse_gated(pass_context *c);
tacit_status pass_fuse_qkv(pass_context *c);
tacit_status pass_push_slice(pass_context *c);
tacit_status pass_sink_transposes(pass_context *c);
tacit_status pass_int_conv(pass_context *c);
tacit_status pass_int_images(pass_context *c);
tacit_status pass_channels_inside(pass_context *c);
tacit_status pass_int_matmul(pass_context *c);
tacit_status pass_narrow_weights(pass_context *c);
tacit_status pass_fuse_matmul(pass_context *c);
tacit_status pass_fuse_conv(pass_context *c);
tacit_status pass_fuse_norm(pass_context *c);
tacit_status pass_block_channels(pass_context *c);
tacit_status pass_fuse_elementwise(pass_context *c);

#endif
