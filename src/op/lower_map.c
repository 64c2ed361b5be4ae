/* SPDX-License-Identifier: Apache-2.0
 * Element-wise ops become programs of strip operations (cpu/map.h): one step for a plain op, as
 * many as it takes for the others. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cpu/map.h"
#include "op/activation.h"
#include "op/fused_elementwise.h"
#include "op/lowerings.h"

enum { MAP_STEPS = OP_ELEMENTWISE_STEPS };

/* A program under construction. */
typedef struct map_plan {
    uint32_t inputs, n_steps, n_constants;
    uint8_t input[CPU_MAP_INPUTS]; /* which node input it is, or MAP_PACKED */
    const float *packed[CPU_MAP_INPUTS];
    cpu_store store[CPU_MAP_INPUTS];
    int64_t strides[CPU_MAP_INPUTS][IR_MAX_RANK];
    struct {
        cpu_strip_op op;
        uint8_t dst, operands;
        uint16_t in[3];
    } steps[MAP_STEPS];
    float constants[CPU_MAP_CONSTANTS];
    bool costly;
} map_plan;

enum { MAP_PACKED = 255 };

static const uint8_t strip_operands[CPU_STRIP_COUNT] = {
#define ROW(id, operands, value) [CPU_STRIP_##id] = operands,
    CPU_STRIP_MAP(ROW)
#undef ROW
        [CPU_STRIP_POW] = 2,
};

static bool is_costly(cpu_strip_op op)
{
    switch (op) {
    case CPU_STRIP_EXP:
    case CPU_STRIP_LOG:
    case CPU_STRIP_TANH:
    case CPU_STRIP_SIGMOID:
    case CPU_STRIP_ERF:
    case CPU_STRIP_SOFTPLUS:
    case CPU_STRIP_ELU:
    case CPU_STRIP_GELU:
    case CPU_STRIP_GELU_TANH:
    case CPU_STRIP_SILU:
    case CPU_STRIP_SWISH:
    case CPU_STRIP_POW:
    case CPU_STRIP_SIN:
    case CPU_STRIP_COS:
    case CPU_STRIP_TAN:
    case CPU_STRIP_ASIN:
    case CPU_STRIP_ACOS:
    case CPU_STRIP_ATAN:
    case CPU_STRIP_SINH:
    case CPU_STRIP_COSH:
    case CPU_STRIP_ASINH:
    case CPU_STRIP_ACOSH:
    case CPU_STRIP_ATANH:
    case CPU_STRIP_CELU:
        return true;
    default:
        return false;
    }
}

/* How the dtype is stored; -1 where the strips do not know it. */
static int store_of(tacit_dtype dtype)
{
    switch (dtype) {
    case TACIT_F32:
        return CPU_STORE_F32;
    case TACIT_F16:
        return CPU_STORE_F16;
    case TACIT_BF16:
        return CPU_STORE_BF16;
    case TACIT_BOOL:
        return CPU_STORE_BOOL;
    default:
        return -1;
    }
}

static uint16_t add_constant(map_plan *m, float value)
{
    m->constants[m->n_constants] = value;
    return (uint16_t)(CPU_MAP_CONSTANT + m->n_constants++);
}

static uint16_t add_input(op_lower *c, map_plan *m, uint32_t i)
{
    m->input[m->inputs] = (uint8_t)i;
    m->store[m->inputs] = (cpu_store)store_of(c->in[i].type.dtype);
    op_lower_strides(&c->in[i], &c->out[0].type.shape, m->strides[m->inputs]);
    return (uint16_t)(CPU_MAP_INPUT + m->inputs++);
}

static void add_step(map_plan *m, cpu_strip_op op, uint8_t dst, uint16_t a, uint16_t b, uint16_t d)
{
    m->steps[m->n_steps].op = op;
    m->steps[m->n_steps].dst = dst;
    m->steps[m->n_steps].operands = strip_operands[op];
    m->steps[m->n_steps].in[0] = a;
    m->steps[m->n_steps].in[1] = b;
    m->steps[m->n_steps].in[2] = d;
    m->n_steps++;
    m->costly |= is_costly(op);
}

/* Say which bytes tile t touches of a dense operand, where tiles are runs of elements. */
static tacit_status bind_input(op_lower *c, const map_plan *m, uint32_t k, size_t field,
                               const cpu_nd *nd)
{
    static const uint8_t bytes[] = {4, 2, 2, 1};
    uint64_t run = (uint64_t)cpu_nd_tile_elements(nd) * bytes[m->store[k]];
    if (!cpu_nd_dense(nd, k))
        run = 0;
    return op_lower_in_tiled(c, field, m->input[k], run, run);
}

static tacit_status bind_output(op_lower *c, size_t field, const cpu_nd *nd, uint32_t k)
{
    uint64_t element = ir_dtype_bytes(c->out[0].type.dtype, 1);
    uint64_t run = cpu_nd_dense(nd, k) ? (uint64_t)cpu_nd_tile_elements(nd) * element : 0;
    return op_lower_out_tiled(c, field, 0, run, run);
}

/* One operation on dense or scalar f32 needs no program. */
static bool is_simple(const op_lower *c, const map_plan *m, const cpu_nd *nd)
{
    bool simple = m->n_steps == 1 && m->n_constants == 0 && nd->rank == 1 &&
                  c->out[0].type.dtype == TACIT_F32 && m->inputs == m->steps[0].operands;
    for (uint32_t k = 0; simple && k < m->inputs; k++)
        simple = m->store[k] == CPU_STORE_F32 && m->input[k] != MAP_PACKED &&
                 m->steps[0].in[k] == CPU_MAP_INPUT + k && !nd->period[k] &&
                 (nd->strides[k][0] == 1 || nd->strides[k][0] == 0);
    return simple;
}

static void set_cost(op_lower *c, const map_plan *m)
{
    double flops = (double)ir_shape_size(&c->out[0].type.shape) * m->n_steps;
    op_lower_cost(c, flops, op_lower_all_bytes(c));
}

static tacit_status emit_simple(op_lower *c, const map_plan *m, const cpu_nd *nd, uint32_t tiles)
{
    cpu_map1_args *a = op_lower_thunk(c, "map1_f32", cpu_map1, sizeof *a, tiles);
    if (!a)
        return TACIT_ERR_MEMORY;
    a->fn = cpu_strips_for(c->cpu.isa)->op[m->steps[0].op];
    a->count = nd->dims[0];
    a->tile = nd->tile_units * nd->piece;
    for (uint32_t k = 0; k < m->inputs; k++) {
        a->scalars |= (uint32_t)(nd->strides[k][0] == 0 && nd->dims[0] > 1) << k;
        TRY(bind_input(c, m, k, offsetof(cpu_map1_args, in) + k * sizeof(void *), nd));
    }
    TRY(bind_output(c, offsetof(cpu_map1_args, out), nd, m->inputs));
    op_lower_note(c, "map1_f32 on %s strips: one pass over dense operands",
                  cpu_isa_name(c->cpu.isa));
    return TACIT_OK;
}

static tacit_status emit_program(op_lower *c, const map_plan *m, const cpu_nd *nd, uint32_t tiles)
{
    size_t size = sizeof(cpu_map_args) + m->n_steps * sizeof(cpu_map_step);
    cpu_map_args *a = op_lower_thunk(c, "map_f32", cpu_map, size, tiles);
    if (!a)
        return TACIT_ERR_MEMORY;
    a->strips = cpu_strips_for(c->cpu.isa);
    a->nd = *nd;
    a->inputs = m->inputs;
    a->n_steps = m->n_steps;
    a->out_store = (cpu_store)store_of(c->out[0].type.dtype);
    memcpy(a->constants, m->constants, sizeof a->constants);
    for (uint32_t k = 0; k < m->inputs; k++) {
        a->in_store[k] = m->store[k];
        if (m->input[k] == MAP_PACKED)
            a->in[k] = m->packed[k];
        else
            TRY(bind_input(c, m, k, offsetof(cpu_map_args, in) + k * sizeof(void *), nd));
    }
    for (uint32_t s = 0; s < m->n_steps; s++) {
        a->steps[s].fn = a->strips->op[m->steps[s].op];
        a->steps[s].dst = m->steps[s].dst;
        a->steps[s].operands = m->steps[s].operands;
        memcpy(a->steps[s].in, m->steps[s].in, sizeof a->steps[s].in);
    }
    TRY(bind_output(c, offsetof(cpu_map_args, out), nd, m->inputs));
    op_lower_note(c,
                  "map_f32 on %s strips: %u steps over %d axes; map1_f32 takes one step on dense "
                  "f32 only",
                  cpu_isa_name(c->cpu.isa), m->n_steps, nd->rank);
    return TACIT_OK;
}

static tacit_status emit(op_lower *c, const map_plan *m)
{
    const ir_shape *shape = &c->out[0].type.shape;
    cpu_nd nd;
    cpu_nd_begin(&nd, shape->rank, shape->dims);
    for (uint32_t k = 0; k < m->inputs; k++)
        cpu_nd_operand(&nd, m->strides[k]);
    cpu_nd_operand(&nd, c->out[0].strides);
    cpu_nd_repeat(&nd, CPU_MAP_SHORT);
    /* About 5 µs a tile. */
    uint32_t tiles = cpu_nd_ready(&nd, (m->costly ? 4096 : 16384) / (1 + m->n_steps / 4));
    if (tiles == 0)
        return TACIT_OK; /* nothing to compute, so no thunk */
    TRY(is_simple(c, m, &nd) ? emit_simple(c, m, &nd, tiles) : emit_program(c, m, &nd, tiles));
    set_cost(c, m);
    return TACIT_OK;
}

/* --- plain ONNX ops --------------------------------------------------------------------------- */

typedef struct map_rule {
    const char *name;
    cpu_strip_op op;
    uint8_t inputs;           /* taken from the node; parameters follow as constants */
    const char *parameter[2]; /* attributes */
    float fallback[2];
    bool fold;                              /* any number of inputs, folded from the left */
    void (*plan)(op_lower *c, map_plan *m); /* a program of its own */
} map_rule;

static float attribute(const op_lower *c, const char *name, double fallback)
{
    return (float)ir_attr_float(c->node, name, fallback);
}

/* x·tanh(ln(1 + e^x)) */
static void plan_mish(op_lower *c, map_plan *m)
{
    uint16_t x = add_input(c, m, 0);
    add_step(m, CPU_STRIP_SOFTPLUS, 0, x, 0, 0);
    add_step(m, CPU_STRIP_TANH, 0, 0, 0, 0);
    add_step(m, CPU_STRIP_MUL, 0, 0, x, 0);
}

static void plan_selu(op_lower *c, map_plan *m)
{
    float alpha = attribute(c, "alpha", 1.67326319217681884765625);
    float gamma = attribute(c, "gamma", 1.05070102214813232421875);
    add_step(m, CPU_STRIP_ELU, 0, add_input(c, m, 0), add_constant(m, alpha), 0);
    add_step(m, CPU_STRIP_MUL, 0, 0, add_constant(m, gamma), 0);
}

static void plan_threshold(op_lower *c, map_plan *m)
{
    uint16_t x = add_input(c, m, 0);
    add_step(m, CPU_STRIP_GREATER, 0, x, add_constant(m, attribute(c, "alpha", 1)), 0);
    add_step(m, CPU_STRIP_WHERE, 0, 0, x, add_constant(m, 0));
}

/* x + bias below −lambd, x − bias above lambd, else 0: but a NaN stays. */
static void plan_shrink(op_lower *c, map_plan *m)
{
    float edge = attribute(c, "lambd", 0.5), bias = attribute(c, "bias", 0);
    uint16_t x = add_input(c, m, 0);
    add_step(m, CPU_STRIP_SUB, 0, x, x, 0); /* 0 or NaN; an infinity is outside the edges */
    add_step(m, CPU_STRIP_GREATER, 1, x, add_constant(m, edge), 0);
    add_step(m, CPU_STRIP_SUB, 2, x, add_constant(m, bias), 0);
    add_step(m, CPU_STRIP_WHERE, 0, 1, 2, 0);
    add_step(m, CPU_STRIP_LESS, 1, x, add_constant(m, -edge), 0);
    add_step(m, CPU_STRIP_ADD, 2, x, add_constant(m, bias), 0);
    add_step(m, CPU_STRIP_WHERE, 0, 1, 2, 0);
}

static void plan_is_nan(op_lower *c, map_plan *m)
{
    uint16_t x = add_input(c, m, 0);
    add_step(m, CPU_STRIP_EQUAL, 0, x, x, 0);
    add_step(m, CPU_STRIP_NOT, 0, 0, 0, 0);
}

static void plan_is_inf(op_lower *c, map_plan *m)
{
    bool low = ir_attr_int(c->node, "detect_negative", 1) != 0;
    bool high = ir_attr_int(c->node, "detect_positive", 1) != 0;
    uint16_t x = add_input(c, m, 0);
    add_step(m, CPU_STRIP_EQUAL, 0, x, add_constant(m, low ? -INFINITY : NAN), 0);
    add_step(m, CPU_STRIP_EQUAL, 1, x, add_constant(m, high ? INFINITY : NAN), 0);
    add_step(m, CPU_STRIP_OR, 0, 0, 1, 0);
}

static const map_rule rules[] = {
    {.name = "Add", .op = CPU_STRIP_ADD, .inputs = 2},
    {.name = "Sub", .op = CPU_STRIP_SUB, .inputs = 2},
    {.name = "Mul", .op = CPU_STRIP_MUL, .inputs = 2},
    {.name = "Div", .op = CPU_STRIP_DIV, .inputs = 2},
    {.name = "Pow", .op = CPU_STRIP_POW, .inputs = 2},
    {.name = "PRelu", .op = CPU_STRIP_LEAKY_RELU, .inputs = 2},
    {.name = "Min", .op = CPU_STRIP_MIN, .inputs = 2, .fold = true},
    {.name = "Max", .op = CPU_STRIP_MAX, .inputs = 2, .fold = true},
    {.name = "Sum", .op = CPU_STRIP_ADD, .inputs = 2, .fold = true},
    {.name = "Mean", .op = CPU_STRIP_ADD, .inputs = 2, .fold = true},
    {.name = "Equal", .op = CPU_STRIP_EQUAL, .inputs = 2},
    {.name = "Less", .op = CPU_STRIP_LESS, .inputs = 2},
    {.name = "LessOrEqual", .op = CPU_STRIP_LESS_EQUAL, .inputs = 2},
    {.name = "Greater", .op = CPU_STRIP_GREATER, .inputs = 2},
    {.name = "GreaterOrEqual", .op = CPU_STRIP_GREATER_EQUAL, .inputs = 2},
    {.name = "And", .op = CPU_STRIP_AND, .inputs = 2},
    {.name = "Or", .op = CPU_STRIP_OR, .inputs = 2},
    {.name = "Xor", .op = CPU_STRIP_XOR, .inputs = 2},
    {.name = "Not", .op = CPU_STRIP_NOT, .inputs = 1},
    {.name = "Where", .op = CPU_STRIP_WHERE, .inputs = 3},
    {.name = "Clip", .op = CPU_STRIP_CLIP, .inputs = 1},
    {.name = "Cast", .op = CPU_STRIP_COPY, .inputs = 1},
    {.name = "CastLike", .op = CPU_STRIP_COPY, .inputs = 1},
    {.name = "Abs", .op = CPU_STRIP_ABS, .inputs = 1},
    {.name = "Neg", .op = CPU_STRIP_NEG, .inputs = 1},
    {.name = "Exp", .op = CPU_STRIP_EXP, .inputs = 1},
    {.name = "Log", .op = CPU_STRIP_LOG, .inputs = 1},
    {.name = "Sqrt", .op = CPU_STRIP_SQRT, .inputs = 1},
    {.name = "Reciprocal", .op = CPU_STRIP_RECIPROCAL, .inputs = 1},
    {.name = "Tanh", .op = CPU_STRIP_TANH, .inputs = 1},
    {.name = "Sigmoid", .op = CPU_STRIP_SIGMOID, .inputs = 1},
    {.name = "Relu", .op = CPU_STRIP_RELU, .inputs = 1},
    {.name = "Erf", .op = CPU_STRIP_ERF, .inputs = 1},
    {.name = "Floor", .op = CPU_STRIP_FLOOR, .inputs = 1},
    {.name = "Ceil", .op = CPU_STRIP_CEIL, .inputs = 1},
    {.name = "Round", .op = CPU_STRIP_ROUND, .inputs = 1},
    {.name = "Sign", .op = CPU_STRIP_SIGN, .inputs = 1},
    {.name = "Sin", .op = CPU_STRIP_SIN, .inputs = 1},
    {.name = "Cos", .op = CPU_STRIP_COS, .inputs = 1},
    {.name = "Tan", .op = CPU_STRIP_TAN, .inputs = 1},
    {.name = "Asin", .op = CPU_STRIP_ASIN, .inputs = 1},
    {.name = "Acos", .op = CPU_STRIP_ACOS, .inputs = 1},
    {.name = "Atan", .op = CPU_STRIP_ATAN, .inputs = 1},
    {.name = "Sinh", .op = CPU_STRIP_SINH, .inputs = 1},
    {.name = "Cosh", .op = CPU_STRIP_COSH, .inputs = 1},
    {.name = "Asinh", .op = CPU_STRIP_ASINH, .inputs = 1},
    {.name = "Acosh", .op = CPU_STRIP_ACOSH, .inputs = 1},
    {.name = "Atanh", .op = CPU_STRIP_ATANH, .inputs = 1},
    {.name = "Softplus", .op = CPU_STRIP_SOFTPLUS, .inputs = 1},
    {.name = "Softsign", .op = CPU_STRIP_SOFTSIGN, .inputs = 1},
    {.name = "LeakyRelu",
     .op = CPU_STRIP_LEAKY_RELU,
     .inputs = 1,
     .parameter = {"alpha"},
     .fallback = {0.01f}},
    {.name = "Elu", .op = CPU_STRIP_ELU, .inputs = 1, .parameter = {"alpha"}, .fallback = {1.0f}},
    {.name = "Celu", .op = CPU_STRIP_CELU, .inputs = 1, .parameter = {"alpha"}, .fallback = {1.0f}},
    {.name = "HardSigmoid",
     .op = CPU_STRIP_HARD_SIGMOID,
     .inputs = 1,
     .parameter = {"alpha", "beta"},
     .fallback = {0.2f, 0.5f}},
    {.name = "HardSwish", .op = CPU_STRIP_HARD_SWISH, .inputs = 1},
    {.name = "Swish",
     .op = CPU_STRIP_SWISH,
     .inputs = 1,
     .parameter = {"alpha"},
     .fallback = {1.0f}},
    {.name = "Gelu", .op = CPU_STRIP_GELU, .inputs = 1},
    {.name = "Mish", .plan = plan_mish},
    {.name = "Selu", .plan = plan_selu},
    {.name = "ThresholdedRelu", .plan = plan_threshold},
    {.name = "Shrink", .plan = plan_shrink},
    {.name = "IsNaN", .plan = plan_is_nan},
    {.name = "IsInf", .plan = plan_is_inf},
};

static const map_rule *find_rule(const ir_node *node)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (strcmp(node->type, rules[i].name) == 0)
            return &rules[i];
    return NULL;
}

/* Do the strips know this op on these types? */
static const map_rule *supported(const ir_node *node)
{
    const map_rule *rule = find_rule(node);
    if (!rule || node->n_inputs > CPU_MAP_INPUTS || !node->outputs[0])
        return NULL;
    if (rule->op == CPU_STRIP_CELU && !(ir_attr_float(node, "alpha", 1) > 0))
        return NULL;
    bool truth = rule->op >= CPU_STRIP_LESS && rule->op <= CPU_STRIP_TRUTH;
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        if (!node->inputs[i])
            continue;
        tacit_dtype dtype = node->inputs[i]->type.dtype;
        bool like = strcmp(rule->name, "CastLike") == 0 && i == 1; /* only its type is used */
        bool condition = rule->op == CPU_STRIP_WHERE && i == 0;
        bool copy = rule->op == CPU_STRIP_COPY;
        if (!like &&
            (store_of(dtype) < 0 || (dtype == TACIT_BOOL && !truth && !condition && !copy)))
            return NULL;
    }
    return store_of(node->outputs[0]->type.dtype) < 0 ? NULL : rule;
}

bool op_accepts_map(const ir_node *node, uint32_t in, const op_operand *view)
{
    (void)in, (void)view;
    return supported(node) || op_plain_suits(node);
}

static void plan_fold(op_lower *c, map_plan *m, const map_rule *rule)
{
    uint32_t n = c->node->n_inputs;
    uint16_t sum = add_input(c, m, 0);
    bool mean = strcmp(rule->name, "Mean") == 0;
    if (n == 1)
        add_step(m, CPU_STRIP_COPY, 0, sum, 0, 0);
    for (uint32_t i = 1; i < n; i++) {
        add_step(m, rule->op, 0, sum, add_input(c, m, i), 0);
        sum = 0;
    }
    if (mean && n > 1)
        add_step(m, CPU_STRIP_DIV, 0, 0, add_constant(m, (float)n), 0);
}

/* x^2, x^3, √x and 1/x by what they are. */
static void plan_pow(op_lower *c, map_plan *m)
{
    float exponent = 0;
    uint16_t x = add_input(c, m, 0);
    bool known = op_lower_scalar(&c->in[1], &exponent);
    if (known && (exponent == 2 || exponent == 3)) {
        add_step(m, CPU_STRIP_MUL, 0, x, x, 0);
        if (exponent == 3)
            add_step(m, CPU_STRIP_MUL, 0, 0, x, 0);
    } else if (known && exponent == 0.5f) {
        add_step(m, CPU_STRIP_SQRT, 0, x, 0, 0);
    } else if (known && exponent == 1) {
        add_step(m, CPU_STRIP_COPY, 0, x, 0, 0);
    } else if (known && exponent == -1) {
        add_step(m, CPU_STRIP_RECIPROCAL, 0, x, 0, 0);
    } else {
        add_step(m, CPU_STRIP_POW, 0, x, add_input(c, m, 1), 0);
    }
}

static void plan_clip(op_lower *c, map_plan *m)
{
    uint16_t x = add_input(c, m, 0);
    uint16_t low = op_lower_has(c, 1) ? add_input(c, m, 1) : add_constant(m, -INFINITY);
    uint16_t high = op_lower_has(c, 2) ? add_input(c, m, 2) : add_constant(m, INFINITY);
    add_step(m, CPU_STRIP_CLIP, 0, x, low, high);
}

tacit_status op_lower_map(op_lower *c)
{
    const map_rule *rule = supported(c->node);
    if (!rule)
        return op_lower_plain(c);
    map_plan m = {0};
    cpu_strip_op op = rule->op;
    if (op == CPU_STRIP_GELU && strcmp(ir_attr_string(c->node, "approximate", "none"), "tanh") == 0)
        op = CPU_STRIP_GELU_TANH;
    if (op == CPU_STRIP_COPY && c->out[0].type.dtype == TACIT_BOOL)
        op = CPU_STRIP_TRUTH;
    if (rule->plan) {
        rule->plan(c, &m);
    } else if (op == CPU_STRIP_POW) {
        plan_pow(c, &m);
    } else if (op == CPU_STRIP_CLIP) {
        plan_clip(c, &m);
    } else if (rule->fold) {
        plan_fold(c, &m, rule);
    } else {
        uint16_t in[3] = {0};
        uint32_t n = 0;
        for (; n < rule->inputs; n++)
            in[n] = add_input(c, &m, n);
        for (int i = 0; i < 2 && rule->parameter[i]; i++)
            in[n++] = add_constant(
                &m, (float)ir_attr_float(c->node, rule->parameter[i], rule->fallback[i]));
        add_step(&m, op, 0, in[0], in[1], in[2]);
    }
    return emit(c, &m);
}

/* --- tacit.Elementwise ------------------------------------------------------------------------ */

static const cpu_strip_op of_program[OP_ELEMENTWISE_COUNT] = {
    [OP_ELEMENTWISE_ADD] = CPU_STRIP_ADD,
    [OP_ELEMENTWISE_SUB] = CPU_STRIP_SUB,
    [OP_ELEMENTWISE_MUL] = CPU_STRIP_MUL,
    [OP_ELEMENTWISE_DIV] = CPU_STRIP_DIV,
    [OP_ELEMENTWISE_POW] = CPU_STRIP_POW,
    [OP_ELEMENTWISE_MIN] = CPU_STRIP_MIN,
    [OP_ELEMENTWISE_MAX] = CPU_STRIP_MAX,
    [OP_ELEMENTWISE_LESS] = CPU_STRIP_LESS,
    [OP_ELEMENTWISE_LESS_EQUAL] = CPU_STRIP_LESS_EQUAL,
    [OP_ELEMENTWISE_GREATER] = CPU_STRIP_GREATER,
    [OP_ELEMENTWISE_GREATER_EQUAL] = CPU_STRIP_GREATER_EQUAL,
    [OP_ELEMENTWISE_EQUAL] = CPU_STRIP_EQUAL,
    [OP_ELEMENTWISE_AND] = CPU_STRIP_AND,
    [OP_ELEMENTWISE_OR] = CPU_STRIP_OR,
    [OP_ELEMENTWISE_XOR] = CPU_STRIP_XOR,
    [OP_ELEMENTWISE_NOT] = CPU_STRIP_NOT,
    [OP_ELEMENTWISE_WHERE] = CPU_STRIP_WHERE,
    [OP_ELEMENTWISE_CLIP] = CPU_STRIP_CLIP,
    [OP_ELEMENTWISE_ABS] = CPU_STRIP_ABS,
    [OP_ELEMENTWISE_NEG] = CPU_STRIP_NEG,
    [OP_ELEMENTWISE_EXP] = CPU_STRIP_EXP,
    [OP_ELEMENTWISE_LOG] = CPU_STRIP_LOG,
    [OP_ELEMENTWISE_SQRT] = CPU_STRIP_SQRT,
    [OP_ELEMENTWISE_RECIPROCAL] = CPU_STRIP_RECIPROCAL,
    [OP_ELEMENTWISE_TANH] = CPU_STRIP_TANH,
    [OP_ELEMENTWISE_SIGMOID] = CPU_STRIP_SIGMOID,
    [OP_ELEMENTWISE_RELU] = CPU_STRIP_RELU,
    [OP_ELEMENTWISE_ERF] = CPU_STRIP_ERF,
    [OP_ELEMENTWISE_FLOOR] = CPU_STRIP_FLOOR,
    [OP_ELEMENTWISE_CEIL] = CPU_STRIP_CEIL,
    [OP_ELEMENTWISE_ROUND] = CPU_STRIP_ROUND,
    [OP_ELEMENTWISE_SIGN] = CPU_STRIP_SIGN,
    [OP_ELEMENTWISE_SIN] = CPU_STRIP_SIN,
    [OP_ELEMENTWISE_COS] = CPU_STRIP_COS,
    [OP_ELEMENTWISE_SOFTPLUS] = CPU_STRIP_SOFTPLUS,
    [OP_ELEMENTWISE_SOFTSIGN] = CPU_STRIP_SOFTSIGN,
    [OP_ELEMENTWISE_LEAKY_RELU] = CPU_STRIP_LEAKY_RELU,
    [OP_ELEMENTWISE_ELU] = CPU_STRIP_ELU,
    [OP_ELEMENTWISE_HARD_SIGMOID] = CPU_STRIP_HARD_SIGMOID,
    [OP_ELEMENTWISE_HARD_SWISH] = CPU_STRIP_HARD_SWISH,
    [OP_ELEMENTWISE_GELU] = CPU_STRIP_GELU,
    [OP_ELEMENTWISE_GELU_TANH] = CPU_STRIP_GELU_TANH,
    [OP_ELEMENTWISE_SWISH] = CPU_STRIP_SWISH,
    [OP_ELEMENTWISE_FLOAT] = CPU_STRIP_COPY,
    [OP_ELEMENTWISE_TRUTH] = CPU_STRIP_TRUTH,
    [OP_ELEMENTWISE_TAN] = CPU_STRIP_TAN,
    [OP_ELEMENTWISE_ASIN] = CPU_STRIP_ASIN,
    [OP_ELEMENTWISE_ACOS] = CPU_STRIP_ACOS,
    [OP_ELEMENTWISE_ATAN] = CPU_STRIP_ATAN,
    [OP_ELEMENTWISE_SINH] = CPU_STRIP_SINH,
    [OP_ELEMENTWISE_COSH] = CPU_STRIP_COSH,
    [OP_ELEMENTWISE_ASINH] = CPU_STRIP_ASINH,
    [OP_ELEMENTWISE_ACOSH] = CPU_STRIP_ACOSH,
    [OP_ELEMENTWISE_ATANH] = CPU_STRIP_ATANH,
    [OP_ELEMENTWISE_CELU] = CPU_STRIP_CELU,
};
_Static_assert((int)CPU_MAP_INPUT == (int)OP_ELEMENTWISE_INPUT, "operand codes agree");
_Static_assert((int)CPU_MAP_CONSTANT == (int)OP_ELEMENTWISE_CONSTANT, "operand codes agree");
_Static_assert((int)CPU_MAP_INPUTS >= (int)OP_ELEMENTWISE_INPUTS, "inputs fit");
_Static_assert((int)CPU_MAP_REGISTERS >= (int)OP_ELEMENTWISE_REGISTERS, "registers fit");
_Static_assert((int)CPU_MAP_CONSTANTS >= (int)OP_ELEMENTWISE_CONSTANTS, "constants fit");

tacit_status op_lower_elementwise(op_lower *c)
{
    op_elementwise_program program;
    TRY(op_elementwise_read(c->node, &program, c->err));
    map_plan m = {.n_constants = program.n_constants};
    memcpy(m.constants, program.constants, sizeof program.constants);
    for (uint32_t i = 0; i < c->node->n_inputs; i++)
        (void)add_input(c, &m, i);
    for (uint32_t s = 0; s < program.n_steps; s++) {
        const op_elementwise_step *step = &program.steps[s];
        add_step(&m, of_program[step->op], (uint8_t)step->dst, step->in[0], step->in[1],
                 step->in[2]);
    }
    return emit(c, &m);
}

/* --- tacit.Gated, BatchNormalization ---------------------------------------------------------- */

tacit_status op_lower_gated(op_lower *c)
{
    static const cpu_strip_op of[] = {
        [OP_ACT_NONE] = CPU_STRIP_COPY, [OP_ACT_RELU] = CPU_STRIP_RELU,
        [OP_ACT_GELU] = CPU_STRIP_GELU, [OP_ACT_GELU_TANH] = CPU_STRIP_GELU_TANH,
        [OP_ACT_SILU] = CPU_STRIP_SILU, [OP_ACT_SIGMOID] = CPU_STRIP_SIGMOID,
        [OP_ACT_TANH] = CPU_STRIP_TANH, [OP_ACT_CLIP] = CPU_STRIP_CLIP,
    };
    op_activation act;
    TRY(op_activation_read(c->node, &act, c->err));
    if (store_of(c->in[0].type.dtype) < 0)
        return OP_LOWER_NO_KERNEL;
    map_plan m = {0};
    uint16_t gate = add_input(c, &m, 0), up = add_input(c, &m, 1);
    uint16_t low = 0, high = 0;
    if (act.kind == OP_ACT_CLIP) {
        low = add_constant(&m, (float)act.low);
        high = add_constant(&m, (float)act.high);
    }
    add_step(&m, of[act.kind], 0, gate, low, high);
    add_step(&m, CPU_STRIP_MUL, 0, 0, up, 0);
    return emit(c, &m);
}

/* y = x·s + b per channel, when the statistics are known. */
static tacit_status plan_known_norm(op_lower *c, map_plan *m, double epsilon, int64_t channels)
{
    const float *v[5];
    for (uint32_t i = 1; i < 5; i++)
        v[i] = c->in[i].constant->data;
    float *folded = op_lower_pack(c, 2 * (size_t)channels * sizeof *folded);
    if (!folded)
        return TACIT_ERR_MEMORY;
    for (int64_t i = 0; i < channels; i++) {
        double s = v[1][i] / sqrt(v[4][i] + epsilon);
        folded[i] = (float)s;
        folded[channels + i] = (float)(v[2][i] - s * v[3][i]);
    }
    for (int k = 0; k < 2; k++) {
        m->input[m->inputs] = MAP_PACKED;
        m->packed[m->inputs] = folded + k * channels;
        m->strides[m->inputs++][1] = 1;
    }
    add_step(m, CPU_STRIP_MUL, 0, CPU_MAP_INPUT, CPU_MAP_INPUT + 1, 0);
    add_step(m, CPU_STRIP_ADD, 0, 0, CPU_MAP_INPUT + 2, 0);
    return TACIT_OK;
}

tacit_status op_lower_batch_norm(op_lower *c)
{
    const ir_shape *x = &c->in[0].type.shape;
    bool known = true;
    for (uint32_t i = 0; i < 5; i++) {
        if (c->in[i].type.dtype != TACIT_F32)
            return OP_LOWER_NO_KERNEL;
        known = known && (i == 0 || op_lower_known(c, i));
    }
    if (x->rank < 2 || op_lower_wants(c, 1) || op_lower_wants(c, 2) ||
        ir_attr_int(c->node, "training_mode", 0))
        return OP_LOWER_NO_KERNEL;
    double epsilon = ir_attr_float(c->node, "epsilon", 1e-5);
    map_plan m = {0};
    uint16_t in[5];
    in[0] = add_input(c, &m, 0);
    if (known) {
        TRY(plan_known_norm(c, &m, epsilon, x->dims[1]));
        return emit(c, &m);
    }
    for (uint32_t i = 1; i < 5; i++) { /* scale, bias, mean, variance along axis 1 */
        in[i] = (uint16_t)(CPU_MAP_INPUT + m.inputs);
        m.input[m.inputs] = (uint8_t)i;
        m.strides[m.inputs++][1] = c->in[i].strides[0];
    }
    add_step(&m, CPU_STRIP_ADD, 0, in[4], add_constant(&m, (float)epsilon), 0);
    add_step(&m, CPU_STRIP_SQRT, 0, 0, 0, 0);
    add_step(&m, CPU_STRIP_SUB, 1, in[0], in[3], 0);
    add_step(&m, CPU_STRIP_DIV, 0, 1, 0, 0);
    add_step(&m, CPU_STRIP_MUL, 0, 0, in[1], 0);
    add_step(&m, CPU_STRIP_ADD, 0, 0, in[2], 0);
    return emit(c, &m);
}
