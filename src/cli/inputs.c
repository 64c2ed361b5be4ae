/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/inputs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/internal.h"
#include "base/cpu.h"
#include "base/rng.h"
#include "load/load.h"

/* The tensor a user named on the command line. */
typedef struct given {
    const char *name, *spec; /* spec: a file name, "random" or "zeros" */
    ir_tensor tensor;        /* of a file */
    bool is_file, used;
} given;

int64_t cli_elements(const tacit_tensor *t)
{
    int64_t n = 1;
    for (int32_t i = 0; i < t->rank; i++)
        n *= t->dims[i];
    return n;
}

double cli_element(const tacit_tensor *t, int64_t index)
{
    return ir_load_f64(t->dtype, t->data, index);
}

const char *cli_tensor_type(const tacit_tensor *t, char *buffer)
{
    char shape[IR_SHAPE_TEXT];
    ir_shape s = ir_shape_of(t->rank, t->dims);
    snprintf(buffer, 320, "%s%s", tacit_dtype_text(t->dtype), ir_shape_text(&s, shape));
    return buffer;
}

tacit_status cli_load_npy(const char *path, arena *memory, ir_tensor *out, tacit_error *err)
{
    file_map file;
    ir_tensor mapped;
    TRY(file_map_open(&file, path, err));
    tacit_status status = load_npy(file.data, file.size, memory, &mapped, err);
    if (status != TACIT_OK)
        status = error_context(err, status, "%s", path);
    ir_tensor *copy = status == TACIT_OK ? ir_tensor_copy(memory, &mapped) : NULL;
    if (status == TACIT_OK && !copy)
        status = error_memory(err, path);
    if (copy)
        *out = *copy;
    file_map_close(&file);
    return status;
}

/* Largest value an integer input may take when it is used as an index, or `fallback`. */
static int64_t index_bound(const ir_graph *g, const char *name, int64_t fallback)
{
    const ir_value *v = ir_value_find(g, name);
    int64_t bound = INT64_MAX;
    for (uint32_t i = 0; v && i < g->nodes.count; i++) {
        const ir_node *n = g->nodes.data[i];
        if (strcmp(n->type, "Gather") != 0 || n->n_inputs < 2 || n->inputs[1] != v)
            continue;
        const ir_shape *s = &n->inputs[0]->type.shape;
        int32_t axis;
        if (ir_axis(ir_attr_int(n, "axis", 0), s->rank, &axis, NULL) == TACIT_OK &&
            s->dims[axis] > 0 && s->dims[axis] < bound)
            bound = s->dims[axis];
    }
    return bound == INT64_MAX ? fallback : bound;
}

static void fill_random(const ir_graph *g, tacit_tensor *t, rng *r)
{
    int64_t n = cli_elements(t);
    if (ir_dtype_is_float(t->dtype)) {
        for (int64_t i = 0; i < n; i++)
            ir_store_f64(t->dtype, t->data, i, rng_range(r, -1, 1));
        return;
    }
    int64_t bound = index_bound(g, t->name, 2);
    for (int64_t i = 0; i < n; i++)
        ir_store_i64(t->dtype, t->data, i, (int64_t)rng_below(r, (uint64_t)bound));
}

static int read_given(cli_job *job, const cli_list *items, given *list)
{
    for (uint32_t i = 0; i < items->count; i++) {
        const char *equals = strchr(items->items[i], '=');
        if (!equals || equals == items->items[i] || !equals[1])
            return cli_usage_error(job->command,
                                   "--input needs NAME=FILE.npy, NAME=random or "
                                   "NAME=zeros, not '%s'",
                                   items->items[i]);
        given *x = &list[i];
        x->name = arena_strndup(&job->memory, items->items[i], (size_t)(equals - items->items[i]));
        x->spec = equals + 1;
        x->is_file = strcmp(x->spec, "random") != 0 && strcmp(x->spec, "zeros") != 0;
        tacit_error err = {TACIT_OK, ""};
        if (!x->name)
            return cli_fail(job->command, "out of memory");
        if (x->is_file && cli_load_npy(x->spec, &job->memory, &x->tensor, &err) != TACIT_OK)
            return cli_fail(job->command, "%s", err.message);
    }
    return -1;
}

static given *find_given(given *list, uint32_t count, const char *name)
{
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(list[i].name, name) == 0)
            return &list[i];
    return NULL;
}

/* Symbols that the shapes of input files tell; appended to those of the options. */
static int dims_from_files(cli_job *job, given *list, uint32_t n)
{
    tacit_compile_options *options = &job->options;
    uint32_t most = options->n_dims;
    for (uint32_t i = 0; i < tacit_model_input_count(job->model); i++)
        most += TACIT_MAX_RANK;
    tacit_dim *dims = ARENA_ARRAY(&job->memory, most + 1u, tacit_dim);
    if (!dims)
        return cli_fail(job->command, "out of memory");
    for (uint32_t i = 0; i < options->n_dims; i++)
        dims[i] = options->dims[i];
    for (uint32_t i = 0; i < tacit_model_input_count(job->model); i++) {
        tacit_port port;
        if (tacit_model_input(job->model, i, &port) != TACIT_OK)
            return cli_fail(job->command, "the model's input %u cannot be read", i);
        const given *x = find_given(list, n, port.name);
        if (!x || !x->is_file || x->tensor.shape.rank != port.rank)
            continue;
        for (int32_t d = 0; d < port.rank; d++) {
            bool known = port.dims[d] >= 0 || !port.dim_names[d];
            for (uint32_t k = 0; !known && k < options->n_dims; k++)
                known = strcmp(dims[k].name, port.dim_names[d]) == 0;
            if (!known)
                dims[options->n_dims++] = (tacit_dim){port.dim_names[d], x->tensor.shape.dims[d]};
        }
    }
    options->dims = dims;
    return -1;
}

static int check_file(const cli_job *job, const given *x, const tacit_port *port)
{
    ir_shape want = ir_shape_of(port->rank, port->dims);
    char a[IR_SHAPE_TEXT], b[IR_SHAPE_TEXT];
    if (x->tensor.dtype == port->dtype && ir_shape_equal(&x->tensor.shape, &want))
        return -1;
    return cli_fail(job->command, "input '%s': %s holds %s%s, but the model wants %s%s", port->name,
                    x->spec, tacit_dtype_text(x->tensor.dtype), ir_shape_text(&x->tensor.shape, a),
                    tacit_dtype_text(port->dtype), ir_shape_text(&want, b));
}

static bool tensor_room(cli_job *job, const tacit_port *port, tacit_tensor *t)
{
    *t = (tacit_tensor){.name = port->name, .dtype = port->dtype, .rank = port->rank};
    memcpy(t->dims, port->dims, sizeof t->dims);
    t->bytes = port->bytes;
    t->data = arena_alloc_aligned(&job->memory, port->bytes ? port->bytes : 1, MEM_ALIGN);
    return t->data != NULL;
}

static int make_inputs(cli_job *job, given *list, uint32_t n, int64_t seed)
{
    rng r = rng_seed((uint64_t)seed);
    job->n_inputs = tacit_program_input_count(job->program);
    job->inputs = ARENA_ARRAY(&job->memory, job->n_inputs + 1u, tacit_tensor);
    for (uint32_t i = 0; i < job->n_inputs; i++) {
        tacit_port port;
        if (!job->inputs || tacit_program_input(job->program, i, &port) != TACIT_OK ||
            !tensor_room(job, &port, &job->inputs[i]))
            return cli_fail(job->command, "out of memory for the inputs");
        memset(job->inputs[i].data, 0, port.bytes);
        given *x = find_given(list, n, port.name);
        if (x)
            x->used = true;
        if (x && x->is_file) {
            int code = check_file(job, x, &port);
            if (code >= 0)
                return code;
            job->inputs[i].data = x->tensor.data;
        } else if (port.dtype == TACIT_STRING) {
            return cli_fail(job->command, "input '%s' is a string tensor: give it as a file",
                            port.name);
        } else if (!x || strcmp(x->spec, "random") == 0) {
            fill_random(api_model_graph(job->model), &job->inputs[i], &r);
        }
    }
    for (uint32_t i = 0; i < n; i++)
        if (!list[i].used)
            return cli_usage_error(job->command, "the model has no input named '%s'", list[i].name);
    return -1;
}

static int make_outputs(cli_job *job)
{
    job->n_outputs = tacit_program_output_count(job->program);
    job->outputs = ARENA_ARRAY(&job->memory, job->n_outputs + 1u, tacit_tensor);
    for (uint32_t i = 0; i < job->n_outputs; i++) {
        tacit_port port;
        if (!job->outputs || tacit_program_output(job->program, i, &port) != TACIT_OK)
            return cli_fail(job->command, "out of memory for the outputs");
        bool open = port.rank < 0 || port.dtype == TACIT_STRING;
        for (int32_t d = 0; d < port.rank; d++)
            open |= port.dims[d] < 0;
        if (open) /* the run lends memory and tells the shape */
            job->outputs[i] = (tacit_tensor){.name = port.name, .dtype = port.dtype};
        else if (!tensor_room(job, &port, &job->outputs[i]))
            return cli_fail(job->command, "out of memory for the outputs");
        else if (port.bytes < MEM_HUGE_PAGE) /* large ones get their pages when they are written */
            memset(job->outputs[i].data, 0, port.bytes);
    }
    return -1;
}

static int compile(cli_job *job)
{
    tacit_error err = {TACIT_OK, ""};
    uint64_t start = clock_ns();
    if (tacit_compile(job->model, &job->options, &job->program, &err) != TACIT_OK ||
        tacit_session_create(job->program, &job->session, &err) != TACIT_OK)
        return cli_fail(job->command, "%s", err.message);
    job->compile_ns = clock_ns() - start;
    return make_outputs(job);
}

int cli_job_load(cli_job *job, const char *command, const char *path, const cli_compile *options)
{
    *job = (cli_job){.command = command};
    arena_init(&job->memory, NULL);
    tacit_error err = {TACIT_OK, ""};
    int code = cli_compile_options(command, options, &job->options);
    if (code >= 0)
        return code;
    uint64_t start = clock_ns();
    if (tacit_model_load(path, NULL, &job->model, &err) != TACIT_OK)
        return cli_fail(command, "%s", err.message);
    job->load_ns = clock_ns() - start;
    return -1;
}

int cli_job_open(cli_job *job, const char *command, const char *path, const cli_compile *options,
                 const cli_list *items, int64_t seed)
{
    int code = cli_job_load(job, command, path, options);
    if (code >= 0)
        return code;
    given *list = ARENA_ARRAY(&job->memory, items->count + 1u, given);
    if (!list)
        return cli_fail(command, "out of memory");
    if ((code = read_given(job, items, list)) >= 0 ||
        (code = dims_from_files(job, list, items->count)) >= 0 || (code = compile(job)) >= 0)
        return code;
    return make_inputs(job, list, items->count, seed);
}

int cli_job_second(const cli_job *first, const tacit_compile_options *options, cli_job *second)
{
    *second = (cli_job){.command = first->command, .model = first->model, .options = *options};
    arena_init(&second->memory, NULL);
    second->inputs = first->inputs;
    second->n_inputs = first->n_inputs;
    int code = compile(second);
    second->model = NULL; /* the first job releases it */
    return code;
}

int cli_job_run(cli_job *job)
{
    tacit_error err = {TACIT_OK, ""};
    if (tacit_run(job->session, job->inputs, job->n_inputs, job->outputs, job->n_outputs, &err) !=
        TACIT_OK)
        return cli_fail(job->command, "%s", err.message);
    return -1;
}

void cli_job_close(cli_job *job)
{
    tacit_session_free(job->session);
    tacit_program_free(job->program);
    tacit_model_free(job->model);
    arena_free(&job->memory);
}

static bool same_string(const tacit_tensor *a, const tacit_tensor *b, int64_t i)
{
    const tacit_string *x = (const tacit_string *)a->data + i,
                       *y = (const tacit_string *)b->data + i;
    return x->length == y->length && memcmp(x->data, y->data, x->length) == 0;
}

/* Half precision is computed in f32 by kernels and as written by the reference. */
static bool comparable_types(tacit_dtype a, tacit_dtype b)
{
    bool half = a == TACIT_F16 || a == TACIT_BF16 || b == TACIT_F16 || b == TACIT_BF16;
    return a == b || (half && (a == TACIT_F32 || b == TACIT_F32));
}

bool cli_compare_values(const tacit_tensor *a, const tacit_tensor *b, cli_difference *out)
{
    *out = (cli_difference){0};
    if (!comparable_types(a->dtype, b->dtype) || a->rank != b->rank ||
        memcmp(a->dims, b->dims, (size_t)(a->rank > 0 ? a->rank : 0) * sizeof *a->dims) != 0)
        return false;
    int64_t n = cli_elements(a);
    if (a->dtype == TACIT_STRING) {
        for (int64_t i = 0; i < n; i++)
            out->mismatched += !same_string(a, b, i);
        return true;
    }
    /* Near zero a relative error says nothing: the tensor's own scale is the floor. */
    double scale = 0;
    for (int64_t i = 0; i < n; i++) {
        double v = fabs(cli_element(b, i));
        if (v > scale && !isinf(v))
            scale = v;
    }
    for (int64_t i = 0; i < n; i++) {
        double x = cli_element(a, i), y = cli_element(b, i);
        if (x == y || (isnan(x) && isnan(y)))
            continue;
        double error = fabs(x - y), magnitude = fmax(fabs(x), fabs(y));
        if (isnan(error) || isinf(error)) {
            out->mismatched++;
            out->worst = i;
            continue;
        }
        double relative = error / fmax(magnitude, scale * 5e-2);
        if (relative > out->max_relative) {
            out->max_relative = relative;
            out->worst = i;
        }
        out->max_absolute = fmax(out->max_absolute, error);
    }
    return true;
}

bool cli_compare_tensors(const tacit_tensor *a, const tacit_tensor *b, cli_difference *out)
{
    *out = (cli_difference){0};
    return a->dtype == b->dtype && cli_compare_values(a, b, out);
}
