/* SPDX-License-Identifier: Apache-2.0
 * Derivatives of maps that are linear in each of their inputs, and of the linear solve. */
#include <ctype.h>
#include <math.h>
#include <string.h>

#include "op/gguf.h"
#include "op/spell.h"
#include "op/vjp.h"

static ir_value *unsqueeze(op_diff *c, ir_value *x, int64_t axis)
{
    return op_diff2(c, "Unsqueeze", x, op_diff_ints(c, 1, &axis));
}

/* x = A⁻¹b: db = A⁻ᵀg, dA = −db·xᵀ. */
tacit_status op_vjp_solve(op_diff *c)
{
    ir_value *a = c->node->inputs[0], *x = c->node->outputs[0];
    bool vector = x->type.shape.rank < a->type.shape.rank;
    ir_value *db = op_diff2(c, "tacit.Solve", op_diff_swap_last(c, a), c->out_grad[0]);
    c->in_grad[1] = db;
    if (!c->wanted[0])
        return c->status;
    if (vector) {
        db = unsqueeze(c, db, -1);
        x = unsqueeze(c, x, -1);
    }
    c->in_grad[0] = op_diff1(c, "Neg", op_diff2(c, "MatMul", db, op_diff_swap_last(c, x)));
    return c->status;
}

/* --- Einsum ----------------------------------------------------------------------------------- */

enum { TERMS = 16, LETTERS = 52 };

typedef struct equation {
    char in[TERMS][IR_MAX_RANK + 1], out[IR_MAX_RANK + 1];
    uint32_t n;
} equation;

static char letter(int i)
{
    return (char)(i < 26 ? 'a' + i : 'A' + i - 26);
}

/* One term without spaces; an ellipsis becomes the last `dots` of `spare`. */
static bool read_term(const char **text, const char *spare, int dots, char *out)
{
    int n = 0;
    const char *p = *text;
    for (; *p && *p != ',' && *p != '-'; p++) {
        if (isspace((unsigned char)*p))
            continue;
        bool ellipsis = strncmp(p, "...", 3) == 0;
        int count = ellipsis ? dots : 1;
        if (count < 0 || n + count > IR_MAX_RANK)
            return false;
        memcpy(out + n, ellipsis ? spare + IR_MAX_RANK - dots : p, (size_t)count);
        n += count;
        p += ellipsis ? 2 : 0;
    }
    out[n] = '\0';
    *text = p;
    return true;
}

static int count_letters(const char *text)
{
    int n = 0;
    for (; *text && *text != ',' && *text != '-'; text++)
        n += isalpha((unsigned char)*text) != 0;
    return n;
}

/* Letters that occur once over all inputs, in order; spare ones (the ellipsis) first. */
static void implicit_output(equation *e, const char *spare)
{
    int seen[128] = {0}, n = 0;
    for (uint32_t k = 0; k < e->n; k++)
        for (const char *p = e->in[k]; *p; p++)
            seen[(int)*p]++;
    for (int i = 0; i < IR_MAX_RANK; i++)
        if (seen[(int)spare[i]])
            e->out[n++] = spare[i];
    for (int ch = 'A'; ch <= 'z' && n < IR_MAX_RANK; ch++)
        if (seen[ch] == 1 && !strchr(spare, ch))
            e->out[n++] = (char)ch;
    e->out[n] = '\0';
}

static bool read_equation(const ir_node *node, equation *e)
{
    const char *text = ir_attr_string(node, "equation", "");
    char spare[IR_MAX_RANK + 1] = "";
    int found = 0, most = 0;
    for (int i = LETTERS - 1; i >= 0 && found < IR_MAX_RANK; i--)
        if (!strchr(text, letter(i)))
            spare[found++] = letter(i);
    if (found < IR_MAX_RANK || node->n_inputs > TERMS)
        return false;
    e->n = node->n_inputs;
    for (uint32_t k = 0; k < e->n; k++) {
        int dots = node->inputs[k]->type.shape.rank - count_letters(text);
        most = dots > most ? dots : most;
        if (!read_term(&text, spare, dots, e->in[k]))
            return false;
        text += *text == ',';
    }
    if (*text == '-') {
        text += 2;
        return read_term(&text, spare, most, e->out);
    }
    implicit_output(e, spare);
    return true;
}

/* d laid out by the letters `kept` (each once) as operand k has them: letters that only k has are
 * spread out, of a letter that stands twice in k only the diagonal is filled, and what was
 * stretched from size one is summed. */
static ir_value *as_operand(op_diff *c, const equation *e, uint32_t k, ir_value *d,
                            const char *kept)
{
    const ir_shape *shape = &c->node->inputs[k]->type.shape;
    ir_shape aligned = {.rank = shape->rank};
    for (int i = 0; e->in[k][i]; i++) {
        const char *at = strchr(kept, e->in[k][i]);
        bool first = strchr(e->in[k], e->in[k][i]) == e->in[k] + i;
        aligned.dims[i] = at && first && d ? d->type.shape.dims[at - kept] : 1;
    }
    d = op_diff_reshape(c, d, &aligned);
    for (int i = 0; d && e->in[k][i]; i++) {
        const char *first = strchr(e->in[k], e->in[k][i]);
        if (first == e->in[k] + i)
            continue;
        ir_shape eye = {.rank = shape->rank};
        for (int32_t a = 0; a < shape->rank; a++)
            eye.dims[a] = a == i || a == first - e->in[k] ? shape->dims[i] : 1;
        ir_value *units = op_spell_eye(c, d->type.dtype, shape->dims[i]);
        d = op_diff2(c, "Mul", d, op_diff_reshape(c, units, &eye));
    }
    if (!d)
        return NULL;
    for (int32_t i = 0; i < shape->rank; i++) /* sizes of one that were stretched */
        if (shape->dims[i] == 1 && d->type.shape.dims[i] != 1)
            d = op_diff_sum(c, d, 1, (int64_t[]){i}, true);
    return op_diff_expand(c, d, shape);
}

/* The cotangent of operand k: the output's with all other operands, over the letters they share. */
static ir_value *operand_grad(op_diff *c, const equation *e, uint32_t k)
{
    ir_value *in[TERMS];
    char text[(TERMS + 1) * (IR_MAX_RANK + 2)], known[(TERMS + 1) * (IR_MAX_RANK + 1)];
    char kept[IR_MAX_RANK + 1] = "";
    uint32_t n = 0, at = 0;
    in[n++] = c->out_grad[0];
    strcpy(text, e->out);
    strcpy(known, e->out);
    for (uint32_t i = 0; i < e->n; i++)
        if (i != k) {
            in[n++] = c->node->inputs[i];
            strcat(text, ",");
            strcat(text, e->in[i]);
            strcat(known, e->in[i]);
        }
    for (int i = 0; e->in[k][i]; i++)
        if (strchr(known, e->in[k][i]) && !strchr(kept, e->in[k][i])) {
            kept[at++] = e->in[k][i];
            kept[at] = '\0';
        }
    strcat(text, "->");
    strcat(text, kept);
    ir_value *d = op_diff_open(c, "Einsum", n, in);
    if (d && !ir_attr_set_string(c->graph, d->producer, "equation", text)) {
        c->status = error_memory(c->err, "a gradient graph");
        return NULL;
    }
    if (d)
        c->status = op_infer_node(c->graph, d->producer, c->err);
    return c->status == TACIT_OK ? as_operand(c, e, k, d, kept) : NULL;
}

tacit_status op_vjp_einsum(op_diff *c)
{
    equation e = {.n = 0};
    if (!read_equation(c->node, &e))
        return op_diff_fail(c, TACIT_ERR_UNSUPPORTED, "its gradient knows at most 16 operands");
    for (uint32_t k = 0; k < e.n; k++)
        if (c->wanted[k])
            c->in_grad[k] = operand_grad(c, &e, k);
    return c->status;
}

/* --- others ----------------------------------------------------------------------------------- */

/* Packed experts as [E, k, n]: each of them on unit vectors. */
static ir_value *unpacked_experts(op_diff *c)
{
    ir_value *const *in = c->node->inputs;
    int64_t k = in[0]->type.shape.dims[1], n = c->out_grad[0]->type.shape.dims[1];
    const op_gguf_type *t = op_gguf_by_name(ir_attr_string(c->node, "type", NULL));
    int64_t bytes = t ? k / t->elements * t->bytes * n : 0;
    int64_t experts = bytes ? ir_shape_size(&in[1]->type.shape) / bytes : 0, rows = experts * k;
    int64_t *ids = op_spell_scratch(c, (size_t)(rows + 1) * sizeof *ids);
    for (int64_t i = 0; ids && i < rows; i++)
        ids[i] = i / k;
    if (!ids)
        return NULL;
    ir_value *units = op_spell_eye(c, in[0]->type.dtype, k);
    ir_shape all = ir_shape_of(3, (int64_t[]){experts, k, k});
    units = op_spell_shaped(c, op_diff_expand(c, units, &all), 2, (int64_t[]){rows, k});
    ir_value *args[3] = {units, in[1], op_spell_ints(c, 1, &rows, ids)};
    ir_node *node =
        args[0] && args[2] ? op_spell_sibling(c, "GroupedMatMul", "tacit", 3, args, 1) : NULL;
    return node ? op_spell_shaped(c, node->outputs[0], 3, (int64_t[]){experts, k, n}) : NULL;
}

/* dx_i = g_i·W[id_i]ᵀ; dW[e] = Σ over rows with that id of x_i ⊗ g_i. */
tacit_status op_vjp_grouped_matmul(op_diff *c)
{
    ir_value *x = c->node->inputs[0], *w = c->node->inputs[1], *ids = c->node->inputs[2];
    ir_value *g = c->out_grad[0];
    if (ir_attr_find(c->node, "scheme"))
        w = unpacked_experts(c);
    if (!w)
        return c->status;
    if (c->wanted[0])
        c->in_grad[0] = op_diff3(c, "tacit.GroupedMatMul", g, op_diff_swap_last(c, w), ids);
    if (!c->wanted[1])
        return c->status;
    int64_t experts = w->type.shape.dims[0];
    ir_shape column = ir_shape_of(3, (int64_t[]){experts, 1, 1});
    ir_value *list =
        op_diff3(c, "Range", op_diff_scalar(c, TACIT_I64, 0),
                 op_diff_scalar(c, TACIT_I64, (double)experts), op_diff_scalar(c, TACIT_I64, 1));
    ir_value *mine = op_diff2(c, "Equal", op_diff_cast(c, ids, TACIT_I64),
                              op_diff_reshape(c, list, &column)); /* [E, 1, m] */
    ir_value *rows = op_diff2(c, "Mul", op_diff_cast(c, mine, x->type.dtype),
                              op_diff_swap_last(c, x)); /* [E, k, m] */
    c->in_grad[1] = op_diff2(c, "MatMul", rows, g);
    return c->status;
}

/* x as six axes, turned, as `to`. */
static ir_value *rearrange(op_diff *c, ir_value *x, const int64_t split[6], const int64_t perm[6],
                           const ir_shape *to)
{
    ir_shape s = ir_shape_of(6, split);
    return op_diff_reshape(c, op_diff_transpose(c, op_diff_reshape(c, x, &s), perm), to);
}

tacit_status op_vjp_depth_to_space(op_diff *c)
{
    const ir_shape *x = &c->node->inputs[0]->type.shape;
    int64_t b = ir_attr_int(c->node, "blocksize", 1);
    bool crd = strcmp(ir_attr_string(c->node, "mode", "DCR"), "CRD") == 0;
    const int64_t split[6] = {x->dims[0], x->dims[1] / (b * b), x->dims[2], b, x->dims[3], b};
    c->in_grad[0] =
        rearrange(c, c->out_grad[0], split,
                  crd ? (int64_t[]){0, 1, 3, 5, 2, 4} : (int64_t[]){0, 3, 5, 1, 2, 4}, x);
    return c->status;
}

tacit_status op_vjp_space_to_depth(op_diff *c)
{
    const ir_shape *x = &c->node->inputs[0]->type.shape;
    int64_t b = ir_attr_int(c->node, "blocksize", 1);
    const int64_t split[6] = {x->dims[0], b, b, x->dims[1], x->dims[2] / b, x->dims[3] / b};
    c->in_grad[0] = rearrange(c, c->out_grad[0], split, (int64_t[]){0, 3, 4, 1, 5, 2}, x);
    return c->status;
}

tacit_status op_vjp_scatter_add(op_diff *c)
{
    ir_shape line = ir_shape_of(1, (int64_t[]){ir_shape_size(&c->node->inputs[1]->type.shape)});
    ir_value *ids = op_diff_cast(c, c->node->inputs[1], TACIT_I64);
    ids = op_diff_reshape(c, ids, &line);
    ir_value *d = op_diff_open(c, "Gather", 2, (ir_value *[]){c->out_grad[0], ids});
    c->in_grad[0] = op_diff_attr_int(c, d, "axis", ir_attr_int(c->node, "axis", 0));
    return c->status;
}

/* The transpose of a rotation turns the other way. */
tacit_status op_vjp_rotary(op_diff *c)
{
    const ir_node *n = c->node;
    if (c->wanted[1] || c->wanted[2])
        return op_diff_fail(c, TACIT_ERR_UNSUPPORTED, "the tables have no gradient rule");
    ir_value *in[4] = {c->out_grad[0], n->inputs[1], op_diff1(c, "Neg", n->inputs[2]),
                       n->n_inputs > 3 ? n->inputs[3] : NULL};
    if (!in[2])
        return c->status;
    ir_node *back = ir_node_new(c->graph, "RotaryEmbedding", "", NULL, n->n_inputs, in, 1, NULL);
    if (!back || !ir_attr_copy_all(c->graph, back, n))
        return c->status = error_memory(c->err, "a gradient graph");
    op_resolve(NULL, back);
    c->status = op_infer_node(c->graph, back, c->err);
    c->in_grad[0] = back->outputs[0];
    return c->status;
}

/* The adjoint is the transform the other way, unscaled, times this one's factor. */
tacit_status op_vjp_fft(op_diff *c)
{
    const ir_type *x = &c->node->inputs[0]->type;
    bool inverse = ir_attr_int(c->node, "inverse", 0) != 0, real = ir_dtype_is_float(x->dtype);
    const char *norm = ir_attr_string(c->node, "norm", "backward");
    double n = (double)x->shape.dims[x->shape.rank - 1] / (real ? 2 : 1), scale = 1;
    if (strcmp(norm, "ortho") == 0)
        scale = 1 / sqrt(n);
    else if (strcmp(norm, inverse ? "backward" : "forward") == 0)
        scale = 1 / n;
    ir_value *d = op_diff_open(c, "tacit.Fft", 1, c->out_grad);
    if (d && !ir_attr_set_string(c->graph, d->producer, "norm", "none"))
        return c->status = error_memory(c->err, "a gradient graph");
    d = op_diff_attr_int(c, d, "inverse", !inverse);
    c->in_grad[0] = scale == 1 ? d : op_diff_scale(c, d, scale);
    return c->status;
}
