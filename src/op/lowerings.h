/* SPDX-License-Identifier: Apache-2.0
 * The lower and accepts rules that rows name. They live in lower_*.c, apart from the families, so
 * that everything that knows a kernel's arguments is in one place. */
#ifndef OP_LOWERINGS_H
#define OP_LOWERINGS_H

#include "cpu/number.h"
#include "op/lower.h"

/* lower_map.c: element-wise ops on f32, f16, bf16 and bool. */
tacit_status op_lower_map(op_lower *c);
bool op_accepts_map(const ir_node *node, uint32_t in, const op_operand *view);
tacit_status op_lower_elementwise(op_lower *c); /* tacit.Elementwise */
tacit_status op_lower_gated(op_lower *c);
tacit_status op_lower_batch_norm(op_lower *c);
/* Any strides at all, for rules that walk index spaces. */
bool op_accepts_any(const ir_node *node, uint32_t in, const op_operand *view);

/* lower_matmul.c */
tacit_status op_lower_matmul(op_lower *c); /* MatMul and tacit.MatMul */
tacit_status op_lower_gemm(op_lower *c);
/* Cuts a product into tiles of 20 µs or more, about 48 of them where it is large. The cut depends
 * on the shape alone, so results do not depend on how many threads run. */
struct cpu_gemm_args;
void op_lower_cut(struct cpu_gemm_args *g, int64_t batch, cpu_isa isa);
/* How many of the rows of a register tile, `row` floats apart, fall into one L1 set? */
int op_lower_rows_in_set(int64_t row, int64_t height);
bool op_accepts_matmul(const ir_node *node, uint32_t in, const op_operand *view);

/* lower_narrow.c: products with weights in fewer bits */
tacit_status op_lower_narrow(op_lower *c); /* tacit.DequantMatMul */

/* lower_int8.c: products of bytes, and to and from bytes */
tacit_status op_lower_int_matmul(op_lower *c); /* tacit.IntMatMul */
tacit_status op_lower_matmul_integer(op_lower *c);
tacit_status op_lower_qlinear_matmul(op_lower *c);
tacit_status op_lower_dynamic_quantize(op_lower *c);
tacit_status op_lower_quantize(op_lower *c);
tacit_status op_lower_dequantize(op_lower *c);
/* Tiles of a product of bytes m × n × k, of panels of `width` columns and a multiple of `height`
 * rows: 15 µs or more at `rate` products a ns, blocks of rows that fit L2, then panels. */
typedef struct op_byte_cut {
    int64_t tile_rows, tile_panels;
    uint32_t row_tiles, col_tiles;
} op_byte_cut;
op_byte_cut op_lower_cut_bytes(int64_t m, int64_t n, int64_t k, int64_t width, int64_t height,
                               double rate);
struct cpu_qgemm_args;
void op_lower_cut_qgemm(struct cpu_qgemm_args *g, const cpu_features *cpu);

/* lower_int_conv.c: convolutions of bytes */
tacit_status op_lower_int_conv(op_lower *c); /* tacit.IntConv */
tacit_status op_lower_conv_integer(op_lower *c);
tacit_status op_lower_qlinear_conv(op_lower *c);

/* lower_int_images.c: images of bytes with the channels inside */
tacit_status op_lower_inside_conv(op_lower *c); /* tacit.IntConv with `inside` */
tacit_status op_lower_int_add(op_lower *c);     /* tacit.IntAdd */
tacit_status op_lower_int_mul(op_lower *c);     /* tacit.IntMul */
tacit_status op_lower_int_mean(op_lower *c);    /* tacit.IntMean */
tacit_status op_lower_int_max_pool(op_lower *c);

/* lower_move.c */
op_alias_fn op_alias_first;              /* output 0 is input 0 */
tacit_status op_lower_view(op_lower *c); /* any row with an alias rule: copies the view */
bool op_accepts_view(const ir_node *node, uint32_t in, const op_operand *view);
tacit_status op_lower_concat(op_lower *c);
tacit_status op_lower_tile(op_lower *c);
tacit_status op_lower_pad(op_lower *c);
tacit_status op_lower_trilu(op_lower *c);
bool op_accepts_move(const ir_node *node, uint32_t in, const op_operand *view);

/* Thunks that other rules begin with: the output becomes one value (of that input; -1: zero), or
 * the input. */
tacit_status op_lower_fill(op_lower *c, uint32_t size, int value_input);
tacit_status op_lower_copy_whole(op_lower *c, uint32_t input, uint32_t output);

/* lower_index.c */
tacit_status op_lower_gather(op_lower *c);
tacit_status op_lower_gather_elements(op_lower *c);
bool op_accepts_gather_elements(const ir_node *node, uint32_t in, const op_operand *view);
tacit_status op_lower_gather_nd(op_lower *c);
tacit_status op_lower_scatter_elements(op_lower *c);
tacit_status op_lower_scatter_nd(op_lower *c);
tacit_status op_lower_scatter_add(op_lower *c);
tacit_status op_lower_one_hot(op_lower *c);
tacit_status op_lower_max_unpool(op_lower *c);

/* lower_plain.c: element-wise on integers, f64 and moves, behind lower_map.c */
tacit_status op_lower_plain(op_lower *c);
bool op_plain_suits(const ir_node *node);

/* lower_reduce.c */
tacit_status op_lower_reduce(op_lower *c); /* Reduce*, GlobalAveragePool, GlobalMaxPool */
bool op_accepts_reduce(const ir_node *node, uint32_t in, const op_operand *view);

/* lower_argmax.c */
tacit_status op_lower_argmax(op_lower *c); /* ArgMax, ArgMin */
tacit_status op_lower_hardmax(op_lower *c);

/* lower_along.c */
tacit_status op_lower_cumulate(op_lower *c); /* CumSum, CumProd */
tacit_status op_lower_top_k(op_lower *c);
tacit_status op_lower_lrn(op_lower *c);

/* lower_adam.c */
tacit_status op_lower_adam(op_lower *c);

/* lower_window.c */
tacit_status op_lower_conv(op_lower *c); /* Conv and tacit.Conv */
tacit_status op_lower_pool(op_lower *c); /* MaxPool, AveragePool */
tacit_status op_lower_lp_pool(op_lower *c);
tacit_status op_lower_pool_grad(op_lower *c);
/* lower_winograd.c: is this a convolution for it, and then */
struct op_conv;
bool op_winograd_suits(const op_lower *c, const struct op_conv *conv);
tacit_status op_lower_winograd(op_lower *c, const struct op_conv *conv);

/* lower_col2im.c */
tacit_status op_lower_conv_transpose(op_lower *c);
tacit_status op_lower_col2im(op_lower *c);

/* lower_blocked.c: channels in blocks of sixteen */
tacit_status op_lower_block(op_lower *c);
tacit_status op_lower_unblock(op_lower *c);
tacit_status op_lower_blocked_conv(op_lower *c);
tacit_status op_lower_blocked_pool(op_lower *c);
/* lower_blocked_winograd.c: is this a convolution for it, and then */
bool op_blocked_winograd_suits(op_lower *c, const struct op_conv *conv);
tacit_status op_lower_blocked_winograd(op_lower *c, const struct op_conv *conv);

/* lower_rows.c */
tacit_status op_lower_softmax(op_lower *c);
tacit_status op_lower_lp_norm(op_lower *c);
tacit_status op_lower_layer_norm(op_lower *c); /* LayerNormalization, RMSNormalization */
tacit_status op_lower_cast(op_lower *c);       /* Cast, CastLike: integers too */
tacit_status op_lower_norm(op_lower *c);       /* tacit.Norm */

/* lower_attention.c */
tacit_status op_lower_attention(op_lower *c);        /* tacit.Attention */
tacit_status op_lower_cached_attention(op_lower *c); /* tacit.CachedAttention */
bool op_accepts_cached_attention(const ir_node *node, uint32_t in, const op_operand *view);
tacit_status op_lower_grow_cache(op_lower *c); /* tacit.GrowCache */
bool op_accepts_grow_cache(const ir_node *node, uint32_t in, const op_operand *view);
bool op_accepts_attention(const ir_node *node, uint32_t in, const op_operand *view);

/* lower_resize.c */
tacit_status op_lower_resize(op_lower *c); /* Resize, Upsample */

/* lower_sample.c: images read at computed places */
tacit_status op_lower_grid_sample(op_lower *c);
tacit_status op_lower_deform_conv(op_lower *c);
/* Input 0 with the channels of a pixel side by side, at `offset` of the scratch; and such images,
 * or those of input 0 as they are, as the cpu_images at `field` of the newest thunk. */
struct cpu_images;
tacit_status op_lower_turn_images(op_lower *c, int64_t images, struct cpu_images *from,
                                  size_t *offset);
tacit_status op_lower_bind_images(op_lower *c, const struct cpu_images *from, size_t field,
                                  size_t offset);

/* lower_roi.c: regions of images */
tacit_status op_lower_roi_align(op_lower *c);
tacit_status op_lower_max_roi_pool(op_lower *c);

/* lower_rnn.c */
tacit_status op_lower_rnn(op_lower *c); /* RNN, GRU, LSTM */

/* lower_rotary.c */
tacit_status op_lower_rotary(op_lower *c);
bool op_accepts_rotary(const ir_node *node, uint32_t in, const op_operand *view);

/* lower_trees.c */
tacit_status op_lower_trees(op_lower *c); /* TreeEnsemble, -Regressor, -Classifier */

/* --- shared by the rules ---------------------------------------------------------------------- */
/* Is there an input i? −1: none that the op knows. */
static inline bool op_lower_has(const op_lower *c, int64_t i)
{
    return i >= 0 && i < c->node->n_inputs && c->in[i].value;
}
/* The contents of input i where there is one and they are at hand. Or NULL. */
static inline const ir_tensor *op_lower_known(const op_lower *c, int64_t i)
{
    const ir_tensor *t = op_lower_has(c, i) ? c->in[i].constant : NULL;
    return t && t->data ? t : NULL;
}
static inline bool op_lower_wants(const op_lower *c, uint32_t i)
{
    return i < c->node->n_outputs && c->node->outputs[i];
}
/* Is every input there is f32? */
bool op_lower_all_f32(const op_lower *c);
/* Strides of the operand for the axes of `shape`, to which it broadcasts. */
void op_lower_strides(const op_operand *o, const ir_shape *shape, int64_t *strides);
/* Bytes of an element that can be moved alone; 0: packed types, strings. */
uint32_t op_lower_element(tacit_dtype dtype);
/* The type as kernels over C's own types know it; false: none of them. */
bool op_lower_number(tacit_dtype dtype, cpu_number *number);
/* The operand's one value where it is a known f32 scalar. */
bool op_lower_scalar(const op_operand *o, float *value);
uint64_t op_lower_bytes(const op_operand *o);
/* Of all inputs and the first output. */
uint64_t op_lower_all_bytes(const op_lower *c);
/* The activation attributes as a kernel's epilogue has them. */
struct cpu_epilogue;
tacit_status op_lower_epilogue(op_lower *c, struct cpu_epilogue *e);

#endif
