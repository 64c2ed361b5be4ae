/* SPDX-License-Identifier: Apache-2.0 */
#include "api/conform.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "api/compare.h"
#include "api/internal.h"

enum { MAX_MAPS = 256 };

typedef struct conform_case {
    arena memory;
    file_map maps[MAX_MAPS]; /* the test data: tensors point into them */
    uint32_t n_maps;
    tacit_model *model;
    const ir_graph *graph;
    const tacit_compile_options *options;
    tacit_error err;
} conform_case;

static tacit_status map_file(conform_case *c, const char *path, const file_map **out)
{
    if (c->n_maps == MAX_MAPS)
        return error_set(&c->err, TACIT_ERR_LIMIT, "the case has more than %d files", MAX_MAPS);
    TRY(file_map_open(&c->maps[c->n_maps], path, &c->err));
    *out = &c->maps[c->n_maps++];
    return TACIT_OK;
}

static tacit_status load_model(conform_case *c, const char *path)
{
    TRY(tacit_model_load(path, NULL, &c->model, &c->err));
    c->graph = api_model_graph(c->model);
    return TACIT_OK;
}

static tacit_status read_value(conform_case *c, const char *path, ir_kind kind, ir_tensor *out)
{
    const file_map *m = NULL;
    TRY(map_file(c, path, &m));
    tacit_status status = load_onnx_value(m->data, m->size, kind, &c->memory, out, &c->err);
    return status == TACIT_OK ? status : error_context(&c->err, status, "%s", path);
}

/* Reads FOLDER/STEM_K.pb for every port of `ports`. */
static tacit_status read_set(conform_case *c, const char *folder, const char *stem,
                             ir_value *const *ports, uint32_t n, ir_tensor **out)
{
    ir_tensor *values = ARENA_ARRAY(&c->memory, n + 1u, ir_tensor);
    if (!values)
        return error_memory(&c->err, "test data");
    for (uint32_t k = 0; k < n; k++) {
        const char *path = arena_printf(&c->memory, "%s/%s_%u.pb", folder, stem, k);
        if (!path)
            return error_memory(&c->err, "a path");
        TRY(read_value(c, path, ports[k]->type.kind, &values[k]));
    }
    *out = values;
    return TACIT_OK;
}

/* The light models' input: 0/n, 1/n, …; symbolic dims are 1. */
static tacit_status generate(conform_case *c, const ir_value *port, ir_tensor *out)
{
    ir_shape shape = port->type.shape;
    if (port->type.dtype != TACIT_F32 || shape.rank < 0)
        return error_set(&c->err, TACIT_ERR_UNSUPPORTED, "input '%s' is not a float tensor",
                         port->name);
    for (int32_t i = 0; i < shape.rank; i++)
        if (shape.dims[i] < 0)
            shape.dims[i] = 1;
    ir_tensor *t = ir_tensor_new(&c->memory, TACIT_F32, &shape);
    if (!t)
        return error_memory(&c->err, "an input");
    int64_t n = ir_tensor_count(t);
    for (int64_t i = 0; i < n; i++)
        ((float *)t->data)[i] = (float)((double)i / (double)n);
    *out = *t;
    return TACIT_OK;
}

/* Symbolic dims take the sizes of the inputs that are given. */
static tacit_status bind_dims(conform_case *c, const ir_tensor *inputs, tacit_compile_options *o)
{
    const ir_graph *g = c->graph;
    tacit_dim *dims = ARENA_ARRAY(&c->memory, g->symbols.count + o->n_dims + 1u, tacit_dim);
    if (!dims)
        return error_memory(&c->err, "dimensions");
    uint32_t n = 0;
    for (uint32_t k = 0; k < g->symbols.count; k++) {
        dims[n] = (tacit_dim){g->symbols.data[k].name, -1};
        for (uint32_t i = 0; i < g->inputs.count; i++) {
            const ir_shape *s = &g->inputs.data[i]->type.shape;
            for (int32_t d = 0; d < s->rank && s->rank == inputs[i].shape.rank; d++)
                if (s->dims[d] == IR_DIM_SYMBOL(k))
                    dims[n].value = inputs[i].shape.dims[d];
        }
        n += dims[n].value >= 0;
    }
    for (uint32_t i = 0; i < o->n_dims; i++)
        dims[n++] = o->dims[i];
    o->dims = dims;
    o->n_dims = n;
    return TACIT_OK;
}

static tacit_status run(conform_case *c, const ir_tensor *inputs, ir_tensor *outputs)
{
    uint32_t n = c->graph->inputs.count;
    const ir_tensor **list = ARENA_ARRAY(&c->memory, n + 1u, const ir_tensor *);
    if (!list)
        return error_memory(&c->err, "inputs");
    for (uint32_t i = 0; i < n; i++)
        list[i] = &inputs[i];
    tacit_compile_options options = c->options ? *c->options : (tacit_compile_options){0};
    TRY(bind_dims(c, inputs, &options));
    tacit_program *program = NULL;
    tacit_session *session = NULL;
    tacit_status status = tacit_compile(c->model, &options, &program, &c->err);
    if (status == TACIT_OK)
        status = tacit_session_create(program, &session, &c->err);
    if (status == TACIT_OK)
        status = prog_run_values(api_session_run(session), list, outputs, &c->memory, &c->err);
    tacit_session_free(session);
    tacit_program_free(program);
    return status;
}

/* --- random outputs --------------------------------------------------------------------------- */

/* Dropout with its seed is reproducible by definition; these are not. */
static bool is_random(const ir_graph *g)
{
    for (uint32_t i = 0; i < g->nodes.count; i++) {
        const ir_node *n = g->nodes.data[i];
        if (strcmp(n->type, "Bernoulli") == 0 || strcmp(n->type, "Multinomial") == 0 ||
            strncmp(n->type, "Random", 6) == 0)
            return true;
    }
    return false;
}

/* Draws of Bernoulli(p): zeros and ones whose sum is within five standard deviations of Σp. */
static tacit_status check_draws(conform_case *c, const ir_tensor *p, const ir_tensor *expected,
                                const ir_tensor *got)
{
    if (got->dtype != expected->dtype || !ir_shape_equal(&got->shape, &expected->shape))
        return error_set(&c->err, TACIT_ERR_TYPE, "type or shape differs from what is expected");
    double sum = 0.0, mean = 0.0, variance = 0.0;
    for (int64_t i = 0, n = ir_tensor_count(p); i < n; i++) {
        double q = ir_load_f64(p->dtype, p->data, i);
        double v = ir_dtype_is_float(got->dtype) ? ir_load_f64(got->dtype, got->data, i)
                                                 : (double)ir_load_i64(got->dtype, got->data, i);
        if (v != 0.0 && v != 1.0)
            return error_set(&c->err, TACIT_ERR_VALUE, "a draw is neither 0 nor 1");
        sum += v;
        mean += q;
        variance += q * (1.0 - q);
    }
    if (fabs(sum - mean) > 5.0 * sqrt(variance) + 1e-9)
        return error_set(&c->err, TACIT_ERR_VALUE, "%g ones where %g are expected", sum, mean);
    return TACIT_OK;
}

/* --- cases ------------------------------------------------------------------------------------ */

static tacit_status check_set(conform_case *c, const ir_tensor *inputs, const ir_tensor *expected)
{
    uint32_t n = c->graph->outputs.count;
    ir_tensor *got = ARENA_ARRAY(&c->memory, n + 1u, ir_tensor);
    if (!got)
        return error_memory(&c->err, "outputs");
    TRY(run(c, inputs, got));
    if (is_random(c->graph) && c->graph->inputs.count)
        return check_draws(c, &inputs[0], &expected[0], &got[0]);
    for (uint32_t i = 0; i < n; i++) {
        tacit_status status = compare_values(&expected[i], &got[i], &c->err);
        if (status != TACIT_OK)
            return error_context(&c->err, TACIT_ERR_VALUE, "output '%s'",
                                 c->graph->outputs.data[i]->name);
    }
    return TACIT_OK;
}

static tacit_status run_sets(conform_case *c, const char *data)
{
    for (uint32_t set = 0;; set++) {
        const char *folder = arena_printf(&c->memory, "%s/test_data_set_%u", data, set);
        if (!folder)
            return error_memory(&c->err, "a path");
        if (access(folder, F_OK) != 0)
            return set ? TACIT_OK : error_set(&c->err, TACIT_ERR_IO, "'%s' has no test data", data);
        ir_tensor *inputs = NULL, *expected = NULL;
        TRY(read_set(c, folder, "input", c->graph->inputs.data, c->graph->inputs.count, &inputs));
        TRY(read_set(c, folder, "output", c->graph->outputs.data, c->graph->outputs.count,
                     &expected));
        tacit_status status = check_set(c, inputs, expected);
        if (status != TACIT_OK)
            return set ? error_context(&c->err, status, "data set %u", set) : status;
    }
}

static tacit_status run_light(conform_case *c, const char *model)
{
    uint32_t n = c->graph->inputs.count;
    ir_tensor *inputs = ARENA_ARRAY(&c->memory, n + 1u, ir_tensor);
    ir_tensor expected;
    const char *path = arena_printf(&c->memory, "%.*s_output_0.pb", (int)strlen(model) - 5, model);
    if (!inputs || !path)
        return error_memory(&c->err, "inputs");
    if (c->graph->outputs.count != 1)
        return error_set(&c->err, TACIT_ERR_UNSUPPORTED, "a light model has one output");
    for (uint32_t i = 0; i < n; i++)
        TRY(generate(c, c->graph->inputs.data[i], &inputs[i]));
    TRY(read_value(c, path, IR_TENSOR, &expected));
    return check_set(c, inputs, &expected);
}

void conform_run(const char *model, const char *data, const tacit_compile_options *options,
                 conform_result *out)
{
    conform_case c = {.options = options};
    *out = (conform_result){.verdict = CONFORM_FAILED};
    snprintf(out->op, sizeof out->op, "%s", data ? "(none)" : "(light models)");
    arena_init(&c.memory, NULL);
    tacit_status status = load_model(&c, model);
    if (status == TACIT_OK && data && c.graph->nodes.count)
        snprintf(out->op, sizeof out->op, "%s", c.graph->nodes.data[0]->type);
    if (data && strstr(data, "_expanded"))
        snprintf(out->op, sizeof out->op, "(function bodies)");
    if (status == TACIT_OK)
        status = data ? run_sets(&c, data) : run_light(&c, model);
    if (status == TACIT_OK)
        out->verdict = c.graph && is_random(c.graph) ? CONFORM_RANDOM : CONFORM_PASSED;
    else {
        out->verdict = status == TACIT_ERR_UNSUPPORTED ? CONFORM_UNSUPPORTED : CONFORM_FAILED;
        snprintf(out->reason, sizeof out->reason, "%s", c.err.message);
    }
    tacit_model_free(c.model);
    for (uint32_t i = 0; i < c.n_maps; i++)
        file_map_close(&c.maps[i]);
    arena_free(&c.memory);
}
