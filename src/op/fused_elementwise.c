/* SPDX-License-Identifier: Apache-2.0
 * tacit.Elementwise: reading its program, the reference evaluator, and back to ONNX ops. */
#include "op/fused_elementwise.h"

#include <math.h>

#include "op/loop.h"
#include "op/lowerings.h"

enum { F, B };

static const struct {
    const char *onnx;
    uint8_t operands, kind;
} rows[OP_ELEMENTWISE_COUNT] = {
#define ROW(id, onnx, operands, kind, meaning) {onnx, operands, kind},
    OP_ELEMENTWISE_MAP(ROW)
#undef ROW
};

uint32_t op_elementwise_operands(op_elementwise_op op)
{
    return rows[op].operands;
}

bool op_elementwise_is_truth(op_elementwise_op op)
{
    return rows[op].kind == B;
}

const char *op_elementwise_onnx(op_elementwise_op op)
{
    return rows[op].onnx;
}

/* Is operand `x` something this program has by now? */
static bool operand_ok(const op_elementwise_program *p, int64_t x, uint32_t n_inputs,
                       uint32_t written)
{
    if (x >= OP_ELEMENTWISE_CONSTANT)
        return x < OP_ELEMENTWISE_CONSTANT + (int64_t)p->n_constants;
    if (x >= OP_ELEMENTWISE_INPUT)
        return x < OP_ELEMENTWISE_INPUT + (int64_t)n_inputs;
    return x >= 0 && x < OP_ELEMENTWISE_REGISTERS && (written >> x & 1);
}

/* Parameters (alpha, …) are attributes in ONNX, so operands past the first must be constants. */
static bool has_parameters(uint32_t op)
{
    return op == OP_ELEMENTWISE_HARD_SIGMOID || op == OP_ELEMENTWISE_LEAKY_RELU ||
           op == OP_ELEMENTWISE_ELU || op == OP_ELEMENTWISE_SWISH;
}

static tacit_status read_steps(const ir_node *node, const int64_t *program,
                               op_elementwise_program *out, tacit_error *err)
{
    uint32_t written = 0;
    for (uint32_t i = 0; i < out->n_steps; i++) {
        const int64_t *s = program + (size_t)i * OP_ELEMENTWISE_STEP;
        if (s[0] < 0 || s[0] >= OP_ELEMENTWISE_COUNT || s[1] < 0 ||
            s[1] >= OP_ELEMENTWISE_REGISTERS)
            return error_set(err, TACIT_ERR_GRAPH, "step %u of the program is malformed", i);
        op_elementwise_step *step = &out->steps[i];
        *step = (op_elementwise_step){.op = (uint16_t)s[0], .dst = (uint16_t)s[1]};
        for (uint32_t k = 0; k < rows[s[0]].operands; k++) {
            bool parameter = k > 0 && has_parameters((uint32_t)s[0]);
            if (!operand_ok(out, s[2 + k], node->n_inputs, written) ||
                (parameter && s[2 + k] < OP_ELEMENTWISE_CONSTANT))
                return error_set(err, TACIT_ERR_GRAPH,
                                 "step %u of the program reads operand %lld, which it has not", i,
                                 (long long)s[2 + k]);
            step->in[k] = (uint16_t)s[2 + k];
        }
        written |= 1u << s[1];
        if (step->dst >= out->n_registers)
            out->n_registers = step->dst + 1u;
        out->truth = rows[s[0]].kind == B;
    }
    return TACIT_OK;
}

tacit_status op_elementwise_read(const ir_node *node, op_elementwise_program *out, tacit_error *err)
{
    *out = (op_elementwise_program){0};
    uint32_t n, n_constants;
    const int64_t *program = ir_attr_ints(node, "program", &n);
    const double *constants = ir_attr_floats(node, "constants", &n_constants);
    if (!program || n == 0 || n % OP_ELEMENTWISE_STEP ||
        n / OP_ELEMENTWISE_STEP > OP_ELEMENTWISE_STEPS || n_constants > OP_ELEMENTWISE_CONSTANTS ||
        node->n_inputs > OP_ELEMENTWISE_INPUTS)
        return error_set(err, TACIT_ERR_GRAPH, "the program is missing or too long");
    out->n_steps = n / OP_ELEMENTWISE_STEP;
    out->n_constants = n_constants;
    for (uint32_t i = 0; i < n_constants; i++)
        out->constants[i] = (float)constants[i];
    return read_steps(node, program, out, err);
}

static tacit_status elementwise_infer(op_infer *c)
{
    op_elementwise_program p;
    TRY(op_elementwise_read(c->node, &p, c->err));
    ir_shape shape = {.rank = 0};
    for (uint32_t i = 0; i < c->n_in; i++) {
        if (!c->in[i])
            return error_set(c->err, TACIT_ERR_GRAPH, "input %u is missing", i);
        if (c->in[i]->dtype != TACIT_F32 && c->in[i]->dtype != TACIT_BOOL)
            return error_set(c->err, TACIT_ERR_TYPE, "input %u is %s, expected f32 or bool", i,
                             tacit_dtype_text(c->in[i]->dtype));
        TRY(ir_shape_broadcast(&shape, &c->in[i]->shape, &shape, c->err));
    }
    c->out[0] = ir_type_tensor(p.truth ? TACIT_BOOL : TACIT_F32, shape.rank, shape.dims);
    return TACIT_OK;
}

static float apply(op_elementwise_op op, double a, double b, double c)
{
    switch (op) {
#define CASE(id, onnx, operands, kind, meaning)                                                    \
    case OP_ELEMENTWISE_##id:                                                                      \
        return (float)(meaning);
        OP_ELEMENTWISE_MAP(CASE)
#undef CASE
    default:
        return NAN;
    }
}

/* One element through all steps; `x` holds the inputs there. */
static float run_program(const op_elementwise_program *p, const float *x)
{
    float registers[OP_ELEMENTWISE_REGISTERS] = {0};
    for (uint32_t i = 0; i < p->n_steps; i++) {
        const op_elementwise_step *s = &p->steps[i];
        double in[3] = {0};
        for (uint32_t k = 0; k < rows[s->op].operands; k++)
            in[k] = s->in[k] >= OP_ELEMENTWISE_CONSTANT
                        ? p->constants[s->in[k] - OP_ELEMENTWISE_CONSTANT]
                    : s->in[k] >= OP_ELEMENTWISE_INPUT ? x[s->in[k] - OP_ELEMENTWISE_INPUT]
                                                       : registers[s->in[k]];
        registers[s->dst] = apply((op_elementwise_op)s->op, in[0], in[1], in[2]);
    }
    return registers[p->steps[p->n_steps - 1].dst];
}

static tacit_status elementwise_eval(op_eval *c)
{
    op_elementwise_program p;
    TRY(op_elementwise_read(c->node, &p, c->err));
    ir_tensor *y = op_out(c, 0);
    op_loop l;
    op_loop_begin(&l, &y->shape);
    for (uint32_t k = 0; k < c->n_in; k++)
        op_loop_broadcast(&l, &c->in[k]->shape);
    for (; !op_loop_done(&l); op_loop_next(&l)) {
        float x[OP_ELEMENTWISE_INPUTS];
        for (uint32_t k = 0; k < c->n_in; k++)
            x[k] = (float)ir_load_f64(c->in[k]->dtype, c->in[k]->data, l.at[k]);
        ir_store_f64(y->dtype, y->data, l.linear, run_program(&p, x));
    }
    return TACIT_OK;
}

/* --- back to ONNX ops --------------------------------------------------------------------------
 */
typedef struct unfold {
    ir_graph *g;
    const ir_node *node;
    const op_elementwise_program *p;
    ir_value *registers[OP_ELEMENTWISE_REGISTERS];
} unfold;

static ir_value *operand(unfold *u, uint32_t x)
{
    if (x >= OP_ELEMENTWISE_CONSTANT)
        return ir_constant_f32(u->g, NULL, u->p->constants[x - OP_ELEMENTWISE_CONSTANT]);
    return x >= OP_ELEMENTWISE_INPUT ? u->node->inputs[x - OP_ELEMENTWISE_INPUT] : u->registers[x];
}

/* The attributes that stand for operands b and c in ONNX. */
static bool set_parameters(unfold *u, const op_elementwise_step *s, ir_node *n)
{
    const float *k = u->p->constants;
    switch (s->op) {
    case OP_ELEMENTWISE_HARD_SIGMOID:
        return ir_attr_set_float(u->g, n, "alpha", k[s->in[1] - OP_ELEMENTWISE_CONSTANT]) &&
               ir_attr_set_float(u->g, n, "beta", k[s->in[2] - OP_ELEMENTWISE_CONSTANT]);
    case OP_ELEMENTWISE_LEAKY_RELU:
    case OP_ELEMENTWISE_ELU:
    case OP_ELEMENTWISE_SWISH:
        return ir_attr_set_float(u->g, n, "alpha", k[s->in[1] - OP_ELEMENTWISE_CONSTANT]);
    case OP_ELEMENTWISE_GELU_TANH:
        return ir_attr_set_string(u->g, n, "approximate", "tanh");
    case OP_ELEMENTWISE_FLOAT:
    case OP_ELEMENTWISE_TRUTH:
        return ir_attr_set_int(
            u->g, n, "to",
            ir_dtype_to_onnx(s->op == OP_ELEMENTWISE_FLOAT ? TACIT_F32 : TACIT_BOOL));
    default:
        return true;
    }
}

static uint32_t inputs_in_onnx(const op_elementwise_step *s)
{
    return has_parameters(s->op) ? 1 : rows[s->op].operands;
}

static tacit_status elementwise_decompose(ir_graph *g, ir_node *node, tacit_error *err)
{
    op_elementwise_program p;
    TRY(op_elementwise_read(node, &p, err));
    unfold u = {.g = g, .node = node, .p = &p};
    ir_value *last = NULL;
    for (uint32_t i = 0; i < p.n_steps; i++) {
        const op_elementwise_step *s = &p.steps[i];
        ir_value *in[3] = {NULL};
        uint32_t count = inputs_in_onnx(s);
        for (uint32_t k = 0; k < count; k++)
            if (!(in[k] = operand(&u, s->in[k])))
                return error_memory(err, "decomposing a fused chain");
        ir_node *n = op_node(g, rows[s->op].onnx, node->name, count, in);
        if (!n || !set_parameters(&u, s, n))
            return error_memory(err, "decomposing a fused chain");
        last = u.registers[s->dst] = n->outputs[0];
    }
    ir_replace_uses(g, node->outputs[0], last);
    ir_node_kill(node);
    return TACIT_OK;
}

const op_def op_rows_fused_elementwise[] = {
    {.name = "Elementwise",
     .domain = "tacit",
     .min_in = 1,
     .max_in = OP_ELEMENTWISE_INPUTS,
     .min_out = 1,
     .max_out = 1,
     .flags = OP_ELEMENTWISE,
     .infer = elementwise_infer,
     .eval = elementwise_eval,
     .inplace = (1u << OP_ELEMENTWISE_INPUTS) - 1,
     .decompose = elementwise_decompose,
     .lower = op_lower_elementwise,
     .accepts = op_accepts_any},
    {0},
};
