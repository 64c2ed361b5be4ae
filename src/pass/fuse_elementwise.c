/* SPDX-License-Identifier: Apache-2.0
 * Element-wise ops that feed each other become one tacit.Elementwise program. A region grows from
 * its last node backwards and takes in a producer once all of its readers are inside, so it has
 * one result and every value it swallows is read inside only. */
#include <math.h>

#include "op/fused_elementwise.h"
#include "pass/edit.h"

enum { REGION_MOST = 24 }; /* nodes; keeps programs inside their limits */

/* A node as a program step. Operands past its inputs are parameters that ONNX has as attributes. */
typedef struct step_of {
    op_elementwise_op op;
    uint32_t n_inputs, n_parameters;
    double parameters[2];
} step_of;

static const struct {
    pass_op from;
    op_elementwise_op to;
} plain[] = {
    {PASS_ADD, OP_ELEMENTWISE_ADD},
    {PASS_SUB, OP_ELEMENTWISE_SUB},
    {PASS_MUL, OP_ELEMENTWISE_MUL},
    {PASS_DIV, OP_ELEMENTWISE_DIV},
    {PASS_POW, OP_ELEMENTWISE_POW},
    {PASS_MIN, OP_ELEMENTWISE_MIN},
    {PASS_MAX, OP_ELEMENTWISE_MAX},
    {PASS_LESS, OP_ELEMENTWISE_LESS},
    {PASS_LESS_EQUAL, OP_ELEMENTWISE_LESS_EQUAL},
    {PASS_GREATER, OP_ELEMENTWISE_GREATER},
    {PASS_GREATER_EQUAL, OP_ELEMENTWISE_GREATER_EQUAL},
    {PASS_EQUAL, OP_ELEMENTWISE_EQUAL},
    {PASS_AND, OP_ELEMENTWISE_AND},
    {PASS_OR, OP_ELEMENTWISE_OR},
    {PASS_XOR, OP_ELEMENTWISE_XOR},
    {PASS_NOT, OP_ELEMENTWISE_NOT},
    {PASS_WHERE, OP_ELEMENTWISE_WHERE},
    {PASS_ABS, OP_ELEMENTWISE_ABS},
    {PASS_NEG, OP_ELEMENTWISE_NEG},
    {PASS_EXP, OP_ELEMENTWISE_EXP},
    {PASS_LOG, OP_ELEMENTWISE_LOG},
    {PASS_SQRT, OP_ELEMENTWISE_SQRT},
    {PASS_RECIPROCAL, OP_ELEMENTWISE_RECIPROCAL},
    {PASS_TANH, OP_ELEMENTWISE_TANH},
    {PASS_SIGMOID, OP_ELEMENTWISE_SIGMOID},
    {PASS_RELU, OP_ELEMENTWISE_RELU},
    {PASS_ERF, OP_ELEMENTWISE_ERF},
    {PASS_FLOOR, OP_ELEMENTWISE_FLOOR},
    {PASS_CEIL, OP_ELEMENTWISE_CEIL},
    {PASS_ROUND, OP_ELEMENTWISE_ROUND},
    {PASS_SIGN, OP_ELEMENTWISE_SIGN},
    {PASS_SIN, OP_ELEMENTWISE_SIN},
    {PASS_COS, OP_ELEMENTWISE_COS},
    {PASS_TAN, OP_ELEMENTWISE_TAN},
    {PASS_ASIN, OP_ELEMENTWISE_ASIN},
    {PASS_ACOS, OP_ELEMENTWISE_ACOS},
    {PASS_ATAN, OP_ELEMENTWISE_ATAN},
    {PASS_SINH, OP_ELEMENTWISE_SINH},
    {PASS_COSH, OP_ELEMENTWISE_COSH},
    {PASS_ASINH, OP_ELEMENTWISE_ASINH},
    {PASS_ACOSH, OP_ELEMENTWISE_ACOSH},
    {PASS_ATANH, OP_ELEMENTWISE_ATANH},
    {PASS_SOFTPLUS, OP_ELEMENTWISE_SOFTPLUS},
    {PASS_SOFTSIGN, OP_ELEMENTWISE_SOFTSIGN},
    {PASS_HARD_SWISH, OP_ELEMENTWISE_HARD_SWISH},
};

static bool fits_type(const ir_value *v)
{
    return pass_static(v) && (v->type.dtype == TACIT_F32 || v->type.dtype == TACIT_BOOL);
}

/* Ops with parameters. */
static bool parametric_step(const pass_edit *e, const ir_node *n, step_of *s)
{
    s->n_inputs = 1;
    s->parameters[0] = ir_attr_float(n, "alpha", 1);
    s->n_parameters = 1;
    if (pass_is(e, n, PASS_LEAKY_RELU)) {
        s->op = OP_ELEMENTWISE_LEAKY_RELU;
        s->parameters[0] = ir_attr_float(n, "alpha", 0.01);
    } else if (pass_is(e, n, PASS_ELU)) {
        s->op = OP_ELEMENTWISE_ELU;
    } else if (pass_is(e, n, PASS_CELU)) {
        s->op = OP_ELEMENTWISE_CELU;
        return s->parameters[0] > 0;
    } else if (pass_is(e, n, PASS_SWISH)) {
        s->op = OP_ELEMENTWISE_SWISH;
    } else if (pass_is(e, n, PASS_HARD_SIGMOID)) {
        s->op = OP_ELEMENTWISE_HARD_SIGMOID;
        s->parameters[0] = ir_attr_float(n, "alpha", 0.2);
        s->parameters[1] = ir_attr_float(n, "beta", 0.5);
        s->n_parameters = 2;
    } else if (pass_is(e, n, PASS_CLIP)) {
        s->op = OP_ELEMENTWISE_CLIP;
        s->parameters[0] = -INFINITY;
        s->parameters[1] = INFINITY;
        s->n_parameters = 2;
        for (uint32_t k = 1; k < n->n_inputs; k++)
            if (n->inputs[k] && !pass_scalar(n->inputs[k], &s->parameters[k - 1]))
                return false;
    } else {
        return false;
    }
    return true;
}

/* Can `n` be a step? Everything it touches is f32 or bool. */
static bool read_step(const pass_edit *e, const ir_node *n, step_of *s)
{
    *s = (step_of){0};
    if (!n || !n->type || !n->op || n->n_outputs != 1 || !fits_type(n->outputs[0]))
        return false;
    for (uint32_t k = 0; k < n->n_inputs; k++)
        if (n->inputs[k] && !fits_type(n->inputs[k]))
            return false;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (pass_is(e, n, plain[i].from)) {
            s->op = plain[i].to;
            s->n_inputs = op_elementwise_operands(s->op);
            /* Where of truths would need a truth as its result. */
            return n->n_inputs == s->n_inputs &&
                   (n->outputs[0]->type.dtype == TACIT_BOOL) == op_elementwise_is_truth(s->op);
        }
    if (pass_is(e, n, PASS_GELU)) {
        bool approximate = strcmp(ir_attr_string(n, "approximate", "none"), "tanh") == 0;
        s->op = approximate ? OP_ELEMENTWISE_GELU_TANH : OP_ELEMENTWISE_GELU;
        s->n_inputs = 1;
        return true;
    }
    if (pass_is(e, n, PASS_CAST)) {
        bool truth = n->outputs[0]->type.dtype == TACIT_BOOL;
        s->op = truth ? OP_ELEMENTWISE_TRUTH : OP_ELEMENTWISE_FLOAT;
        s->n_inputs = 1;
        return true;
    }
    return parametric_step(e, n, s);
}

/* --- growing ---------------------------------------------------------------------------------- */
static bool all_readers_inside(const pass_edit *e, const ir_value *v, const pass_set *s)
{
    for (const pass_use *u = pass_first_use(e, v); u; u = pass_next_use(e, u))
        if (!u->node || !pass_set_has(s, u->node))
            return false;
    return true;
}

/* Values from outside, each once; scalars that are known become constants of the program. */
typedef struct operands {
    ir_value *inputs[OP_ELEMENTWISE_INPUTS + 1];
    uint32_t n_inputs;
} operands;

static bool is_constant(const ir_value *v)
{
    double unused;
    return pass_scalar(v, &unused);
}

static bool collect_inputs(const pass_edit *e, const pass_set *s, operands *o)
{
    o->n_inputs = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        step_of step;
        if (!read_step(e, s->nodes[i], &step))
            return false;
        for (uint32_t k = 0; k < step.n_inputs; k++) {
            ir_value *v = s->nodes[i]->inputs[k];
            bool known = pass_set_has(s, v->producer) || is_constant(v);
            for (uint32_t j = 0; !known && j < o->n_inputs; j++)
                known = o->inputs[j] == v;
            if (known)
                continue;
            if (o->n_inputs == OP_ELEMENTWISE_INPUTS)
                return false;
            o->inputs[o->n_inputs++] = v;
        }
    }
    return true;
}

static void grow(const pass_edit *e, ir_node *root, pass_set *s)
{
    *s = (pass_set){.nodes = {root}, .count = 1};
    for (bool more = true; more;) {
        more = false;
        for (uint32_t i = 0; i < s->count; i++)
            for (uint32_t k = 0; k < s->nodes[i]->n_inputs && s->count < REGION_MOST; k++) {
                const ir_value *v = s->nodes[i]->inputs[k];
                step_of step;
                operands o;
                if (!v || !v->producer || pass_set_has(s, v->producer) ||
                    !pass_same_shape(v, root->outputs[0]) || !all_readers_inside(e, v, s) ||
                    !read_step(e, v->producer, &step))
                    continue;
                pass_set_add(s, v->producer);
                if (collect_inputs(e, s, &o))
                    more = true;
                else
                    s->count--;
            }
    }
}

/* --- writing the program -----------------------------------------------------------------------
 */
typedef struct writer {
    const pass_edit *e;
    const pass_set *s;
    operands o;
    int64_t program[OP_ELEMENTWISE_STEPS * OP_ELEMENTWISE_STEP];
    uint32_t n_steps;
    double constants[OP_ELEMENTWISE_CONSTANTS];
    uint32_t n_constants;
    int8_t reg[PASS_SET_MOST];       /* register of each node of the set, -1: none yet */
    uint32_t readers[PASS_SET_MOST]; /* readings of each node's result still to come */
    uint32_t busy;                   /* registers in use, as bits */
} writer;

static int64_t constant(writer *w, double x)
{
    for (uint32_t i = 0; i < w->n_constants; i++)
        /* NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): -0 is another constant than 0 */
        if (memcmp(&w->constants[i], &x, sizeof x) == 0)
            return OP_ELEMENTWISE_CONSTANT + i;
    if (w->n_constants == OP_ELEMENTWISE_CONSTANTS)
        return -1;
    w->constants[w->n_constants] = x;
    return OP_ELEMENTWISE_CONSTANT + w->n_constants++;
}

static uint32_t index_of(const pass_set *s, const ir_node *n)
{
    for (uint32_t i = 0; i < s->count; i++)
        if (s->nodes[i] == n)
            return i;
    return PASS_NONE;
}

/* The operand for `v`; its producer inside the region has been written by then. */
static int64_t operand(writer *w, const ir_value *v)
{
    double x;
    uint32_t inside = index_of(w->s, v->producer);
    if (inside != PASS_NONE) {
        int64_t r = w->reg[inside]; /* NOLINT(bugprone-signed-char-misuse): a small number */
        if (--w->readers[inside] == 0)
            w->busy &= ~(1u << r);
        return r;
    }
    if (pass_scalar(v, &x))
        return constant(w, x);
    for (uint32_t i = 0; i < w->o.n_inputs; i++)
        if (w->o.inputs[i] == v)
            return OP_ELEMENTWISE_INPUT + i;
    return -1;
}

static bool emit(writer *w, uint32_t index)
{
    step_of step;
    const ir_node *n = w->s->nodes[index];
    if (w->n_steps == OP_ELEMENTWISE_STEPS || !read_step(w->e, n, &step))
        return false;
    int64_t *p = w->program + (size_t)w->n_steps * OP_ELEMENTWISE_STEP;
    p[0] = step.op;
    for (uint32_t k = 0; k < step.n_inputs; k++)
        if ((p[2 + k] = operand(w, n->inputs[k])) < 0)
            return false;
    for (uint32_t k = 0; k < step.n_parameters; k++)
        if ((p[2 + step.n_inputs + k] = constant(w, step.parameters[k])) < 0)
            return false;
    int32_t r = 0;
    while (r < OP_ELEMENTWISE_REGISTERS && w->busy >> r & 1)
        r++;
    if (r == OP_ELEMENTWISE_REGISTERS)
        return false;
    w->busy |= 1u << r;
    w->reg[index] = (int8_t)r;
    p[1] = r;
    w->n_steps++;
    return true;
}

/* Depth first: operands before the node. Regions are small, so the recursion is shallow. */
static bool emit_tree(writer *w, uint32_t index)
{
    if (w->reg[index] >= 0)
        return true;
    const ir_node *n = w->s->nodes[index];
    for (uint32_t k = 0; k < n->n_inputs; k++) {
        uint32_t inside = n->inputs[k] ? index_of(w->s, n->inputs[k]->producer) : PASS_NONE;
        if (inside != PASS_NONE && !emit_tree(w, inside))
            return false;
    }
    return emit(w, index);
}

static bool write_program(const pass_edit *e, const pass_set *s, writer *w)
{
    *w = (writer){.e = e, .s = s};
    memset(w->reg, -1, sizeof w->reg);
    for (uint32_t i = 0; i < s->count; i++)
        w->readers[i] = pass_uses(e, s->nodes[i]->outputs[0]);
    return collect_inputs(e, s, &w->o) && w->o.n_inputs > 0 && emit_tree(w, 0);
}

static tacit_status fuse(pass_edit *e, ir_node *root)
{
    step_of step;
    pass_set s;
    writer w;
    if (!read_step(e, root, &step))
        return TACIT_OK;
    grow(e, root, &s);
    while (s.count > 1 && !write_program(e, &s, &w))
        s.count--; /* the last one taken in has no reader left out */
    if (s.count < 2)
        return TACIT_OK;
    pass_fusion f = {.op = PASS_T_ELEMENTWISE, .root = root, .nodes = s, .n_outputs = 1};
    f.n_inputs = w.o.n_inputs;
    memcpy(f.inputs, w.o.inputs, w.o.n_inputs * sizeof *f.inputs);
    f.outputs[0] = root->outputs[0];
    pass_fusion_ints(&f, "program", w.n_steps * OP_ELEMENTWISE_STEP, w.program);
    pass_fusion_floats(&f, "constants", w.n_constants, w.constants);
    return pass_fuse(e, &f);
}

tacit_status pass_fuse_elementwise(pass_context *c)
{
    pass_edit e;
    TRY(pass_edit_begin(&e, c));
    for (uint32_t i = c->graph->nodes.count; i-- > 0;)
        TRY(fuse(&e, c->graph->nodes.data[i]));
    return TACIT_OK;
}
