/* SPDX-License-Identifier: Apache-2.0
 *
 * Specimens: for every row, random nodes that make sense. `tacit ops` finds out with them which
 * element types and kernels a row really has, and the property tests run them by the hundred.
 *
 * A recipe is a line of tokens. Inputs come first, in order:
 *     [?]TYPE SHAPE [!] [VALUES]    ?: may be absent; !: known at compile time; -: absent
 *     TYPE    T (the type asked for), a name as i64, names to choose from as i32|i64, seq (of T),
 *             % (any number type)
 *     SHAPE   [a,b,3]: letters are sizes, small letters may be 0, a product is written 2d or hd,
 *             a sum h+2; * is the shared shape (as an entry: shared leading axes), + one that has
 *             an axis, ~ a shape or leading axes that broadcast with it
 *     VALUES  <n: 0 … n−1, %n: −n … n−1, =n or =(1,a): these, >: positive, @: an axis of +
 * then attributes, .name=VALUE or .?name=VALUE (may be absent), alternatives separated by |: a
 * number, (a,b) a list, of floats where one has a point, [a,b] of words, {a} a size, @ an axis of
 * +, %perm, %type (any), %T, %tensor (of T) or a text; then #n, the number of outputs. Recipes for
 * one row are separated by " || ".
 */
#ifndef OP_SPECIMEN_H
#define OP_SPECIMEN_H

#include "op/op.h"

enum { OP_SPECIMEN_INPUTS = 12 };

typedef struct op_specimen {
    ir_graph *graph; /* the node's outputs are the graph's; not yet sorted or inferred */
    ir_node *node;
    uint32_t n_given;
    const ir_tensor *given[OP_SPECIMEN_INPUTS]; /* one per graph input */
} op_specimen;

/* Makes a graph input for `*t`, which it may replace (a tensor read through a view). */
typedef ir_value *op_specimen_input(void *context, ir_graph *g, const ir_tensor **t);

/* The row's recipe: NULL for rows that need subgraphs or files. */
const char *op_specimen_recipe(const op_def *row);
/* The first opset of its domain that has the operator; 0: not known. */
int32_t op_first_opset(const op_def *row);
/* The same seed gives the same node. `input` may be NULL: plain graph inputs. False: there is no
 * recipe or no memory. That the node can be inferred and run with this type is not promised. */
bool op_specimen_make(arena *memory, const op_def *row, tacit_dtype type, uint64_t seed,
                      op_specimen_input *input, void *context, op_specimen *out);
/* Can some specimen with this type be inferred and evaluated? */
bool op_specimen_runs(const op_def *row, tacit_dtype type);
/* Names every kernel that lowering picks for a few specimens, on every kind of processor. */
typedef void op_specimen_kernel(void *context, const char *kernel);
void op_specimen_kernels(const op_def *row, tacit_dtype type, op_specimen_kernel *visit,
                         void *context);

#endif
