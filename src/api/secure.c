/* SPDX-License-Identifier: Apache-2.0
 * Private inference: from a model to a program for two parties, and its public description. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/internal.h"
#include "api/secure_internal.h"
#include "ir/text.h"

/* Fusions whose results have no secure rule of their own, or hide scales that could be shared. */
static const char *const disabled[] = {"fuse-elementwise", "fuse-matmul", "fuse-conv",
                                       "fuse-norm",        "fuse-qkv",    "block-channels"};

static tacit_status prepare(tacit_secure *s, const tacit_secure_options *o, tacit_error *err)
{
    s->graph = ir_graph_clone(s->model->graph, &s->memory);
    op_binding *bind = ARENA_ARRAY(&s->memory, o->n_dims + 1u, op_binding);
    if (!s->graph || !bind)
        return error_memory(err, "the graph");
    for (uint32_t i = 0; i < o->n_dims; i++)
        bind[i] = (op_binding){o->dims[i].name, o->dims[i].value};
    TRY(op_bind_symbols(s->graph, o->n_dims, bind, err));
    TRY(ir_graph_sort(s->graph, err));
    TRY(op_infer_graph(s->graph, err));
    pass_options passes = {.disabled = disabled,
                           .n_disabled = sizeof disabled / sizeof *disabled,
                           .log = &s->model->log};
    pass_report report = {0};
    return pass_pipeline(s->graph, &passes, &s->memory, &report, err);
}

/* Largest |x| of every value on the sample, times two. */
static tacit_status calibrate(tacit_secure *s, const tacit_tensor *in, uint32_t n, double *most,
                              tacit_error *err)
{
    const ir_graph *g = s->graph;
    arena scratch;
    arena_init(&scratch, NULL);
    const ir_tensor **value = ARENA_ARRAY(&scratch, g->values.count + 1u, const ir_tensor *);
    ir_tensor *views = ARENA_ARRAY(&scratch, g->inputs.count + 1u, ir_tensor);
    ir_tensor **pointers = ARENA_ARRAY(&scratch, g->inputs.count + 1u, ir_tensor *);
    tacit_status status = value && views && pointers ? TACIT_OK : error_memory(err, "calibrating");
    if (status == TACIT_OK)
        status = api_secure_views(s, in, n, true, views, pointers, err);
    for (uint32_t i = 0; i < g->values.count && status == TACIT_OK; i++)
        value[i] = g->values.data[i]->constant;
    for (uint32_t i = 0; i < g->inputs.count && status == TACIT_OK; i++)
        value[g->inputs.data[i]->id] = pointers[i];
    op_exec_env env = {.memory = &scratch};
    for (uint32_t i = 0; i < g->nodes.count && status == TACIT_OK; i++) {
        const ir_node *node = g->nodes.data[i];
        const ir_tensor **x = ARENA_ARRAY(&scratch, node->n_inputs + 1u, const ir_tensor *);
        ir_tensor *y = ARENA_ARRAY(&scratch, node->n_outputs + 1u, ir_tensor);
        if (!x || !y)
            status = error_memory(err, "calibrating");
        for (uint32_t k = 0; x && k < node->n_inputs; k++)
            x[k] = node->inputs[k] ? value[node->inputs[k]->id] : NULL;
        if (status == TACIT_OK)
            status = op_execute(node, x, y, &env, err);
        for (uint32_t k = 0; status == TACIT_OK && k < node->n_outputs; k++) {
            if (!node->outputs[k])
                continue;
            uint32_t id = node->outputs[k]->id;
            value[id] = &y[k];
            for (int64_t e = 0; e < ir_tensor_count(&y[k]) && y[k].data; e++) {
                double v = fabs(ir_load_f64(y[k].dtype, y[k].data, e));
                most[id] = v < 1e30 && 2 * v > most[id] ? 2 * v : most[id];
            }
        }
    }
    arena_free(&scratch);
    return status;
}

static sec_mode mode_of(const tacit_secure_options *o)
{
    static const int weights[] = {SEC_SERVER, SEC_PUBLIC, SEC_SHARED};
    int frac = o->frac > 1 && o->frac < 64 ? o->frac : 12;
    return (sec_mode){.weights = (unsigned)o->weights <= 2 ? weights[o->weights] : SEC_SERVER,
                      .dither = o->dither != 0,
                      .compare = (unsigned)o->compare <= 3 ? (uint8_t)o->compare : SEC_AUTO,
                      .calibrated = o->n_calibration > 0,
                      .frac = (uint8_t)(frac - 1),
                      .weight_frac = (uint8_t)(frac + 1),
                      .input_bound = o->bound > 0 ? o->bound : 8};
}

static tacit_status compile(tacit_secure *s, const tacit_secure_options *o, tacit_error *err)
{
    TRY(prepare(s, o, err));
    sec_options options = {.mode = mode_of(o)};
    s->bound = options.mode.input_bound;
    if (o->n_calibration) {
        double *most = ARENA_ARRAY(&s->memory, s->graph->values.count + 1u, double);
        if (!most)
            return error_memory(err, "calibrating");
        TRY(calibrate(s, o->calibration, o->n_calibration, most, err));
        options.calibration = most;
        options.n_calibration = s->graph->values.count;
    }
    return sec_compile(s->graph, &options, NULL, &s->program, err);
}

static tacit_secure *secure_new(const tacit_model *model)
{
    tacit_secure *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    arena_init(&s->memory, NULL);
    s->model = model;
    if (model)
        api_model_retain(model);
    return s;
}

void tacit_secure_free(tacit_secure *s)
{
    if (!s)
        return;
    sec_program_free(s->program);
    arena_free(&s->memory);
    if (s->model)
        api_model_release(s->model);
    free(s);
}

tacit_status tacit_secure_compile(const tacit_model *model, const tacit_secure_options *options,
                                  tacit_secure **out, tacit_error *err)
{
    static const tacit_secure_options defaults;
    if (!model || !out)
        return error_set(err, TACIT_ERR_ARGUMENT, "tacit_secure_compile: an argument is NULL");
    *out = NULL;
    tacit_secure *s = secure_new(model);
    if (!s)
        return error_memory(err, "private inference");
    tacit_status status = compile(s, options ? options : &defaults, err);
    if (status != TACIT_OK) {
        tacit_secure_free(s);
        return status;
    }
    *out = s;
    return TACIT_OK;
}

/* ---- the public description ---- */

static bool read_as_public(const ir_graph *g, const ir_value *v)
{
    for (uint32_t i = 0; i < g->nodes.count; i++) {
        const ir_node *n = g->nodes.data[i];
        for (uint32_t k = 1; k < n->n_inputs && k < 3; k++)
            if (n->inputs[k] == v && strcmp(n->type, "RotaryEmbedding") == 0)
                return true;
    }
    return false;
}

tacit_status tacit_secure_strip(const tacit_secure *s, const char *path, tacit_error *err)
{
    const sec_program *p = s->program;
    arena memory;
    arena_init(&memory, NULL);
    ir_graph *g = ir_graph_clone(s->graph, &memory);
    tacit_status status = g ? TACIT_OK : error_memory(err, "the description");
    if (g) { /* words about the model are the owner's */
        ir_about_clear(g);
        g->doc = "";
    }
    for (uint32_t i = 0; g && i < g->values.count && p->mode.weights != SEC_PUBLIC; i++) {
        ir_value *v = g->values.data[i];
        if (!v->constant || v->constant->kind != IR_TENSOR ||
            !ir_dtype_is_float(v->constant->dtype) || ir_tensor_count(v->constant) < 2 ||
            read_as_public(g, v))
            continue;
        ir_tensor *t = ARENA_NEW(&memory, ir_tensor);
        if (!t) {
            status = error_memory(err, "the description");
            break;
        }
        *t = *v->constant;
        t->data = NULL;
        v->constant = t;
    }
    sbuf text;
    sbuf_init(&text, NULL);
    if (status == TACIT_OK) {
        const sec_mode *m = &p->mode;
        sbuf_printf(&text, "tacit-secure 1\nmode %d %d %d %d %u %u %.17g\nfacts %u", m->weights,
                    m->dither, m->compare, m->calibrated, m->frac, m->weight_frac, m->input_bound,
                    p->facts.count);
        for (uint32_t i = 0; i < p->facts.count; i++)
            sbuf_printf(&text, " %d", (int)p->facts.data[i]);
        sbuf_text(&text, "\nhash ");
        for (int i = 0; i < 32; i++)
            sbuf_printf(&text, "%02x", p->hash[i]);
        sbuf_text(&text, "\n");
        ir_graph_print(g, &(ir_text_options){0}, &text);
        const char *all = sbuf_str(&text);
        status = all ? file_write_all(path, all, strlen(all), err)
                     : error_memory(err, "the description");
    }
    sbuf_free(&text);
    arena_free(&memory);
    return status;
}

static tacit_status bad_description(tacit_error *err, const char *what)
{
    return error_set(err, TACIT_ERR_FORMAT, "not a description made by 'tacit secure strip': %s",
                     what);
}

/* Reads the lines before the graph; *at moves past them. */
static tacit_status read_head(const char **at, arena *memory, sec_options *o, uint8_t hash[32],
                              tacit_error *err)
{
    int weights, dither, compare, calibrated, used = 0;
    unsigned frac, weight_frac, n;
    double bound;
    if (sscanf(*at, "tacit-secure 1\nmode %d %d %d %d %u %u %lf\nfacts %u%n", &weights, &dither,
               &compare, &calibrated, &frac, &weight_frac, &bound, &n, &used) != 8)
        return bad_description(err, "its first lines");
    if (weights < SEC_PUBLIC || weights > SEC_SERVER || compare < 0 || compare >= SEC_COMPARES ||
        frac > 63 || weight_frac > 63 || n > 10000000)
        return bad_description(err, "its mode");
    *at += used;
    int32_t *facts = ARENA_ARRAY(memory, n + 1u, int32_t);
    if (!facts)
        return error_memory(err, "a description");
    for (unsigned i = 0; i < n; i++) {
        char *end;
        long v = strtol(*at, &end, 10);
        if (end == *at || v < -800 || v > 800)
            return bad_description(err, "its facts");
        facts[i] = (int32_t)v;
        *at = end;
    }
    if (strncmp(*at, "\nhash ", 6) != 0)
        return bad_description(err, "its hash");
    *at += 6;
    for (int i = 0; i < 32; i++, *at += 2) {
        unsigned byte;
        if (sscanf(*at, "%2x", &byte) != 1)
            return bad_description(err, "its hash");
        hash[i] = (uint8_t)byte;
    }
    *at += **at == '\n';
    *o = (sec_options){.facts = facts, .n_facts = n};
    o->mode = (sec_mode){.weights = weights,
                         .dither = dither != 0,
                         .compare = (uint8_t)compare,
                         .calibrated = calibrated != 0,
                         .frac = (uint8_t)frac,
                         .weight_frac = (uint8_t)weight_frac,
                         .input_bound = bound};
    return TACIT_OK;
}

static tacit_status load(tacit_secure *s, const char *path, tacit_error *err)
{
    file_map file;
    TRY(file_map_open(&file, path, err));
    char *text = arena_strndup(&s->memory, (const char *)file.data, file.size);
    file_map_close(&file);
    if (!text)
        return error_memory(err, "a description");
    const char *at = text;
    sec_options o;
    uint8_t hash[32];
    TRY(read_head(&at, &s->memory, &o, hash, err));
    s->bound = o.mode.input_bound;
    TRY(ir_graph_parse(at, strlen(at), &s->memory, &s->graph, err));
    for (uint32_t i = 0; i < s->graph->nodes.count; i++)
        op_resolve(NULL, s->graph->nodes.data[i]);
    TRY(ir_graph_sort(s->graph, err));
    TRY(op_infer_graph(s->graph, err));
    TRY(sec_compile(s->graph, &o, NULL, &s->program, err));
    if (memcmp(hash, s->program->hash, 32) != 0)
        return error_set(err, TACIT_ERR_SECURITY,
                         "the description does not match its hash: it was changed, or another "
                         "version made it");
    return TACIT_OK;
}

tacit_status tacit_secure_load(const char *path, tacit_secure **out, tacit_error *err)
{
    *out = NULL;
    tacit_secure *s = secure_new(NULL);
    if (!s)
        return error_memory(err, "private inference");
    tacit_status status = load(s, path, err);
    if (status != TACIT_OK) {
        tacit_secure_free(s);
        return error_context(err, status, "%s", path);
    }
    *out = s;
    return TACIT_OK;
}

/* ---- ports and costs ---- */

uint32_t tacit_secure_input_count(const tacit_secure *s)
{
    return s->graph->inputs.count;
}
uint32_t tacit_secure_output_count(const tacit_secure *s)
{
    return s->graph->outputs.count;
}
tacit_status tacit_secure_input(const tacit_secure *s, uint32_t index, tacit_port *out)
{
    if (index >= s->graph->inputs.count)
        return TACIT_ERR_ARGUMENT;
    api_port(s->graph, s->graph->inputs.data[index], out);
    return TACIT_OK;
}
tacit_status tacit_secure_output(const tacit_secure *s, uint32_t index, tacit_port *out)
{
    if (index >= s->graph->outputs.count)
        return TACIT_ERR_ARGUMENT;
    api_port(s->graph, s->graph->outputs.data[index], out);
    return TACIT_OK;
}

void tacit_secure_cost(const tacit_secure *s, tacit_secure_costs *out)
{
    const sec_program *p = s->program;
    *out = (tacit_secure_costs){.key_bytes_server = p->key_bytes[SEC_SERVER],
                                .key_bytes_client = p->key_bytes[SEC_CLIENT],
                                .wire_bytes = p->wire_bytes[0] + p->wire_bytes[1],
                                .weight_bytes = p->weight_bytes,
                                .rounds = p->rounds,
                                .rounds_per_block = sec_rounds_per_block(p)};
    sec_mode_text(&p->mode, out->mode, sizeof out->mode);
    memcpy(out->hash, p->hash, 32);
}

tacit_status tacit_secure_plan(const tacit_secure *s, int json, char **out, tacit_error *err)
{
    sbuf text;
    sbuf_init(&text, NULL);
    sec_plan_print(s->program, json != 0, &text);
    return api_text(&text, out, err);
}

tacit_status api_secure_views(const tacit_secure *s, const tacit_tensor *tensors, uint32_t n,
                              bool inputs, ir_tensor *views, ir_tensor **pointers, tacit_error *err)
{
    uint32_t count = inputs ? s->graph->inputs.count : s->graph->outputs.count;
    ir_value **values = inputs ? s->graph->inputs.data : s->graph->outputs.data;
    if (n != count || (n && !tensors))
        return error_set(err, TACIT_ERR_ARGUMENT, "%u %s given, the model has %u", n,
                         inputs ? "inputs" : "outputs", count);
    for (uint32_t i = 0; i < count; i++) {
        const tacit_tensor *t = NULL;
        for (uint32_t k = 0; k < n && !t; k++)
            if (tensors[k].name && strcmp(tensors[k].name, values[i]->name) == 0)
                t = &tensors[k];
        if (!t)
            t = &tensors[i];
        ir_shape shape = ir_shape_of(t->rank, t->dims);
        size_t need;
        views[i] = ir_tensor_view(t->dtype, &shape, t->data);
        ir_type type = ir_tensor_type(&views[i]);
        if (!ir_type_equal(&type, &values[i]->type) || !ir_type_bytes(&type, &need) || !t->data ||
            t->bytes < need) {
            char a[IR_SHAPE_TEXT], b[IR_SHAPE_TEXT];
            return error_set(err, TACIT_ERR_SHAPE, "'%s' is %s%s and must be %s%s", values[i]->name,
                             tacit_dtype_text(t->dtype), ir_shape_text(&shape, a),
                             tacit_dtype_text(values[i]->type.dtype),
                             ir_shape_text(&values[i]->type.shape, b));
        }
        pointers[i] = &views[i];
    }
    return TACIT_OK;
}
