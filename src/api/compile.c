/* SPDX-License-Identifier: Apache-2.0
 * Compiling a model: clone, bind, infer, passes, program. */
#include <stdlib.h>
#include <string.h>

#include "api/internal.h"
#include "diff/diff.h"
#include "prog/validate.h"

void api_program_retain(const tacit_program *program)
{
    tacit_program *p = (tacit_program *)program;
    atomic_fetch_add_explicit(&p->references, 1, memory_order_relaxed);
}

void api_program_release(const tacit_program *program)
{
    tacit_program *p = (tacit_program *)program;
    if (!p || atomic_fetch_sub_explicit(&p->references, 1, memory_order_acq_rel) != 1)
        return;
    const tacit_model *model = p->model;
    prog_free(p->prog);
    slab_free(&p->weights);
    arena_free(&p->memory);
    mem_release(&model->allocator, p, sizeof *p);
    api_model_release(model);
}

const prog_program *api_program_prog(const tacit_program *program)
{
    return program->prog;
}

void tacit_program_free(tacit_program *program)
{
    api_program_release(program);
}

tacit_status api_bound_graph(const tacit_model *model, const tacit_dim *dims, uint32_t n_dims,
                             arena *memory, ir_graph **out, tacit_error *err)
{
    ir_graph *g = *out = ir_graph_clone(model->graph, memory);
    op_binding *bindings = ARENA_ARRAY(memory, n_dims + 1u, op_binding);
    if (!g || !bindings)
        return error_memory(err, "the graph");
    for (uint32_t i = 0; i < n_dims; i++) {
        if (!dims[i].name)
            return error_set(err, TACIT_ERR_ARGUMENT, "dimension %u has no name", i);
        bindings[i] = (op_binding){dims[i].name, dims[i].value};
    }
    TRY(op_bind_symbols(g, n_dims, bindings, err));
    TRY(ir_graph_sort(g, err));
    return op_infer_graph(g, err);
}

/* The output becomes a slice of itself, under the same name; passes move it to where it saves work.
 */
static tacit_status keep_last(ir_graph *g, const char *name, tacit_error *err)
{
    for (uint32_t i = 0; i < g->outputs.count; i++) {
        ir_value *v = g->outputs.data[i];
        if (!name || strcmp(v->name, name) != 0)
            continue;
        int32_t rank = v->type.shape.rank;
        int64_t size = rank >= 2 ? v->type.shape.dims[rank - 2] : 0;
        if (v->type.kind != IR_TENSOR || size < 1)
            return error_set(err, TACIT_ERR_ARGUMENT,
                             "output '%s' has no positions of which one could be the last", name);
        int64_t start = size - 1, axis = rank - 2;
        ir_value *in[4] = {v, ir_constant_i64(g, "start", 1, 1, &start),
                           ir_constant_i64(g, "end", 1, 1, &size),
                           ir_constant_i64(g, "axis", 1, 1, &axis)};
        ir_node *n = in[1] && in[2] && in[3] ? op_node(g, "Slice", "last", 4, in) : NULL;
        if (!n)
            return error_memory(err, "the graph");
        TRY(op_infer_node(g, n, err));
        g->outputs.data[i] = n->outputs[0];
        ir_swap_names(g, v, n->outputs[0]);
        return TACIT_OK;
    }
    return error_set(err, TACIT_ERR_ARGUMENT, "the model has no output named '%s'",
                     name ? name : "(null)");
}

tacit_status api_keep_last(ir_graph *g, const tacit_compile_options *o, tacit_error *err)
{
    for (uint32_t i = 0; i < o->n_last_only; i++)
        TRY(keep_last(g, o->last_only[i], err));
    return TACIT_OK;
}

static tacit_status run_passes(tacit_program *p, const tacit_compile_options *o, tacit_error *err)
{
    static const char *const all[] = {"all"};
    pass_options options = {.disabled = o->disabled_passes,
                            .n_disabled = o->n_disabled_passes,
                            .late_weights = true,
                            .log = &p->log};
    /* The oracle runs what was loaded, not what was made of it. */
    if (o->executor == TACIT_EXEC_REFERENCE) {
        options.disabled = all;
        options.n_disabled = 1;
    }
    return pass_pipeline(p->graph, &options, &p->memory, &p->passes, err);
}

static tacit_status packed_file(tacit_program *p, const tacit_compile_options *o, const char **out,
                                tacit_error *err)
{
    *out = o->packed_file;
    if (!o->packed_file || strcmp(o->packed_file, "auto") != 0)
        return TACIT_OK;
    if (!p->model->path)
        return error_set(err, TACIT_ERR_ARGUMENT,
                         "packed_file is \"auto\", but the model was not loaded from a file");
    *out = arena_printf(&p->memory, "%s.tacit-cache", p->model->path);
    return *out ? TACIT_OK : error_memory(err, "a file name");
}

static bool is_op(const ir_node *n, const char *type)
{
    return strcmp(n->type, type) == 0;
}

/* Bytes that will be packed of a node's weight, about. */
static size_t packed_weight(const ir_node *n, const ir_tensor *t, bool rows_are_bytes)
{
    enum { LARGE = 64 << 10 };
    uint32_t bits = tacit_dtype_bits(t->dtype);
    bool is_byte = t->dtype == TACIT_I8 || t->dtype == TACIT_U8 || bits == 4;
    bool is_half = t->dtype == TACIT_F16 || t->dtype == TACIT_BF16; /* so for one row, or as f32 */
    bool few_bits = is_op(n, "MatMulNBits");                        /* its scales are a row */
    if ((t->shape.rank < 2 && !few_bits) || t->bytes < LARGE ||
        (t->dtype != TACIT_F32 && !is_byte && !is_half) || is_op(n, "Gather"))
        return 0;
    if (is_byte && few_bits && ir_attr_int(n, "accuracy_level", 0) != 4)
        return t->bytes * (ir_attr_int(n, "bits", 4) == 8 ? 4 : 8);
    if (is_byte && is_op(n, "DequantizeLinear") && !rows_are_bytes)
        return t->bytes * (32 / bits);
    return t->bytes;
}

/* Weights that kernels do not read where they lie, about; 0 where the graph is compiled sooner than
 * memory is found for them. */
static size_t packed_weights(tacit_program *p)
{
    enum { MANY = 64 }; /* nodes, in half a millisecond */
    const ir_graph *g = p->model->graph;
    bool *counted = arena_alloc_zero(&p->memory, g->values.count + 1u), rows_are_bytes = false;
    size_t sum = 0;
    if (g->nodes.count < MANY || !counted)
        return 0;
    for (uint32_t i = 0; i < g->nodes.count; i++)
        rows_are_bytes |= is_op(g->nodes.data[i], "QuantizeLinear");
    for (uint32_t i = 0; i < g->nodes.count; i++) {
        const ir_node *n = g->nodes.data[i];
        for (uint32_t k = 0; k < n->n_inputs; k++) {
            const ir_value *v = n->inputs[k];
            const ir_tensor *t = v && v->is_initializer ? v->constant : NULL;
            size_t bytes = t && !counted[v->id] ? packed_weight(n, t, rows_are_bytes) : 0;
            counted[t ? v->id : g->values.count] |= bytes > 0;
            sum += bytes;
        }
    }
    return sum;
}

static tacit_status compile(tacit_program *p, const tacit_compile_options *o, tacit_error *err)
{
    slab_init(&p->weights, &p->model->allocator, o->packed_file ? 0 : packed_weights(p));
    prog_prepare(o->executor, &p->weights);
    if (o->cache_capacity)
        TRY(api_cache_bind(p, o, err));
    else
        TRY(api_bound_graph(p->model, o->dims, o->n_dims, &p->memory, &p->graph, err));
    TRY(api_keep_last(p->graph, o, err));
    TRY(diff_gradient_nodes(p->graph, err));
    TRY(validate_graph(p->graph, VALIDATE_LOADED, o->validate, &p->log, err));
    TRY(run_passes(p, o, err));
    if (o->cache_capacity)
        TRY(api_cache_rewrite(p, o, err));
    TRY(validate_graph(p->graph, VALIDATE_PASSED, o->validate, &p->log, err));
    TRY(api_settle_weights(p->model, p->graph, err));
    tacit_tuning *own = NULL, *tuning = o->tuning;
    if (!tuning && o->executor != TACIT_EXEC_REFERENCE) {
        TRY(tacit_tuning_open(NULL, &own, err));
        tuning = own;
    }
    prog_options options = {.executor = o->executor,
                            .plan = o->plan,
                            .validate = o->validate,
                            .update_in_place = o->update_in_place != 0,
                            .threads = o->threads,
                            .workers = o->workers,
                            .allocator = &p->model->allocator,
                            .weights = &p->weights,
                            .log = &p->log,
                            .batch_invariant = o->batch_invariant != 0,
                            .plain_sums = o->plain_sums != 0,
                            .start_early = o->start_early != 0,
                            .tuning = api_tuning(tuning),
                            .identify = api_model_identify,
                            .identify_context = (void *)p->model,
                            .drop = api_model_drop,
                            .place = api_model_place,
                            .owner = (void *)p->model};
    tacit_status status = packed_file(p, o, &options.packed_file, err);
    if (status == TACIT_OK)
        status = prog_build(p->graph, &options, &p->prog, err);
    tacit_tuning_free(own);
    return status;
}

static tacit_status check_options(const tacit_compile_options *o, tacit_error *err)
{
    if ((unsigned)o->executor > TACIT_EXEC_TASKS || (unsigned)o->validate > TACIT_VALIDATE_NONE ||
        (unsigned)o->plan > TACIT_PLAN_MIN_TIME)
        return error_set(err, TACIT_ERR_ARGUMENT, "an option of tacit_compile is out of range");
    if ((o->n_dims && !o->dims) || (o->n_disabled_passes && !o->disabled_passes) ||
        (o->n_last_only && !o->last_only))
        return error_set(err, TACIT_ERR_ARGUMENT, "a list option of tacit_compile is NULL");
    for (uint32_t i = 0; i < o->n_disabled_passes; i++) {
        const char *name = o->disabled_passes[i];
        bool known = name && strcmp(name, "all") == 0;
        for (uint32_t k = 0; name && !known && pass_at(k); k++)
            known = strcmp(pass_at(k)->name, name) == 0;
        if (!known)
            return error_set(err, TACIT_ERR_ARGUMENT, "there is no pass named '%s'",
                             name ? name : "(null)");
    }
    return TACIT_OK;
}

tacit_status tacit_compile(const tacit_model *model, const tacit_compile_options *options,
                           tacit_program **out, tacit_error *err)
{
    static const tacit_compile_options defaults;
    const tacit_compile_options *o = options ? options : &defaults;
    if (!model || !out)
        return error_set(err, TACIT_ERR_ARGUMENT, "tacit_compile: model and out must not be NULL");
    *out = NULL;
    TRY(check_options(o, err));
    tacit_program *p = mem_alloc_zero(&model->allocator, sizeof *p);
    if (!p)
        return error_memory(err, "a program");
    atomic_init(&p->references, 1);
    p->model = model;
    api_model_retain(model);
    p->log = o->log ? *o->log : model->log;
    arena_init(&p->memory, &model->allocator);
    tacit_status status = compile(p, o, err);
    if (status != TACIT_OK) {
        api_program_release(p);
        return status;
    }
    *out = p;
    return TACIT_OK;
}

uint32_t tacit_program_input_count(const tacit_program *program)
{
    return program->graph->inputs.count - program->hidden_inputs;
}

uint32_t tacit_program_output_count(const tacit_program *program)
{
    return program->graph->outputs.count;
}

tacit_status tacit_program_input(const tacit_program *program, uint32_t index, tacit_port *out)
{
    if (index >= program->graph->inputs.count - program->hidden_inputs)
        return TACIT_ERR_ARGUMENT;
    api_port(program->graph, program->graph->inputs.data[index], out);
    return TACIT_OK;
}

tacit_status tacit_program_output(const tacit_program *program, uint32_t index, tacit_port *out)
{
    if (index >= program->graph->outputs.count)
        return TACIT_ERR_ARGUMENT;
    api_port(program->graph, program->graph->outputs.data[index], out);
    out->name = program->prog->output_names[index];
    return TACIT_OK;
}

void tacit_program_memory(const tacit_program *program, tacit_memory_report *out)
{
    const prog_program *p = program->prog;
    *out = (tacit_memory_report){.weight_bytes = p->weight_bytes,
                                 .packed_bytes = p->packed_bytes,
                                 .arena_bytes = p->plan.arena_bytes,
                                 .scratch_bytes = p->largest_scratch,
                                 .lower_bound_bytes = p->plan.lower_bound,
                                 .argument_bytes = p->args_size,
                                 .thunks = p->n_thunks,
                                 .nodes = p->n_nodes + p->n_tail,
                                 .has_dynamic_tail = p->n_tail || p->n_tail_wanted,
                                 .mapped_bytes = p->mapped_bytes};
}
