/* SPDX-License-Identifier: Apache-2.0
 * Reverse-mode rules that rows name, by family. Jvp rules follow from these by transposing twice.
 */
#ifndef OP_VJP_H
#define OP_VJP_H

#include "op/diff.h"

/* vjp_elementwise.c */
op_vjp_fn op_vjp_add, op_vjp_sub, op_vjp_mul, op_vjp_div, op_vjp_pow, op_vjp_extremum, op_vjp_sum,
    op_vjp_mean, op_vjp_where, op_vjp_clip, op_vjp_prelu, op_vjp_mod, op_vjp_cast, op_vjp_identity,
    op_vjp_zero;
/* vjp_unary.c: one table of derivatives by op name */
op_vjp_fn op_vjp_unary;
/* vjp_contraction.c */
op_vjp_fn op_vjp_matmul, op_vjp_gemm;
/* vjp_reduce.c */
op_vjp_fn op_vjp_reduce, op_vjp_softmax, op_vjp_log_softmax, op_vjp_cumsum, op_vjp_top_k;
/* vjp_move.c */
op_vjp_fn op_vjp_relabel, op_vjp_transpose, op_vjp_expand, op_vjp_concat, op_vjp_split,
    op_vjp_slice, op_vjp_tile, op_vjp_trilu, op_vjp_gather, op_vjp_gather_elements;
/* vjp_index.c */
op_vjp_fn op_vjp_pad, op_vjp_gather_nd, op_vjp_scatter_elements, op_vjp_scatter_nd;
/* vjp_window.c */
op_vjp_fn op_vjp_conv, op_vjp_conv_transpose, op_vjp_max_pool, op_vjp_average_pool_grad,
    op_vjp_max_pool_grad, op_vjp_average_pool, op_vjp_global_average, op_vjp_batch_norm;
/* vjp_linear.c: maps that are linear in each input */
op_vjp_fn op_vjp_solve, op_vjp_einsum, op_vjp_grouped_matmul, op_vjp_depth_to_space,
    op_vjp_space_to_depth, op_vjp_scatter_add, op_vjp_rotary, op_vjp_fft;
/* vjp_complex.c */
op_vjp_fn op_vjp_complex, op_vjp_real, op_vjp_imag, op_vjp_norm_sq, op_vjp_conj,
    op_vjp_norm_sq_grad;
/* vjp_other.c */
op_vjp_fn op_vjp_cum_prod, op_vjp_lp_norm, op_vjp_fake_quantize, op_vjp_global_max,
    op_vjp_cast_like, op_vjp_dropout, op_vjp_log_mel;
/* vjp_resize.c */
op_vjp_fn op_vjp_resize;
/* function.c */
op_vjp_fn op_vjp_function;
op_jvp_fn op_jvp_function;
/* vjp_select.c */
op_vjp_fn op_vjp_det, op_vjp_one_hot;
op_spell_fn op_spell_compress;
/* spell_sample.c, spell_window.c, spell_signal.c: the op in simpler ones */
op_spell_fn op_spell_grid_sample, op_spell_affine_grid, op_spell_roi_align, op_spell_deform_conv;
op_spell_fn op_spell_lrn, op_spell_lp_pool, op_spell_global_lp_pool, op_spell_im2col,
    op_spell_col2im, op_spell_max_unpool, op_spell_max_roi_pool, op_spell_center_crop_pad,
    op_spell_reverse_sequence, op_spell_upsample, op_spell_tensor_scatter;
op_spell_fn op_spell_dft, op_spell_stft, op_spell_butterfly;
/* splat_grad.c, spell_splat.c */
op_vjp_fn op_vjp_splat_rasterize;
op_spell_fn op_spell_splat_project, op_spell_gaussian_splat;
/* spell_attention.c */
op_spell_fn op_spell_attention, op_spell_flex_attention, op_spell_gqa, op_spell_rotary;
/* spell_nn.c */
op_spell_fn op_spell_causal_conv, op_spell_linear_attention, op_spell_embed, op_spell_moe_route,
    op_spell_dequantize;
/* rnn.c */
op_spell_fn op_spell_rnn;
/* vjp_weights.c: products with packed weights */
op_vjp_fn op_vjp_packed_matmul;
op_spell_fn op_spell_dequant_matmul;
/* vjp_loss.c */
op_vjp_fn op_vjp_nll, op_vjp_cross_entropy;

#endif
