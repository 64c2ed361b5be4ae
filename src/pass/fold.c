/* SPDX-License-Identifier: Apache-2.0
 * Constant folding: small values by the reference evaluators, large ones by the kernels that would
 * run otherwise, so that it takes no longer than a first run. Bytes it may add are budgeted, and
 * what lowers to a view of a weight is left alone: it costs nothing at run time, while folding
 * would copy it. */
#include "op/lower.h"
#include "pass/edit.h"

enum { SMALL = 64 * 1024 };

static bool relabels(const pass_edit *e, const ir_node *n)
{
    return pass_is(e, n, PASS_RESHAPE) || pass_is(e, n, PASS_SQUEEZE) ||
           pass_is(e, n, PASS_UNSQUEEZE) || pass_is(e, n, PASS_FLATTEN) ||
           pass_is(e, n, PASS_IDENTITY);
}

/* Are all inputs constants, or views of them through so many operators? Views of weights are left
 * alone, but what is made of nothing but them is a constant as well. */
enum { VIEWS = 4 };
static bool inputs_known(const ir_node *n, int views)
{
    for (uint32_t k = 0; k < n->n_inputs; k++) {
        const ir_value *v = n->inputs[k];
        if (!v || ir_value_known(v))
            continue;
        const ir_node *p = v->producer;
        if (views == 0 || !p || !p->op || !p->op->alias || !p->op->eval ||
            p->op->flags & (OP_RANDOM | OP_CONTROL) || !pass_static(v) ||
            !inputs_known(p, views - 1))
            return false;
    }
    return true;
}

/* All outputs wanted are plain static tensors; *bytes is what they take, *known whether inference
 * has computed them already. */
static bool foldable_outputs(const ir_node *n, size_t *bytes, bool *known)
{
    *bytes = 0;
    *known = true;
    for (uint32_t k = 0; k < n->n_outputs; k++) {
        const ir_value *v = n->outputs[k];
        size_t size;
        if (!v)
            continue;
        if (!pass_static(v) || v->type.dtype == TACIT_STRING || !ir_type_bytes(&v->type, &size))
            return false;
        *bytes += size;
        *known &= ir_value_known(v) != NULL;
    }
    return n->n_outputs > 0;
}

static bool read_elementwise_only(const pass_edit *e, const ir_value *v)
{
    for (const pass_use *u = pass_first_use(e, v); u; u = pass_next_use(e, u))
        if (!u->node || !u->node->op || !(u->node->op->flags & OP_ELEMENTWISE))
            return false;
    return true;
}

/* Would a view be copied in every run, since no reader's kernel takes it as it lies? */
static bool read_dense_only(const pass_edit *e, const ir_value *v)
{
    for (const pass_use *u = pass_first_use(e, v); u; u = pass_next_use(e, u))
        if (!u->node || !u->node->op || !u->node->op->lower || u->node->op->accepts ||
            u->node->op->alias)
            return false;
    return true;
}

static double elements(uint32_t n, ir_value *const *values)
{
    double total = 0;
    for (uint32_t k = 0; k < n; k++)
        if (values[k])
            total += (double)ir_shape_size(&values[k]->type.shape);
    return total;
}

/* Would the reference evaluator take long? Products of large weights may cost minutes here and
 * milliseconds in their kernel. Ops that touch each element once are always quick enough. */
static bool takes_long(const pass_edit *e, const ir_node *n)
{
    static const pass_op linear[] = {PASS_CONCAT,      PASS_GATHER,     PASS_PAD,  PASS_REDUCE_MAX,
                                     PASS_REDUCE_MEAN, PASS_REDUCE_SUM, PASS_CAST, PASS_DEQUANTIZE,
                                     PASS_BATCH_NORM,  PASS_LAYER_NORM};
    if (n->op->flags & OP_ELEMENTWISE || n->op->alias)
        return false;
    for (size_t i = 0; i < sizeof linear / sizeof *linear; i++)
        if (pass_is(e, n, linear[i]))
            return false;
    return elements(n->n_inputs, n->inputs) * elements(n->n_outputs, n->outputs) > 0x1p40;
}

/* Is this the weight of convolutions whose images are quantised too? These run on bytes. */
static bool byte_kernel(const pass_edit *e, const ir_node *n)
{
    for (const pass_use *u = pass_first_use(e, n->outputs[0]); u; u = pass_next_use(e, u))
        if (!u->node || u->index != 1 || !pass_is(e, u->node, PASS_CONV) ||
            !pass_from(e, u->node->inputs[0], PASS_DEQUANTIZE))
            return false;
    return true;
}

static bool worth_it(pass_edit *e, ir_node *n, size_t bytes)
{
    if (pass_is(e, n, PASS_DEQUANTIZE) && byte_kernel(e, n))
        return false;
    if (bytes <= SMALL)
        return true;
    if (pass_unfolds(n)) /* its spelling is folded by kernels in the next round */
        return false;
    if (pass_is(e, n, PASS_DEQUANTIZE)) /* the quantised form is what kernels want to read */
        return false;
    if (pass_late(e, bytes) &&
        pass_widens_weight(e, n)) /* they are packed as they are, or widened then */
        return false;
    /* A mask cut out of a table is worth its copy, as its pattern is looked for; weights are not
     * (those of recurrent layers must be constants for their kernel). */
    bool copied = pass_is(e, n, PASS_TRANSPOSE) && read_dense_only(e, n->outputs[0]);
    return !n->op->alias || copied || read_elementwise_only(e, n->outputs[0]);
}

/* The same bytes under another shape. */
static tacit_status relabel(pass_edit *e, ir_node *n)
{
    ir_value *y = n->outputs[0];
    ir_tensor *t = ARENA_NEW(e->g->memory, ir_tensor);
    if (!t)
        return error_memory(e->c->err, "a folded constant");
    *t = ir_tensor_view(y->type.dtype, &y->type.shape, n->inputs[0]->constant->data);
    y->constant = t;
    pass_become_constants(e, n);
    e->c->rewrites++;
    return TACIT_OK;
}

/* By the evaluator. What fails will say so when it is run, if it ever is. */
static tacit_status evaluate(pass_edit *e, ir_node *n, const ir_tensor *const *in, ir_tensor *out,
                             arena *memory)
{
    tacit_error why = {0};
    op_exec_env env = {.memory = memory};
    if (takes_long(e, n)) {
        pass_near_miss(e, n, "not folded: the reference would take too long");
        return TACIT_ERR_UNSUPPORTED;
    }
    tacit_status status = op_execute(n, in, out, &env, &why);
    if (status != TACIT_OK && status != TACIT_ERR_MEMORY)
        pass_near_miss(e, n, "not folded: %s", why.message);
    return status;
}

static tacit_status gather_inputs(pass_edit *e, const ir_node *n, const ir_tensor ***in);

/* A view of constants, copied for as long as the pass runs. */
static tacit_status copy_view(pass_edit *e, const ir_value *v, const ir_tensor **copy)
{
    ir_node *n = v->producer;
    const ir_tensor **in;
    ir_tensor *out = ARENA_ARRAY(e->c->scratch, n->n_outputs + 1u, ir_tensor);
    if (!out)
        return TACIT_ERR_MEMORY;
    TRY(gather_inputs(e, n, &in));
    TRY(evaluate(e, n, in, out, e->c->scratch));
    *copy = &out[v->output_index];
    return TACIT_OK;
}

/* What the inputs of a node hold, which are constants or views of them. */
static tacit_status gather_inputs(pass_edit *e, const ir_node *n, const ir_tensor ***in)
{
    *in = ARENA_ARRAY(e->c->scratch, n->n_inputs + 1u, const ir_tensor *);
    if (!*in)
        return TACIT_ERR_MEMORY;
    for (uint32_t k = 0; k < n->n_inputs; k++) {
        (*in)[k] = ir_value_known(n->inputs[k]);
        if (n->inputs[k] && !(*in)[k])
            TRY(copy_view(e, n->inputs[k], &(*in)[k]));
    }
    return TACIT_OK;
}

static tacit_status compute(pass_edit *e, ir_node *n, size_t bytes)
{
    const ir_tensor **in;
    ir_tensor *out = ARENA_ARRAY(e->g->memory, n->n_outputs + 1u, ir_tensor);
    tacit_status status = out ? gather_inputs(e, n, &in) : TACIT_ERR_MEMORY;
    tacit_error why = {0};
    if (status == TACIT_OK)
        status = bytes > SMALL ? op_run_kernels(e->g, n, in, out, e->g->memory, &why)
                               : OP_LOWER_NO_KERNEL;
    else if (status != TACIT_ERR_MEMORY)
        return TACIT_OK;
    if (status != TACIT_OK && status != TACIT_ERR_MEMORY)
        status = evaluate(e, n, in, out, e->g->memory);
    if (status == TACIT_ERR_MEMORY)
        return error_memory(e->c->err, "folding constants");
    if (status != TACIT_OK)
        return TACIT_OK;
    for (uint32_t k = 0; k < n->n_outputs; k++) {
        const ir_value *v = n->outputs[k];
        ir_type type = ir_tensor_type(&out[k]);
        if (v && (!out[k].data || !ir_type_equal(&v->type, &type)))
            return TACIT_OK;
    }
    for (uint32_t k = 0; k < n->n_outputs; k++)
        if (n->outputs[k])
            n->outputs[k]->constant = &out[k];
    pass_become_constants(e, n);
    *e->c->fold_left -= bytes; /* what was not folded took nothing of it */
    e->c->rewrites++;
    return TACIT_OK;
}

static tacit_status fold(pass_edit *e, ir_node *n)
{
    size_t bytes;
    bool known;
    if (!n->type || !n->op || n->op->flags & (OP_RANDOM | OP_CONTROL) || ir_node_has_subgraph(n) ||
        !foldable_outputs(n, &bytes, &known))
        return TACIT_OK;
    if (known && !(pass_is(e, n, PASS_DEQUANTIZE) && byte_kernel(e, n))) {
        pass_become_constants(e, n);
        e->c->rewrites++;
        return TACIT_OK;
    }
    if (!n->op->eval || !inputs_known(n, n->op->alias ? 0 : VIEWS))
        return TACIT_OK;
    if (relabels(e, n))
        return relabel(e, n);
    if (!worth_it(e, n, bytes))
        return TACIT_OK;
    if (bytes > *e->c->fold_left) {
        pass_near_miss(e, n, "not folded: %zu bytes are over what is left of the budget", bytes);
        return TACIT_OK;
    }
    return compute(e, n, bytes);
}

tacit_status pass_fold_constants(pass_context *c)
{
    pass_edit e;
    TRY(pass_edit_begin(&e, c));
    for (uint32_t i = 0; i < c->graph->nodes.count; i++)
        TRY(fold(&e, c->graph->nodes.data[i]));
    return TACIT_OK;
}
