/* SPDX-License-Identifier: Apache-2.0
 * From a graph to a secure program: inputs, the rules of the nodes in order, outputs, schedule. */
#include <math.h>

#include "base/sha256.h"
#include "secure/build.h"

sec_wire_id sb_input(sec_builder *b, const sec_port *port, size_t count)
{
    if (b->status != TACIT_OK)
        return 0;
    sec_port p = *port;
    for (p.input = 0; p.input < b->graph->inputs.count; p.input++)
        if (strcmp(b->graph->inputs.data[p.input]->name, port->name) == 0)
            break;
    sec_instr in = {.op = SEC_INPUT, .port = b->p->inputs.count, .node = SEC_NONE, .n_out = 1};
    sec_wire w = {.producer = b->p->instrs.count, .count = (uint32_t)count};
    if (count > INT32_MAX) {
        sb_fail(b, TACIT_ERR_LIMIT, "input '%s' is too long for private inference", port->name);
        return 0;
    }
    in.out[0] = p.wire = b->p->wires.count;
    if (!vec_push(&b->p->memory, &b->p->wires, w) || !vec_push(&b->p->memory, &b->p->inputs, p) ||
        !vec_push(&b->p->memory, &b->p->instrs, in))
        b->status = error_memory(b->err, "the secure program");
    return in.out[0];
}

/* Is the input read by anything but look-ups in tables? */
static bool read_plainly(const ir_graph *g, const ir_value *v)
{
    for (uint32_t i = 0; i < g->nodes.count; i++) {
        const ir_node *n = g->nodes.data[i];
        for (uint32_t k = 0; k < n->n_inputs; k++)
            if (n->inputs[k] == v && !(k == 1 && strcmp(n->type, "Gather") == 0))
                return true;
    }
    for (uint32_t i = 0; i < g->outputs.count; i++)
        if (g->outputs.data[i] == v)
            return true;
    return false;
}

static tacit_status declare_inputs(sec_builder *b)
{
    const sec_mode *mode = &b->p->mode;
    for (uint32_t i = 0; i < b->graph->inputs.count && b->status == TACIT_OK; i++) {
        const ir_value *v = b->graph->inputs.data[i];
        if (!ir_type_is_static(&v->type))
            return error_set(b->err, TACIT_ERR_SHAPE,
                             "input '%s' has symbolic dimensions; bind them with --dim", v->name);
        if (!read_plainly(b->graph, v))
            continue;
        bool real = ir_dtype_is_float(v->type.dtype);
        sec_port port = {.name = v->name,
                         .dtype = v->type.dtype,
                         .shape = v->type.shape,
                         .frac = real ? mode->frac : 0,
                         .bound = real ? mode->input_bound : 1};
        double most = ldexp(port.bound, port.frac);
        b->values[v->id] =
            (sec_tensor){.wire = sb_input(b, &port, (size_t)ir_shape_size(&v->type.shape)),
                         .shape = v->type.shape,
                         .frac = port.frac,
                         .lo = real ? -most : 0,
                         .hi = most,
                         .present = true};
    }
    return b->status;
}

static bool all_known(const ir_node *node)
{
    for (uint32_t i = 0; i < node->n_outputs; i++)
        if (node->outputs[i] && !(node->outputs[i]->constant))
            return false;
    return true;
}

static tacit_status apply_rules(sec_builder *b)
{
    for (uint32_t i = 0; i < b->graph->nodes.count; i++) {
        const ir_node *node = b->graph->nodes.data[i];
        if (all_known(node))
            continue;
        for (uint32_t o = 0; o < node->n_outputs; o++)
            if (node->outputs[o] && !ir_type_is_static(&node->outputs[o]->type))
                return error_set(b->err, TACIT_ERR_SHAPE,
                                 "node '%s' (%s): its shape is not known before the run",
                                 node->name, node->type);
        op_secure_fn *rule = sec_rule(node);
        if (!rule)
            return error_set(b->err, TACIT_ERR_UNSUPPORTED,
                             "Op %s%s%s in node '%s' has no secure rule", node->domain,
                             *node->domain ? "." : "", node->type, node->name);
        b->node = node;
        b->p->blocks += strcmp(node->type, "Attention") == 0;
        op_secure c = {.node = node, .b = b};
        tacit_status status = rule(&c);
        TRY(b->status);
        if (status != TACIT_OK)
            return status;
    }
    b->node = NULL;
    return TACIT_OK;
}

/* Outputs wait for the guard's verdict, which is their second input. */
static tacit_status declare_outputs(sec_builder *b)
{
    sec_wire_id verdict = sec_verdict(b);
    TRY(b->status);
    for (uint32_t i = 0; i < b->graph->outputs.count; i++) {
        const ir_value *v = b->graph->outputs.data[i];
        const sec_tensor *t = &b->values[v->id];
        if (!t->present)
            return error_set(b->err, TACIT_ERR_UNSUPPORTED,
                             "output '%s' does not depend on any secret", v->name);
        sec_port port = {.name = v->name,
                         .dtype = v->type.dtype,
                         .shape = v->type.shape,
                         .wire = t->wire,
                         .frac = t->frac,
                         .bound = st_bound(t)};
        sec_instr out = {.op = SEC_OUTPUT,
                         .port = i,
                         .node = v->producer ? v->producer->id : SEC_NONE,
                         .n_in = verdict == SEC_NONE ? 1 : 2,
                         .in = sb_alloc(b, 2, sizeof *out.in)};
        unsigned need = sb_bits(st_bound(t));
        if (need > 64)
            return error_set(b->err, TACIT_ERR_LIMIT,
                             "output '%s': values up to 2^%.1f do not fit 64 bits; lower --frac or "
                             "use --calibrate",
                             v->name, log2(st_bound(t)));
        out.min_in = (uint8_t)need;
        TRY(b->status);
        out.in[0] = t->wire;
        out.in[1] = verdict;
        if (!vec_push(&b->p->memory, &b->p->outputs, port) ||
            !vec_push(&b->p->memory, &b->p->instrs, out))
            return error_memory(b->err, "the secure program");
    }
    return TACIT_OK;
}

/* ---- the name of a program ---- */

static void add_word(sha256 *s, uint64_t x)
{
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(x >> (8 * i));
    sha256_add(s, bytes, 8);
}

static void add_array(sha256 *s, const void *data, size_t size)
{
    add_word(s, data ? size : UINT64_MAX);
    if (data)
        sha256_add(s, data, size);
}

static void hash_gate(sha256 *s, const fss_gate *g)
{
    const uint64_t fields[] = {
        g->kind,       g->count,       g->in_bits, g->out_bits,   g->eff_bits,        g->shift,
        g->index_bits, g->index2_bits, g->degree,  g->heavy,      g->digits,          g->direct,
        g->wide,       g->dither,      g->rows,    g->thresholds, (uint64_t)g->offset};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        add_word(s, fields[i]);
    bool curve = g->kind == FSS_CURVE;
    size_t rows = g->rows ? g->rows : 1, pieces = curve ? 16 : rows * (g->thresholds + 1u) * 8;
    size_t table = (curve || g->kind == FSS_SPLINE ? g->degree + 1u : rows) << g->index_bits;
    add_array(s, g->threshold, g->thresholds * 8u);
    add_array(s, g->slope, pieces);
    add_array(s, g->base, pieces);
    add_array(s, g->table, table * 8);
    add_array(s, g->table2, (size_t)8 << g->index2_bits);
}

static void hash_instr(sha256 *s, const sec_program *p, const sec_instr *in)
{
    size_t count = in->n_out ? p->wires.data[in->out[0]].count : 0;
    const uint64_t fields[] = {in->op,
                               in->start,
                               in->id,
                               in->n_in,
                               in->n_out,
                               in->m,
                               in->n,
                               in->k,
                               in->batch,
                               in->period,
                               in->bits,
                               in->keep_count,
                               in->port,
                               in->guard,
                               (uint64_t)in->owner,
                               (uint64_t)(int64_t)in->frac,
                               (uint64_t)in->add};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        add_word(s, fields[i]);
    add_array(s, in->in, in->n_in * sizeof *in->in);
    add_array(s, in->out, sizeof in->out);
    add_array(s, in->coef, sizeof in->coef);
    add_array(s, in->index, count * 4);
    add_array(s, in->offset, (count + 1) * 4);
    add_array(s, in->values, count * 8);
    add_array(s, in->x_at, in->batch * 4u);
    add_array(s, in->w_at, in->batch * 4u);
    add_array(s, in->keep, in->keep_count * 4u);
    add_array(s, in->keep_sum, (in->keep_count + 1u) * 4u);
    if (in->op == SEC_GATE)
        hash_gate(s, &in->gate);
}

static void hash_program(sec_program *p)
{
    sha256 s;
    sha256_init(&s);
    const sec_mode *m = &p->mode;
    const uint64_t mode[] = {1 /* version */, (uint64_t)m->weights, m->dither,
                             m->compare,      m->calibrated,        m->frac,
                             m->weight_frac};
    for (size_t i = 0; i < sizeof mode / sizeof *mode; i++)
        add_word(&s, mode[i]);
    for (uint32_t i = 0; i < p->wires.count; i++) {
        const sec_wire *w = &p->wires.data[i];
        add_word(&s, w->count);
        add_word(&s, (uint64_t)w->bits << 16 | (uint64_t)w->share_bits << 8 | w->share_derived);
    }
    for (uint32_t i = 0; i < p->instrs.count; i++)
        hash_instr(&s, p, &p->instrs.data[i]);
    add_array(&s, p->facts.data, p->facts.count * sizeof *p->facts.data);
    sha256_end(&s, p->hash);
}

static tacit_status compile(sec_program *p, const ir_graph *graph, const sec_options *o,
                            tacit_error *err)
{
    static const uint8_t tweak[16] = "tacit secure v1";
    TRY(fss_suite_init(&p->suite, FSS_PRG_AES, FSS_TREE_HALF, tweak, err));
    p->gemm = fss_gemm_detect();
    p->mode = o->mode;
    p->graph = graph;
    if (p->mode.frac < 6 || p->mode.frac > 20 || p->mode.weight_frac < 6 ||
        p->mode.weight_frac > 20 || !(p->mode.input_bound > 0) || p->mode.input_bound > 1e6 ||
        p->mode.compare >= SEC_COMPARES)
        return error_set(err, TACIT_ERR_ARGUMENT,
                         "fraction bits must lie in 6..20 and the input bound in (0, 1e6]");
    sec_builder b = {.p = p, .options = o, .graph = graph, .err = err};
    b.values = sb_alloc(&b, graph->values.count, sizeof *b.values);
    b.rescaled = sb_alloc(&b, graph->values.count, sizeof *b.rescaled);
    p->ranges = sb_alloc(&b, graph->nodes.count, sizeof *p->ranges);
    TRY(b.status);
    for (uint32_t i = 0; i < graph->nodes.count; i++)
        p->ranges[i].frac = -1;
    TRY(declare_inputs(&b));
    TRY(apply_rules(&b));
    TRY(declare_outputs(&b));
    TRY(sec_finish(&b));
    if (o->facts && b.fact_at != o->n_facts)
        return error_set(err, TACIT_ERR_FORMAT, "the description has %u facts too many",
                         o->n_facts - b.fact_at);
    hash_program(p);
    return TACIT_OK;
}

void sec_program_free(sec_program *p)
{
    if (!p)
        return;
    const tacit_allocator *a = p->memory.allocator;
    arena_free(&p->memory);
    mem_release(a, p, sizeof *p);
}

tacit_status sec_compile(const ir_graph *graph, const sec_options *options,
                         const tacit_allocator *allocator, sec_program **out, tacit_error *err)
{
    sec_program *p = mem_alloc_zero(allocator, sizeof *p);
    *out = NULL;
    if (!p)
        return error_memory(err, "the secure program");
    arena_init(&p->memory, allocator);
    tacit_status status = compile(p, graph, options, err);
    if (status != TACIT_OK) {
        sec_program_free(p);
        return status;
    }
    *out = p;
    return TACIT_OK;
}

/* ---- numbers in and out ---- */

static tacit_status check_input(const sec_port *port, const ir_tensor *t, tacit_error *err)
{
    char want[IR_SHAPE_TEXT], got[IR_SHAPE_TEXT];
    if (t->dtype != port->dtype || !ir_shape_equal(&t->shape, &port->shape))
        return error_set(err, TACIT_ERR_SHAPE, "input '%s' is %s%s and must be %s%s", port->name,
                         tacit_dtype_text(t->dtype), ir_shape_text(&t->shape, got),
                         tacit_dtype_text(port->dtype), ir_shape_text(&port->shape, want));
    return TACIT_OK;
}

static tacit_status index_at(const sec_port *port, const ir_tensor *t, int64_t i, int64_t *at,
                             tacit_error *err)
{
    *at = ir_load_i64(t->dtype, t->data, i);
    if (*at < 0)
        *at += port->one_hot;
    if (*at < 0 || *at >= port->one_hot)
        return error_set(err, TACIT_ERR_VALUE,
                         "element %lld of input '%s' is not an index of a table of %u rows",
                         (long long)i, port->name, port->one_hot);
    return TACIT_OK;
}

tacit_status sec_encode_index(const sec_program *p, uint32_t index, const ir_tensor *t,
                              uint64_t *words, tacit_error *err)
{
    const sec_port *port = &p->inputs.data[index];
    TRY(check_input(port, t, err));
    for (int64_t i = 0, n = ir_tensor_count(t); i < n; i++) {
        int64_t at;
        TRY(index_at(port, t, i, &at, err));
        words[i] = (uint64_t)at;
    }
    return TACIT_OK;
}

/* Constant time in the index: every word of the row is written the same way. */
static tacit_status encode_index(const sec_program *p, const sec_port *port, const ir_tensor *t,
                                 uint64_t *words, tacit_error *err)
{
    int64_t n = ir_tensor_count(t);
    uint64_t mask = ~(uint64_t)0 >> (64 - p->wires.data[port->wire].bits);
    for (int64_t i = 0; i < n; i++) {
        int64_t at;
        TRY(index_at(port, t, i, &at, err));
        if (port->table) {
            const ir_tensor *table = port->table->constant;
            size_t width = (size_t)table->shape.dims[1];
            for (size_t k = 0; k < width; k++) {
                double v = ir_load_f64(table->dtype, table->data, at * (int64_t)width + (int64_t)k);
                words[(size_t)i * width + k] = (uint64_t)llrint(ldexp(v, port->frac)) & mask;
            }
            continue;
        }
        for (uint32_t k = 0; k < port->one_hot; k++)
            words[(size_t)i * port->one_hot + k] = (uint64_t)(at == k);
    }
    return TACIT_OK;
}

tacit_status sec_encode(const sec_program *p, uint32_t index, const ir_tensor *t, uint64_t *words,
                        tacit_error *err)
{
    const sec_port *port = &p->inputs.data[index];
    const sec_wire *w = &p->wires.data[port->wire];
    TRY(check_input(port, t, err));
    if (port->one_hot)
        return encode_index(p, port, t, words, err);
    uint64_t mask = ~(uint64_t)0 >> (64 - w->bits);
    for (size_t i = 0; i < w->count; i++) {
        double v = ir_load_f64(t->dtype, t->data, (int64_t)i);
        if (!isfinite(v))
            return error_set(err, TACIT_ERR_VALUE, "element %zu of input '%s' is not finite", i,
                             port->name);
        if (fabs(v) > port->bound)
            return error_set(err, TACIT_ERR_VALUE,
                             "element %zu of input '%s' is outside [-%g, %g]; ranges were proven "
                             "for that (--bound)",
                             i, port->name, port->bound, port->bound);
        words[i] = (uint64_t)llrint(ldexp(v, port->frac)) & mask;
    }
    return TACIT_OK;
}

void sec_decode(const sec_program *p, uint32_t index, const uint64_t *words, ir_tensor *t)
{
    const sec_port *port = &p->outputs.data[index];
    const sec_wire *w = &p->wires.data[port->wire];
    double unit = ldexp(1, -port->frac); /* a power of two: the product is exact */
    float *plain = t->dtype == TACIT_F32 ? t->data : NULL;
    for (size_t i = 0; plain && i < w->count; i++) /* logits are many */
        plain[i] = (float)((double)fss_signed(words[i], w->bits) * unit);
    for (size_t i = 0; !plain && i < w->count; i++) {
        int64_t x = fss_signed(words[i], w->bits);
        if (ir_dtype_is_float(port->dtype))
            ir_store_f64(t->dtype, t->data, (int64_t)i, (double)x * unit);
        else
            ir_store_i64(t->dtype, t->data, (int64_t)i, port->frac ? x >> port->frac : x);
    }
}
