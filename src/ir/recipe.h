/* SPDX-License-Identifier: Apache-2.0
 * Constants that are derived from others and made late: a weight that will be packed is needed only
 * piece by piece, so it never lies in memory whole. Until somebody makes it, such a tensor has no
 * data: to all who do not know of recipes its contents are unknown. */
#ifndef IR_RECIPE_H
#define IR_RECIPE_H

#include "ir/tensor.h"

/* Sources of f16 or bf16 are widened where an f32 is made. */
typedef enum ir_recipe_kind {
    IR_SCALED, /* every row of one tensor times a factor of its own */
    IR_JOINED, /* rows side by side: row r is row r of every source, one after another */
} ir_recipe_kind;

struct ir_recipe {
    ir_recipe_kind kind;
    arena *memory; /* where it is made whole when it must be */
    uint32_t count;
    const ir_tensor **from;
    tacit_dtype dtype; /* of what is made; TACIT_DTYPE_NONE: that of the sources */
    int64_t rows;
    const double *scale; /* IR_SCALED: by row */
};

/* A tensor without data, of which `recipe` (copied, with its lists) tells the contents. NULL when
 * out of memory. */
ir_tensor *ir_tensor_late(arena *a, const ir_shape *shape, const ir_recipe *recipe);
static inline bool ir_tensor_is_late(const ir_tensor *t)
{
    return t && t->recipe && !t->data;
}
/* What a late tensor only widens; itself where it does more, or is not late. */
const ir_tensor *ir_recipe_source(const ir_tensor *t);
/* Makes all of it. What it was made from may be gone afterwards. */
tacit_status ir_tensor_make(const ir_tensor *t, tacit_error *err);
/* Bytes [first, first + bytes) of a late tensor, whole elements. */
void ir_recipe_fill(const ir_tensor *t, size_t first, size_t bytes, void *to);
/* The same of a tensor that may be late. */
void ir_tensor_part(const ir_tensor *t, size_t first, size_t bytes, void *to);
/* Calls `visit` for the parts of the sources that [first, first + bytes) is made from. */
void ir_recipe_sources(const ir_tensor *t, size_t first, size_t bytes,
                       void (*visit)(void *context, const void *data, size_t bytes), void *context);

#endif
