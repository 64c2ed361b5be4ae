/* SPDX-License-Identifier: Apache-2.0
 * Every planned node to thunks: by its row's kernel, as a strided copy, or by its evaluator. */
#include "prog/program.h"

static tacit_status make_operands(prog_program *p, op_lower *c, tacit_error *err)
{
    const ir_node *node = c->node;
    op_operand *in = ARENA_ARRAY(&p->memory, node->n_inputs + 1u, op_operand);
    op_operand *out = ARENA_ARRAY(&p->memory, node->n_outputs + 1u, op_operand);
    if (!in || !out)
        return error_memory(err, "lowering");
    bool takes_late = node->op->flags & OP_LATE_WEIGHTS;
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        const ir_tensor *weight = ir_value_weight(node->inputs[i]);
        if (!takes_late)
            TRY(ir_tensor_make(weight, err));
        in[i] = plan_operand(p->views, node->inputs[i]);
        if (ir_tensor_is_late(weight))
            in[i].constant = weight;
    }
    for (uint32_t i = 0; i < node->n_outputs; i++)
        out[i] = plan_operand(p->views, node->outputs[i]);
    c->in = in;
    c->out = out;
    return TACIT_OK;
}

/* Does the row's own lowering take every operand as it lies, and own every output? */
static bool suits_kernel(const prog_program *p, const op_lower *c)
{
    const ir_node *node = c->node;
    for (uint32_t i = 0; i < node->n_inputs; i++)
        if (c->in[i].value && !c->in[i].dense &&
            !(node->op->accepts && node->op->accepts(node, i, &c->in[i])))
            return false;
    for (uint32_t i = 0; i < node->n_outputs; i++)
        if (node->outputs[i] && plan_is_view(p->views, node->outputs[i]))
            return false;
    return node->op->lower != NULL;
}

/* A refused attempt leaves nothing behind. */
static void start_over(op_lower *c, uint32_t jobs, const slab_mark *marks)
{
    slab_back(c->constants, marks[0]);
    slab_back(c->weights, marks[1]);
    c->packed.count = 0;
    c->thunks.count = 0;
    c->scratch = 0;
    c->jobs->count = jobs;
}

static tacit_status lower_node(prog_program *p, op_lower *c, tacit_error *err)
{
    tacit_status status = OP_LOWER_NO_KERNEL;
    uint32_t jobs = c->jobs->count;
    slab_mark marks[2] = {slab_here(c->constants), slab_here(c->weights)};
    TRY(make_operands(p, c, err));
    if (suits_kernel(p, c)) {
        status = c->node->op->lower(c);
        if (status != OP_LOWER_NO_KERNEL)
            return status;
        start_over(c, jobs, marks);
    }
    status = prog_lower_copy(c, p->views);
    if (status != OP_LOWER_NO_KERNEL)
        return status;
    start_over(c, jobs, marks);
    if (c->node->op->lower)
        op_lower_note(c, "no kernel takes these types: the evaluator runs");
    else
        op_lower_note(c, "the op has no kernel: the evaluator runs");
    return prog_lower_eval(c);
}

/* About as much as will be packed. */
static size_t constant_bytes(const ir_graph *g)
{
    size_t sum = 0, bytes;
    for (uint32_t i = 0; i < g->values.count; i++)
        if (plan_is_constant(g->values.data[i]) && ir_type_bytes(&g->values.data[i]->type, &bytes))
            sum += bytes;
    return sum;
}

/* What is kept in a file must be there; otherwise planning and the first run go on beside. */
static tacit_status pack_weights(prog_program *p, const op_jobs *jobs, const uint32_t *first_job,
                                 tacit_error *err)
{
    slab_settle(&p->weights);
    if (!jobs->count)
        return TACIT_OK;
    if (p->packed.path)
        TRY(packed_map(&p->packed, err));
    if (p->packed.mapped) {
        p->mapped_bytes = p->packed.bytes;
        /* With tasks all processors run from the beginning. */
        if (!p->options.start_early || p->options.executor == TACIT_EXEC_TASKS)
            return TACIT_OK;
        return prog_packing_fetch(&p->lowered[0], p->packed.region - PACKED_HEAD,
                                  PACKED_HEAD + p->packed.bytes, p->n_nodes, &p->packing, err);
    }
    TRY(prog_packing_start(&p->lowered[0], jobs, first_job, p->n_nodes, p->packed.path != NULL,
                           &p->packing, err));
    packed_save(&p->packed);
    return TACIT_OK;
}

tacit_status prog_lower(prog_program *p, tacit_error *err)
{
    op_jobs jobs = {0};
    size_t constants = constant_bytes(p->graph);
    p->packed = (packed_store){.path = p->options.packed_file,
                               .identify = p->options.identify,
                               .identify_context = p->options.identify_context,
                               .log = p->options.log};
    slab_init(&p->constants, p->allocator, 0);
    TRY(packed_open(&p->packed, &p->weights, constants, err));
    p->lowered = ARENA_ARRAY(&p->memory, p->n_nodes + 1u, op_lower);
    p->scratch = ARENA_ARRAY(&p->memory, p->n_nodes + 1u, size_t);
    uint32_t *first_job = ARENA_ARRAY(&p->memory, p->n_nodes + 1u, uint32_t);
    if (!p->lowered || !p->scratch || !first_job)
        return error_memory(err, "lowering");
    for (uint32_t i = 0; i < p->n_nodes; i++) {
        op_lower *c = &p->lowered[i];
        *c = (op_lower){.graph = p->graph,
                        .node = p->nodes[i],
                        .cpu = p->cpu,
                        .memory = &p->memory,
                        .allocator = p->allocator,
                        .constants = &p->constants,
                        .constant_bytes = constants,
                        .weights = &p->weights,
                        .drop = p->options.drop,
                        .place = p->options.place,
                        .owner = p->options.owner,
                        .jobs = &jobs,
                        .serial = p->options.executor == TACIT_EXEC_SERIAL,
                        .batch_invariant = p->options.batch_invariant,
                        .plain_sums = p->options.plain_sums,
                        .tuning = p->options.tuning,
                        .err = err};
        first_job[i] = jobs.count;
        if (plan_is_alias_node(p->views, c->node)) {
            op_lower_note(c, plan_joins_in_place(p->views, c->node)
                                 ? "its inputs are made where it joins them: moves no bytes"
                                 : "a view: moves no bytes");
            continue;
        }
        tacit_status status = lower_node(p, c, err);
        if (status != TACIT_OK)
            return op_context(c->node, status, err);
        if (p->packed.path)
            TRY(packed_note(&p->packed, c, first_job[i]));
        p->scratch[i] = c->scratch;
        for (uint32_t k = 0; k < c->packed.count; k++)
            p->packed_bytes += c->packed.data[k].bytes;
        if (c->scratch > p->largest_scratch)
            p->largest_scratch = c->scratch;
    }
    first_job[p->n_nodes] = jobs.count;
    for (uint32_t i = 0; i < p->n_nodes; i++)
        p->lowered[i].jobs = NULL;
    return pack_weights(p, &jobs, first_job, err);
}
