/* SPDX-License-Identifier: Apache-2.0
 * Control flow: If, Loop, Scan. Their results' types may change from run to run, so the rows have
 * no infer rule but Scan (which the transforms need): the program interprets them all, their
 * bodies run through op_eval.run_graph. */
#include <string.h>

#include "op/index.h"
#include "op/join.h"
#include "op/strip.h"
#include "op/view.h"

/* --- If --------------------------------------------------------------------------------------- */

static tacit_status read_condition(op_eval *c, const ir_tensor *t, bool *out)
{
    if (!t || t->kind != IR_TENSOR || t->dtype != TACIT_BOOL || ir_tensor_count(t) != 1)
        return error_set(c->err, TACIT_ERR_TYPE, "the condition must be one bool");
    *out = *(const uint8_t *)t->data != 0;
    return TACIT_OK;
}

static tacit_status if_eval(op_eval *c)
{
    bool condition = false;
    TRY(read_condition(c, op_in(c, 0), &condition));
    const char *name = condition ? "then_branch" : "else_branch";
    const ir_graph *branch = ir_attr_graph(c->node, name);
    if (!branch)
        return error_set(c->err, TACIT_ERR_GRAPH, "no %s", name);
    ir_tensor *results = op_eval_scratch(c, (c->n_out + 1u) * sizeof *results);
    if (!results)
        return error_memory(c->err, "If");
    TRY(c->run_graph(c, branch, 0, NULL, c->n_out, results));
    for (uint32_t i = 0; i < c->n_out; i++)
        if (op_out(c, i))
            *op_out(c, i) = results[i];
    return TACIT_OK;
}

/* --- the walk of Loop and Scan ---------------------------------------------------------------- */

typedef VEC(const ir_tensor *) tensor_list;

/* States go round, every iteration's scan outputs are kept until they are joined. Iterations use
 * two memories in turn, so that a long loop holds two iterations and not all of them. */
typedef struct loop_walk {
    op_eval *c;
    const ir_graph *body;
    uint32_t n_state, n_scan;
    uint32_t fixed; /* results before the states: Loop's condition */
    arena memory[2];
    const ir_tensor **args; /* all formal inputs of the body */
    uint32_t n_args, first_state;
    uint32_t first_in; /* the node's input that is the first state */
    ir_tensor *results[2];
    tensor_list *kept; /* n_scan lists, in c->scratch */
} loop_walk;

static tacit_status walk_begin(loop_walk *w)
{
    op_eval *c = w->c;
    uint32_t n_results = w->fixed + w->n_state + w->n_scan;
    arena_init(&w->memory[0], c->memory->allocator);
    arena_init(&w->memory[1], c->memory->allocator);
    w->args = op_eval_scratch(c, (w->n_args + 1u) * sizeof *w->args);
    w->kept = op_eval_scratch(c, (w->n_scan + 1u) * sizeof *w->kept);
    for (int i = 0; i < 2; i++)
        w->results[i] = op_eval_scratch(c, (n_results + 1u) * sizeof **w->results);
    if (!w->args || !w->kept || !w->results[0] || !w->results[1])
        return error_memory(c->err, "a loop");
    memset(w->args, 0, (w->n_args + 1u) * sizeof *w->args);
    memset(w->kept, 0, (w->n_scan + 1u) * sizeof *w->kept);
    for (uint32_t i = w->first_in; i < c->node->n_explicit; i++)
        if (!op_in(c, i))
            return error_set(c->err, TACIT_ERR_GRAPH, "input %u is missing", i);
    if (w->body->inputs.count != w->n_args || w->body->outputs.count != n_results)
        return error_set(c->err, TACIT_ERR_GRAPH,
                         "the body takes %u values and gives %u, but %u and %u are expected",
                         w->body->inputs.count, w->body->outputs.count, w->n_args, n_results);
    return TACIT_OK;
}

static void walk_end(loop_walk *w)
{
    arena_free(&w->memory[0]);
    arena_free(&w->memory[1]);
}

/* A step number of its own for each iteration, so that random ops in a body do not repeat. */
static uint64_t mix_step(uint64_t step, uint64_t iteration)
{
    uint64_t z = step + (iteration + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    return z ^ (z >> 27);
}

/* One iteration: args are set but for the states, which are taken from the one before. */
static tacit_status walk_step(loop_walk *w, int64_t iteration)
{
    op_eval *c = w->c, inner = *w->c;
    int half = (int)(iteration & 1);
    uint32_t n_results = w->fixed + w->n_state + w->n_scan;
    arena_free(&w->memory[half]);
    inner.memory = &w->memory[half];
    inner.step = mix_step(c->step, (uint64_t)iteration);
    ir_tensor *results = w->results[half];
    TRY(c->run_graph(&inner, w->body, w->n_args, w->args, n_results, results));
    for (uint32_t i = 0; i < w->n_state; i++)
        w->args[w->first_state + i] = &results[w->fixed + i];
    for (uint32_t i = 0; i < w->n_scan; i++) {
        const ir_tensor *t = &results[w->fixed + w->n_state + i];
        if (t->kind != IR_TENSOR)
            return error_set(c->err, TACIT_ERR_TYPE, "scan output %u is not a tensor", i);
        if (!op_out(c, w->n_state + i))
            continue;
        const ir_tensor *copy = ir_tensor_copy(c->scratch, t);
        if (!copy || !vec_push(c->scratch, &w->kept[i], copy))
            return error_memory(c->err, "scan outputs");
    }
    return TACIT_OK;
}

/* The type of an output of a body that never ran: as declared, or else as it follows from what the
 * body would have been given. NULL when nothing says. */
static const ir_type *walk_untold(loop_walk *w, uint32_t output)
{
    op_eval *c = w->c;
    const ir_type *declared = &w->body->outputs.data[output]->type;
    ir_graph *body = declared->dtype ? NULL : ir_graph_clone(w->body, c->scratch);
    uint32_t outer = c->node->n_explicit;
    if (!body)
        return declared;
    for (uint32_t i = 0; i < body->inputs.count && i < w->n_args; i++)
        if (w->args[i])
            body->inputs.data[i]->type = ir_tensor_type(w->args[i]);
    for (uint32_t i = 0; i < body->captures.count && outer + i < c->n_in; i++)
        if (body->captures.data[i] && op_in(c, outer + i))
            body->captures.data[i]->type = ir_tensor_type(op_in(c, outer + i));
    tacit_error ignored;
    return op_infer_graph(body, &ignored) == TACIT_OK ? &body->outputs.data[output]->type : NULL;
}

/* Final states and joined scan outputs become the node's outputs. */
static tacit_status walk_finish(loop_walk *w, const op_join *joins)
{
    op_eval *c = w->c;
    for (uint32_t i = 0; i < w->n_state; i++) {
        if (!op_out(c, i))
            continue;
        op_out(c, i)->data = NULL;
        TRY(op_eval_copy(c, op_out(c, i), w->args[w->first_state + i]));
    }
    for (uint32_t i = 0; i < w->n_scan; i++) {
        if (!op_out(c, w->n_state + i))
            continue;
        const ir_type *empty = w->kept[i].count ? NULL : walk_untold(w, w->fixed + w->n_state + i);
        TRY(op_join_items(c, w->n_state + i, w->kept[i].count, w->kept[i].data, &joins[i], empty));
    }
    return TACIT_OK;
}

/* --- Loop ------------------------------------------------------------------------------------- */

static tacit_status loop_run(loop_walk *w)
{
    op_eval *c = w->c;
    int64_t most = INT64_MAX;
    bool going = true;
    ir_shape scalar = {.rank = 0};
    if (op_in(c, 0))
        TRY(op_read_int(op_in(c, 0), &most, c->err));
    if (op_in(c, 1))
        TRY(read_condition(c, op_in(c, 1), &going));
    TRY(walk_begin(w));
    for (uint32_t i = 0; i < w->n_state; i++)
        w->args[2 + i] = op_in(c, 2 + i);
    for (int64_t iteration = 0; iteration < most && going; iteration++) {
        uint8_t condition = going;
        ir_tensor count = ir_tensor_view(TACIT_I64, &scalar, &iteration);
        ir_tensor again = ir_tensor_view(TACIT_BOOL, &scalar, &condition);
        w->args[0] = &count;
        w->args[1] = &again;
        TRY(walk_step(w, iteration));
        /* With a trip count alone it is a plain for loop: the body's condition is ignored. */
        if (op_in(c, 1) || !op_in(c, 0))
            TRY(read_condition(c, &w->results[iteration & 1][0], &going));
    }
    op_join *joins = op_eval_scratch(c, (w->n_scan + 1u) * sizeof *joins);
    if (!joins)
        return error_memory(c->err, "a loop");
    for (uint32_t i = 0; i < w->n_scan; i++)
        joins[i] = (op_join){.new_axis = true};
    return walk_finish(w, joins);
}

static tacit_status loop_eval(op_eval *c)
{
    loop_walk w = {.c = c,
                   .body = ir_attr_graph(c->node, "body"),
                   .fixed = 1,
                   .first_state = 2,
                   .first_in = 2};
    if (!w.body)
        return error_set(c->err, TACIT_ERR_GRAPH, "no body");
    w.n_state = c->node->n_explicit > 2 ? c->node->n_explicit - 2 : 0;
    if (c->n_out < w.n_state)
        return error_set(c->err, TACIT_ERR_GRAPH, "%u outputs for %u states", c->n_out, w.n_state);
    w.n_scan = c->n_out - w.n_state;
    w.n_args = 2 + w.n_state;
    tacit_status status = loop_run(&w);
    walk_end(&w);
    return status;
}

/* --- Scan ------------------------------------------------------------------------------------- */

/* Entry i of an optional integer list. */
static int64_t list_at(const ir_node *node, const char *name, uint32_t i, int64_t fallback)
{
    uint32_t n;
    const int64_t *values = ir_attr_ints(node, name, &n);
    return values && i < n ? values[i] : fallback;
}

typedef struct scan_input {
    const ir_tensor *x;
    op_split_axis s;
    bool reverse;
    ir_tensor *slice; /* x without the scanned axis, refilled every iteration */
} scan_input;

static tacit_status scan_open(op_eval *c, uint32_t i, const ir_tensor *x, scan_input *out)
{
    if (x->kind != IR_TENSOR)
        return error_set(c->err, TACIT_ERR_TYPE, "scan input %u must be a tensor", i);
    out->x = x;
    out->reverse = list_at(c->node, "scan_input_directions", i, 0) != 0;
    TRY(op_split_at(&x->shape, list_at(c->node, "scan_input_axes", i, 0), &out->s, c->err));
    ir_shape shape = {.rank = 0};
    for (int32_t d = 0; d < x->shape.rank; d++)
        if (d != out->s.axis)
            shape.dims[shape.rank++] = x->shape.dims[d];
    out->slice = ir_tensor_new(c->scratch, x->dtype, &shape);
    return out->slice ? TACIT_OK : error_memory(c->err, "Scan");
}

static void scan_slice(const scan_input *in, int64_t t)
{
    int64_t k = in->reverse ? in->s.size - 1 - t : t;
    for (int64_t o = 0; o < in->s.outer; o++)
        op_strip_copy(in->x->dtype, in->slice->data, o * in->s.inner, 1, in->x->data,
                      (o * in->s.size + k) * in->s.inner, 1, in->s.inner);
}

/* Scans the first `most` steps (-1: all). */
static tacit_status scan_run(loop_walk *w, uint32_t n_inputs, int64_t most)
{
    op_eval *c = w->c;
    TRY(walk_begin(w));
    scan_input *inputs = op_eval_scratch(c, (n_inputs + 1u) * sizeof *inputs);
    op_join *joins = op_eval_scratch(c, (w->n_scan + 1u) * sizeof *joins);
    if (!inputs || !joins)
        return error_memory(c->err, "Scan");
    for (uint32_t i = 0; i < w->n_state; i++)
        w->args[i] = op_in(c, w->first_in + i);
    for (uint32_t i = 0; i < n_inputs; i++) {
        TRY(scan_open(c, i, op_in(c, w->first_in + w->n_state + i), &inputs[i]));
        w->args[w->n_state + i] = inputs[i].slice;
        if (inputs[i].s.size != inputs[0].s.size)
            return error_set(c->err, TACIT_ERR_SHAPE, "scan input %u has %lld steps, input 0 %lld",
                             i, (long long)inputs[i].s.size, (long long)inputs[0].s.size);
    }
    if (most > inputs[0].s.size)
        return error_set(c->err, TACIT_ERR_VALUE, "a length of %lld for %lld steps",
                         (long long)most, (long long)inputs[0].s.size);
    for (int64_t t = 0; t < (most < 0 ? inputs[0].s.size : most); t++) {
        for (uint32_t i = 0; i < n_inputs; i++)
            scan_slice(&inputs[i], t);
        TRY(walk_step(w, t));
    }
    for (uint32_t i = 0; i < w->n_scan; i++)
        joins[i] = (op_join){.axis = list_at(c->node, "scan_output_axes", i, 0),
                             .new_axis = true,
                             .reverse = list_at(c->node, "scan_output_directions", i, 0) != 0};
    return walk_finish(w, joins);
}

/* Counts states and scan outputs of a Scan whose states begin at input `first_in`. */
static tacit_status scan_counts(op_eval *c, uint32_t first_in, loop_walk *w, uint32_t *n_inputs)
{
    int64_t given = ir_attr_int(c->node, "num_scan_inputs", 0);
    int64_t all = (int64_t)c->node->n_explicit - first_in;
    *w = (loop_walk){.c = c, .body = ir_attr_graph(c->node, "body"), .first_in = first_in};
    if (!w->body || given < 1 || given > all)
        return error_set(c->err, TACIT_ERR_GRAPH, "no body, or a bad num_scan_inputs %lld",
                         (long long)given);
    *n_inputs = (uint32_t)given;
    w->n_args = (uint32_t)all;
    w->n_state = (uint32_t)(all - given);
    if (c->n_out < w->n_state)
        return error_set(c->err, TACIT_ERR_GRAPH, "%u outputs for %u states", c->n_out, w->n_state);
    w->n_scan = c->n_out - w->n_state;
    return TACIT_OK;
}

static tacit_status scan_eval(op_eval *c)
{
    loop_walk w;
    uint32_t n_inputs;
    TRY(scan_counts(c, 0, &w, &n_inputs));
    tacit_status status = scan_run(&w, n_inputs, -1);
    walk_end(&w);
    return status;
}

/* Types of the formal inputs and outer values go into the body, and the body tells the outputs'.
 * What it cannot tell before running stays as declared. */
static tacit_status scan_infer(op_infer *c)
{
    const ir_node *n = c->node;
    ir_graph *body = ir_attr_graph(n, "body");
    int64_t xs = ir_attr_int(n, "num_scan_inputs", 0), length = -1;
    for (uint32_t i = 0; i < c->n_out; i++)
        if (n->outputs[i])
            c->out[i] = n->outputs[i]->type;
    if (!body || xs < 1 || xs > (int64_t)n->n_explicit || body->inputs.count != n->n_explicit ||
        body->outputs.count != c->n_out || body->captures.count != c->n_in - n->n_explicit)
        return TACIT_OK; /* running it says what is wrong */
    uint32_t states = n->n_explicit - (uint32_t)xs;
    for (uint32_t i = 0; i < c->n_in; i++) {
        ir_value *formal =
            i < n->n_explicit ? body->inputs.data[i] : body->captures.data[i - n->n_explicit];
        if (!c->in[i] || c->in[i]->kind != IR_TENSOR)
            return TACIT_OK;
        if (!formal)
            continue;
        ir_type type = *c->in[i];
        if (i >= states && i < n->n_explicit) {
            op_split_axis s;
            TRY(op_split_at(&type.shape, list_at(n, "scan_input_axes", i - states, 0), &s, c->err));
            for (int32_t d = s.axis; d + 1 < type.shape.rank; d++)
                type.shape.dims[d] = type.shape.dims[d + 1];
            type.shape.rank--;
            length = s.size;
        }
        formal->type = type;
    }
    tacit_error ignored;
    if (op_infer_graph(body, &ignored) != TACIT_OK)
        return TACIT_OK;
    for (uint32_t i = 0; i < c->n_out; i++) {
        ir_type *type = &c->out[i];
        *type = i < states ? *c->in[i] : body->outputs.data[i]->type;
        if (i < states || !ir_type_is_static(type) || type->kind != IR_TENSOR)
            continue;
        int32_t axis;
        if (type->shape.rank >= IR_MAX_RANK)
            return error_set(c->err, TACIT_ERR_LIMIT, "scan output %u has too many axes", i);
        TRY(ir_axis(list_at(n, "scan_output_axes", i - states, 0), type->shape.rank + 1, &axis,
                    c->err));
        for (int32_t d = type->shape.rank++; d > axis; d--)
            type->shape.dims[d] = type->shape.dims[d - 1];
        type->shape.dims[axis] = length;
    }
    return TACIT_OK;
}

/* --- BatchedScan: the Scan of opset 8 --------------------------------------------------------- */

/* Inputs are (lengths?, states…, scans…) with a leading batch axis; every sample is scanned on its
 * own, scan outputs are padded with zeros to the longest. */

static tacit_status sample_of(op_eval *c, const ir_tensor *x, int64_t sample, ir_tensor *out)
{
    if (!x || x->kind != IR_TENSOR || x->shape.rank < 1 || tacit_dtype_bits(x->dtype) < 8)
        return error_set(c->err, TACIT_ERR_SHAPE, "an input has no batch axis");
    if (sample >= x->shape.dims[0])
        return error_set(c->err, TACIT_ERR_SHAPE, "the inputs differ in batch size");
    ir_shape shape = ir_shape_of(x->shape.rank - 1, x->shape.dims + 1);
    size_t bytes = ir_dtype_bytes(x->dtype, ir_shape_size(&shape));
    *out = ir_tensor_view(x->dtype, &shape, (const char *)x->data + (size_t)sample * bytes);
    return TACIT_OK;
}

static tacit_status pad_steps(op_eval *c, ir_tensor *t, int64_t steps)
{
    if (t->shape.dims[0] == steps)
        return TACIT_OK;
    ir_shape shape = t->shape;
    shape.dims[0] = steps;
    ir_tensor *padded = ir_tensor_new(c->scratch, t->dtype, &shape);
    if (!padded)
        return error_memory(c->err, "Scan");
    memset(padded->data, 0, padded->bytes);
    memcpy(padded->data, t->data, t->bytes);
    *t = *padded;
    return TACIT_OK;
}

/* One sample: `results` gets the states and scan outputs. */
static tacit_status scan_sample(op_eval *c, int64_t sample, int64_t steps, ir_tensor *results)
{
    loop_walk w;
    uint32_t n_inputs;
    op_eval one = *c;
    const ir_tensor *lengths = op_in(c, 0), **in = op_eval_scratch(c, c->n_in * sizeof *in + 1);
    ir_tensor *views = op_eval_scratch(c, c->n_in * sizeof *views + 1);
    ir_tensor **out = op_eval_scratch(c, c->n_out * sizeof *out + 1);
    if (!in || !views || !out)
        return error_memory(c->err, "Scan");
    for (uint32_t i = 0; i < c->n_in; i++) {
        in[i] = c->in[i];
        if (i == 0 || i >= c->node->n_explicit)
            continue;
        TRY(sample_of(c, c->in[i], sample, &views[i]));
        in[i] = &views[i];
    }
    for (uint32_t i = 0; i < c->n_out; i++)
        out[i] = c->out[i] ? &results[i] : NULL;
    one.in = in;
    one.out = out;
    one.memory = c->scratch;
    TRY(scan_counts(&one, 1, &w, &n_inputs));
    int64_t most = lengths ? ir_load_i64(lengths->dtype, lengths->data, sample) : -1;
    tacit_status status = scan_run(&w, n_inputs, most < -1 ? 0 : most);
    walk_end(&w);
    for (uint32_t i = w.n_state; status == TACIT_OK && i < c->n_out; i++)
        if (out[i])
            status = pad_steps(c, out[i], steps);
    return status;
}

static tacit_status batched_scan_eval(op_eval *c)
{
    const ir_tensor *last = op_in(c, c->node->n_explicit - 1), *lengths = op_in(c, 0);
    if (c->node->n_explicit < 2 || !last || last->kind != IR_TENSOR || last->shape.rank < 2)
        return error_set(c->err, TACIT_ERR_SHAPE, "scan inputs must be [batch, steps, …]");
    int64_t samples = last->shape.dims[0];
    if (lengths && (!ir_dtype_is_int(lengths->dtype) || ir_tensor_count(lengths) != samples))
        return error_set(c->err, TACIT_ERR_SHAPE, "one length per sample is needed");
    ir_tensor *results = ARENA_ARRAY(c->scratch, (size_t)samples * c->n_out + 1, ir_tensor);
    const ir_tensor **items = ARENA_ARRAY(c->scratch, (size_t)samples + 1, const ir_tensor *);
    if (!results || !items)
        return error_memory(c->err, "Scan");
    for (int64_t b = 0; b < samples; b++)
        TRY(scan_sample(c, b, last->shape.dims[1], results + b * c->n_out));
    for (uint32_t i = 0; i < c->n_out; i++) {
        if (!op_out(c, i))
            continue;
        for (int64_t b = 0; b < samples; b++)
            items[b] = &results[b * c->n_out + i];
        TRY(op_join_items(c, i, (uint32_t)samples, items, &(op_join){.new_axis = true}, NULL));
    }
    return TACIT_OK;
}

#define CONTROL_ROW(NAME, MIN, MAX, EVAL, ...)                                                     \
    {                                                                                              \
        .name = NAME, .min_in = MIN, .max_in = MAX, .min_out = 0, .max_out = -1,                   \
        .flags = OP_CONTROL | OP_ANY_KIND, .eval = EVAL, __VA_ARGS__                               \
    }

const op_def op_rows_control[] = {
    CONTROL_ROW("If", 1, 1, if_eval),
    CONTROL_ROW("Loop", 0, -1, loop_eval),
    CONTROL_ROW("Scan", 1, -1, scan_eval, .infer = scan_infer),
    {.name = "BatchedScan",
     .domain = "tacit",
     .min_in = 0,
     .max_in = -1,
     .min_out = 0,
     .max_out = -1,
     .flags = OP_CONTROL | OP_ANY_KIND,
     .eval = batched_scan_eval},
    {0},
};
