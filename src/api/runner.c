/* SPDX-License-Identifier: Apache-2.0
 * Runners: one compiled program per set of sizes, made when the sizes are first met. */
#include <string.h>

#include "api/internal.h"

enum { DEFAULT_CAPACITY = 8 };

/* A symbolic dimension: its size in the run at hand, as given and as compiled for. */
typedef struct symbol {
    const char *name;
    int64_t multiple;       /* of its bucket; 1 without one */
    int64_t given, rounded; /* given -1: not told yet */
} symbol;

/* A program for one set of sizes, and room for what padding needs. */
typedef struct entry {
    int64_t *sizes; /* by symbol */
    tacit_program *program;
    tacit_session *session;
    uint64_t last_used;
    int64_t *cut_sizes; /* by symbol: the sizes before rounding that `cut` is for; -1: none */
    ir_shape *cut;      /* by output */
} entry;

struct tacit_runner {
    const tacit_model *model;
    arena memory;
    tacit_compile_options compile; /* dims: the fixed ones, then one per symbol */
    tacit_dim *dims;
    uint32_t n_fixed;
    symbol *symbols;
    uint32_t n_symbols;
    entry *entries;
    uint32_t capacity;
    uint64_t runs, compiled;
    arena padding;     /* padded inputs and cut outputs of the last run */
    const void **lent; /* by output: what the last run lent; NULL: nothing */
};

/* --- making ----------------------------------------------------------------------------------- */

static bool is_fixed(const tacit_runner *r, const char *name)
{
    for (uint32_t i = 0; i < r->n_fixed; i++)
        if (strcmp(r->dims[i].name, name) == 0)
            return true;
    return false;
}

static symbol *find_symbol(const tacit_runner *r, const char *name)
{
    for (uint32_t i = 0; i < r->n_symbols; i++)
        if (strcmp(r->symbols[i].name, name) == 0)
            return &r->symbols[i];
    return NULL;
}

/* Lists the symbols of all inputs; room for every dimension there is. */
static tacit_status list_symbols(tacit_runner *r, tacit_error *err)
{
    const ir_graph *g = r->model->graph;
    size_t most = (size_t)g->inputs.count * TACIT_MAX_RANK + r->n_fixed + 1;
    r->symbols = ARENA_ARRAY(&r->memory, most, symbol);
    tacit_dim *dims = ARENA_ARRAY(&r->memory, most, tacit_dim);
    if (!r->symbols || !dims)
        return error_memory(err, "a runner");
    for (uint32_t i = 0; i < r->n_fixed; i++)
        dims[i] = r->dims[i];
    r->dims = dims;
    for (uint32_t i = 0; i < g->inputs.count; i++) {
        tacit_port port;
        api_port(g, g->inputs.data[i], &port);
        for (int32_t d = 0; d < port.rank && port.kind == TACIT_KIND_TENSOR; d++) {
            const char *name = port.dim_names[d];
            if (port.dims[d] < 0 && name && !is_fixed(r, name) && !find_symbol(r, name))
                r->symbols[r->n_symbols++] = (symbol){.name = name, .multiple = 1};
        }
    }
    return TACIT_OK;
}

static tacit_status set_buckets(tacit_runner *r, const tacit_runner_options *o, tacit_error *err)
{
    if (o->n_buckets && !o->buckets)
        return error_set(err, TACIT_ERR_ARGUMENT, "tacit_runner_create: buckets must not be NULL");
    if (o->n_buckets && o->compile.n_last_only)
        return error_set(err, TACIT_ERR_ARGUMENT,
                         "last_only with buckets: the last position would be one of padding");
    for (uint32_t i = 0; i < o->n_buckets; i++) {
        const tacit_bucket *b = &o->buckets[i];
        symbol *s = b->name ? find_symbol(r, b->name) : NULL;
        if (!s)
            return error_set(err, TACIT_ERR_ARGUMENT,
                             "a bucket is named '%s', which is no open dimension of an input",
                             b->name ? b->name : "(null)");
        if (b->multiple < 1 || b->multiple > INT32_MAX)
            return error_set(err, TACIT_ERR_ARGUMENT, "the bucket of '%s' must be 1 to %d", b->name,
                             INT32_MAX);
        s->multiple = b->multiple;
    }
    return TACIT_OK;
}

/* The options outlive the call: names of passes and symbols are copied. */
static tacit_status copy_options(tacit_runner *r, const tacit_compile_options *o, tacit_error *err)
{
    if ((o->n_dims && !o->dims) || (o->n_disabled_passes && !o->disabled_passes) ||
        (o->n_last_only && !o->last_only))
        return error_set(err, TACIT_ERR_ARGUMENT, "a list option of tacit_runner_create is NULL");
    const char **passes = ARENA_ARRAY(&r->memory, o->n_disabled_passes + 1u, const char *);
    r->dims = ARENA_ARRAY(&r->memory, o->n_dims + 1u, tacit_dim);
    bool ok = passes && r->dims;
    for (uint32_t i = 0; ok && i < o->n_disabled_passes; i++)
        ok = (passes[i] = arena_strdup(&r->memory, o->disabled_passes[i])) != NULL;
    for (uint32_t i = 0; ok && i < o->n_dims; i++) {
        r->dims[i] = (tacit_dim){arena_strdup(&r->memory, o->dims[i].name), o->dims[i].value};
        ok = r->dims[i].name != NULL;
    }
    const char **last = ARENA_ARRAY(&r->memory, o->n_last_only + 1u, const char *);
    ok = ok && last;
    for (uint32_t i = 0; ok && i < o->n_last_only; i++)
        ok = !o->last_only[i] || (last[i] = arena_strdup(&r->memory, o->last_only[i])) != NULL;
    const char *packed = ok && o->packed_file ? arena_strdup(&r->memory, o->packed_file) : NULL;
    if (!ok || (o->packed_file && !packed))
        return error_memory(err, "a runner's options");
    r->compile = *o;
    r->compile.packed_file = packed;
    r->compile.last_only = last;
    r->compile.disabled_passes = passes;
    r->n_fixed = o->n_dims;
    return TACIT_OK;
}

static tacit_status set_up(tacit_runner *r, const tacit_runner_options *o, tacit_error *err)
{
    TRY(copy_options(r, &o->compile, err));
    TRY(list_symbols(r, err));
    TRY(set_buckets(r, o, err));
    r->capacity = o->capacity ? o->capacity : DEFAULT_CAPACITY;
    r->entries = ARENA_ARRAY(&r->memory, r->capacity, entry);
    r->lent = ARENA_ARRAY(&r->memory, r->model->graph->outputs.count + 1u, const void *);
    if (!r->entries || !r->lent)
        return error_memory(err, "a runner");
    for (uint32_t i = 0; i < r->capacity; i++) {
        entry *e = &r->entries[i];
        e->sizes = ARENA_ARRAY(&r->memory, r->n_symbols + 1u, int64_t);
        e->cut_sizes = ARENA_ARRAY(&r->memory, r->n_symbols + 1u, int64_t);
        e->cut = ARENA_ARRAY(&r->memory, r->model->graph->outputs.count + 1u, ir_shape);
        if (!e->sizes || !e->cut_sizes || !e->cut)
            return error_memory(err, "a runner");
    }
    return TACIT_OK;
}

tacit_status tacit_runner_create(const tacit_model *model, const tacit_runner_options *options,
                                 tacit_runner **out, tacit_error *err)
{
    static const tacit_runner_options defaults;
    if (!model || !out)
        return error_set(err, TACIT_ERR_ARGUMENT,
                         "tacit_runner_create: model and out must not be NULL");
    *out = NULL;
    tacit_runner *r = mem_alloc_zero(&model->allocator, sizeof *r);
    if (!r)
        return error_memory(err, "a runner");
    r->model = model;
    api_model_retain(model);
    arena_init(&r->memory, &model->allocator);
    arena_init(&r->padding, &model->allocator);
    tacit_status status = set_up(r, options ? options : &defaults, err);
    if (status != TACIT_OK)
        tacit_runner_free(r);
    else
        *out = r;
    return status;
}

static void empty_entry(entry *e)
{
    tacit_session_free(e->session);
    tacit_program_free(e->program);
    e->session = NULL;
    e->program = NULL;
}

void tacit_runner_free(tacit_runner *runner)
{
    if (!runner)
        return;
    for (uint32_t i = 0; runner->entries && i < runner->capacity; i++)
        empty_entry(&runner->entries[i]);
    const tacit_model *model = runner->model;
    arena_free(&runner->padding);
    arena_free(&runner->memory);
    mem_release(&model->allocator, runner, sizeof *runner);
    api_model_release(model);
}

uint64_t tacit_runner_compiled(const tacit_runner *runner)
{
    return runner->compiled;
}

/* --- sizes ------------------------------------------------------------------------------------ */

/* The model's value a tensor stands for: by its name, else by its position; NULL: none. */
static const ir_value *port_of(const ir_graph *g, bool output, const tacit_tensor *t,
                               uint32_t position)
{
    uint32_t n = output ? g->outputs.count : g->inputs.count;
    for (uint32_t i = 0; t->name && i < n; i++) {
        const ir_value *v = output ? g->outputs.data[i] : g->inputs.data[i];
        if (strcmp(v->name, t->name) == 0)
            return v;
    }
    if (t->name || position >= n)
        return NULL;
    return output ? g->outputs.data[position] : g->inputs.data[position];
}

static tacit_status take_sizes(tacit_runner *r, const tacit_tensor *t, const ir_value *v,
                               tacit_error *err)
{
    tacit_port port;
    api_port(r->model->graph, v, &port);
    if (port.kind != TACIT_KIND_TENSOR)
        return TACIT_OK; /* sequences and maps have no one size */
    if (port.rank >= 0 && port.rank != t->rank)
        return error_set(err, TACIT_ERR_SHAPE, "input '%s' has rank %d, but rank %d is given",
                         port.name, port.rank, t->rank);
    for (int32_t d = 0; d < port.rank; d++) {
        symbol *s =
            port.dims[d] < 0 && port.dim_names[d] ? find_symbol(r, port.dim_names[d]) : NULL;
        if (!s)
            continue;
        if (t->dims[d] < 0)
            return error_set(err, TACIT_ERR_SHAPE, "input '%s' has a negative size", port.name);
        if (s->given >= 0 && s->given != t->dims[d])
            return error_set(err, TACIT_ERR_SHAPE,
                             "input '%s' has size %lld at axis %d, but '%s' is %lld elsewhere",
                             port.name, (long long)t->dims[d], d, s->name, (long long)s->given);
        s->given = t->dims[d];
    }
    return TACIT_OK;
}

static tacit_status round_up(symbol *s, tacit_error *err)
{
    if (s->given < 0)
        return error_set(err, TACIT_ERR_ARGUMENT, "no input tells the size of '%s'", s->name);
    int64_t over = s->given % s->multiple;
    if (s->given > INT64_MAX - s->multiple)
        return error_set(err, TACIT_ERR_SHAPE, "the size of '%s' is too large", s->name);
    s->rounded = over ? s->given + s->multiple - over : s->given;
    return TACIT_OK;
}

static tacit_status find_sizes(tacit_runner *r, const tacit_tensor *inputs, uint32_t n,
                               bool *padded, tacit_error *err)
{
    *padded = false;
    for (uint32_t i = 0; i < r->n_symbols; i++)
        r->symbols[i].given = -1;
    for (uint32_t i = 0; i < n; i++) {
        const ir_value *v = port_of(r->model->graph, false, &inputs[i], i);
        if (inputs[i].rank < 0 || inputs[i].rank > TACIT_MAX_RANK)
            return error_set(err, TACIT_ERR_ARGUMENT, "input %u has rank %d", i, inputs[i].rank);
        if (v) /* an unknown name is the session's to report */
            TRY(take_sizes(r, &inputs[i], v, err));
    }
    for (uint32_t i = 0; i < r->n_symbols; i++) {
        TRY(round_up(&r->symbols[i], err));
        *padded |= r->symbols[i].rounded != r->symbols[i].given;
    }
    return TACIT_OK;
}

static bool has_sizes(const tacit_runner *r, const entry *e)
{
    for (uint32_t i = 0; i < r->n_symbols; i++)
        if (e->sizes[i] != r->symbols[i].rounded)
            return false;
    return e->program != NULL;
}

static tacit_status fill_entry(tacit_runner *r, entry *e, tacit_error *err)
{
    empty_entry(e);
    for (uint32_t i = 0; i < r->n_symbols; i++) {
        e->sizes[i] = r->symbols[i].rounded;
        e->cut_sizes[i] = -1;
        r->dims[r->n_fixed + i] = (tacit_dim){r->symbols[i].name, r->symbols[i].rounded};
    }
    r->compile.dims = r->dims;
    r->compile.n_dims = r->n_fixed + r->n_symbols;
    TRY(tacit_compile(r->model, &r->compile, &e->program, err));
    r->compiled++;
    return TACIT_OK;
}

static tacit_status find_entry(tacit_runner *r, entry **out, tacit_error *err)
{
    entry *oldest = &r->entries[0];
    for (uint32_t i = 0; i < r->capacity; i++) {
        entry *e = &r->entries[i];
        if (has_sizes(r, e)) {
            *out = e;
            return TACIT_OK;
        }
        if (oldest->program && (!e->program || e->last_used < oldest->last_used))
            oldest = e;
    }
    *out = oldest;
    return fill_entry(r, oldest, err);
}

/* --- padding ---------------------------------------------------------------------------------- */

/* The dense box `dims` of `from` (itself dense, with sizes `from_dims`) to the same corner of `to`;
 * both at least as large as the box. */
static void copy_box(const tacit_tensor *box, const char *from, const int64_t *from_dims, char *to,
                     const int64_t *to_dims, size_t element)
{
    int64_t at[TACIT_MAX_RANK] = {0};
    int32_t last = box->rank - 1;
    size_t line = (last < 0 ? 1 : (size_t)box->dims[last]) * element;
    for (int32_t d = 0; d < box->rank; d++)
        if (box->dims[d] == 0)
            return;
    for (;;) {
        int64_t source = 0, target = 0;
        for (int32_t d = 0; d < box->rank; d++) {
            source = source * from_dims[d] + at[d];
            target = target * to_dims[d] + at[d];
        }
        memcpy(to + (size_t)target * element, from + (size_t)source * element, line);
        int32_t d = last - 1;
        while (d >= 0 && ++at[d] == box->dims[d])
            at[d--] = 0;
        if (d < 0)
            return;
    }
}

/* Whether the input's sizes change by rounding; `t` then has the rounded ones. */
static bool round_sizes(const tacit_runner *r, const ir_value *v, tacit_tensor *t)
{
    bool changed = false;
    tacit_port port;
    api_port(r->model->graph, v, &port);
    for (int32_t d = 0; d < port.rank; d++) {
        const symbol *s =
            port.dims[d] < 0 && port.dim_names[d] ? find_symbol(r, port.dim_names[d]) : NULL;
        if (s && s->rounded != t->dims[d]) {
            t->dims[d] = s->rounded;
            changed = true;
        }
    }
    return changed;
}

static tacit_status room_for(tacit_runner *r, const char *name, tacit_tensor *t, tacit_error *err)
{
    ir_type type = ir_type_tensor(t->dtype, t->rank, t->dims);
    size_t bytes;
    if (ir_dtype_bytes(t->dtype, 2) != 2 * ir_dtype_bytes(t->dtype, 1) || t->dtype == TACIT_STRING)
        return error_set(err, TACIT_ERR_UNSUPPORTED, "'%s' is %s, which buckets cannot pad", name,
                         tacit_dtype_text(t->dtype));
    if (!ir_type_bytes(&type, &bytes))
        return error_set(err, TACIT_ERR_SHAPE, "'%s' has an impossible shape", name);
    t->data = arena_alloc_aligned(&r->padding, bytes ? bytes : 1, MEM_ALIGN);
    t->bytes = bytes;
    return t->data ? TACIT_OK : error_memory(err, "padding");
}

static tacit_status pad_input(tacit_runner *r, const tacit_tensor *from, uint32_t position,
                              tacit_tensor *to, tacit_error *err)
{
    const ir_value *v = port_of(r->model->graph, false, from, position);
    *to = *from;
    if (!v)
        return TACIT_OK; /* the session says what is wrong with it */
    if (!round_sizes(r, v, to))
        return TACIT_OK;
    ir_type type = ir_type_tensor(from->dtype, from->rank, from->dims);
    size_t bytes;
    if (!ir_type_bytes(&type, &bytes) || from->bytes < bytes || (bytes && !from->data))
        return error_set(err, TACIT_ERR_ARGUMENT, "input '%s' has fewer bytes than its shape says",
                         v->name);
    TRY(room_for(r, v->name, to, err));
    memset(to->data, 0, to->bytes);
    copy_box(from, from->data, from->dims, to->data, to->dims, ir_dtype_bytes(to->dtype, 1));
    return TACIT_OK;
}

/* What the outputs' shapes would have been without rounding, as inference tells. */
static tacit_status find_cut(tacit_runner *r, entry *e, tacit_error *err)
{
    bool known = true;
    for (uint32_t i = 0; i < r->n_symbols; i++) {
        known &= e->cut_sizes[i] == r->symbols[i].given;
        e->cut_sizes[i] = -1;
        r->dims[r->n_fixed + i] = (tacit_dim){r->symbols[i].name, r->symbols[i].given};
    }
    arena memory;
    arena_init(&memory, &r->model->allocator);
    ir_graph *g = NULL;
    tacit_status status =
        known ? TACIT_OK
              : api_bound_graph(r->model, r->dims, r->n_fixed + r->n_symbols, &memory, &g, err);
    for (uint32_t i = 0; g && status == TACIT_OK && i < g->outputs.count; i++) {
        const ir_value *v = g->outputs.data[i];
        if (!ir_type_is_static(&v->type))
            status = error_set(err, TACIT_ERR_UNSUPPORTED,
                               "the size of output '%s' depends on the data: it cannot be cut back "
                               "after padding",
                               v->name);
        e->cut[i] = v->type.shape;
    }
    for (uint32_t i = 0; status == TACIT_OK && i < r->n_symbols; i++)
        e->cut_sizes[i] = r->symbols[i].given;
    arena_free(&memory);
    return status;
}

/* What the session gave, cut to the sizes asked for, into the caller's buffer or one of ours. */
static tacit_status cut_output(tacit_runner *r, const entry *e, const tacit_tensor *from,
                               uint32_t position, tacit_tensor *to, tacit_error *err)
{
    const ir_graph *g = r->model->graph;
    const ir_value *v = port_of(g, true, to, position); /* the session found it before */
    uint32_t index = 0;
    while (index + 1 < g->outputs.count && g->outputs.data[index] != v)
        index++;
    tacit_tensor cut = *from;
    memcpy(cut.dims, e->cut[index].dims, sizeof cut.dims);
    ir_type type = ir_type_tensor(cut.dtype, cut.rank, cut.dims);
    size_t bytes;
    if (!to->data) {
        TRY(room_for(r, v->name, &cut, err));
        r->lent[index] = cut.data;
    } else if (to->dtype != cut.dtype || !ir_type_bytes(&type, &bytes) || to->bytes < bytes) {
        return error_set(err, TACIT_ERR_ARGUMENT, "the buffer of output '%s' does not fit it",
                         v->name);
    } else {
        cut.data = to->data;
        cut.bytes = to->bytes;
    }
    copy_box(&cut, from->data, from->dims, cut.data, cut.dims, ir_dtype_bytes(cut.dtype, 1));
    cut.name = to->name;
    *to = cut;
    return TACIT_OK;
}

static tacit_status run_padded(tacit_runner *r, entry *e, const tacit_tensor *inputs,
                               uint32_t n_inputs, tacit_tensor *outputs, uint32_t n_outputs,
                               tacit_error *err)
{
    tacit_tensor *in = ARENA_ARRAY(&r->padding, n_inputs + 1u, tacit_tensor);
    tacit_tensor *out = ARENA_ARRAY(&r->padding, n_outputs + 1u, tacit_tensor);
    if (!in || !out)
        return error_memory(err, "padding");
    TRY(find_cut(r, e, err));
    for (uint32_t i = 0; i < n_inputs; i++)
        TRY(pad_input(r, &inputs[i], i, &in[i], err));
    for (uint32_t i = 0; i < n_outputs; i++)
        out[i] = (tacit_tensor){.name = outputs[i].name};
    TRY(tacit_run(e->session, in, n_inputs, out, n_outputs, err));
    for (uint32_t i = 0; i < n_outputs; i++)
        TRY(cut_output(r, e, &out[i], i, &outputs[i], err));
    return TACIT_OK;
}

/* The program for these inputs; `padded`: some of its sizes are rounded up. */
static tacit_status meet(tacit_runner *runner, const tacit_tensor *inputs, uint32_t n_inputs,
                         bool *padded, entry **e, tacit_error *err)
{
    TRY(find_sizes(runner, inputs, n_inputs, padded, err));
    TRY(find_entry(runner, e, err));
    (*e)->last_used = ++runner->runs;
    return TACIT_OK;
}

tacit_status tacit_runner_program(tacit_runner *runner, const tacit_tensor *inputs,
                                  uint32_t n_inputs, tacit_program **out, tacit_error *err)
{
    if (!runner || !out || (n_inputs && !inputs))
        return error_set(err, TACIT_ERR_ARGUMENT,
                         "tacit_runner_program: a required argument is NULL");
    *out = NULL;
    bool padded;
    entry *e;
    TRY(meet(runner, inputs, n_inputs, &padded, &e, err));
    api_program_retain(e->program);
    *out = e->program;
    return TACIT_OK;
}

/* What the last run lent, by whichever session, is lent anew. */
static void take_back(const tacit_runner *r, tacit_tensor *outputs, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < r->model->graph->outputs.count; k++)
            if (outputs[i].data == r->lent[k])
                outputs[i].data = NULL;
}

tacit_status tacit_runner_run(tacit_runner *runner, const tacit_tensor *inputs, uint32_t n_inputs,
                              tacit_tensor *outputs, uint32_t n_outputs, tacit_error *err)
{
    if (!runner || (n_inputs && !inputs) || (n_outputs && !outputs))
        return error_set(err, TACIT_ERR_ARGUMENT, "tacit_runner_run: a required argument is NULL");
    bool padded;
    entry *e;
    size_t lent_bytes = runner->model->graph->outputs.count * sizeof *runner->lent;
    take_back(runner, outputs, n_outputs);
    memset(runner->lent, 0, lent_bytes);
    TRY(meet(runner, inputs, n_inputs, &padded, &e, err));
    if (!e->session)
        TRY(tacit_session_create(e->program, &e->session, err));
    if (!padded) {
        TRY(tacit_run(e->session, inputs, n_inputs, outputs, n_outputs, err));
        memcpy(runner->lent, e->session->lent_data, lent_bytes);
        return TACIT_OK;
    }
    arena_free(&runner->padding);
    return run_padded(runner, e, inputs, n_inputs, outputs, n_outputs, err);
}
