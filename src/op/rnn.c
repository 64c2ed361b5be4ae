/* SPDX-License-Identifier: Apache-2.0
 * RNN, GRU and LSTM: one loop over time and directions, three cells. */
#include <math.h>
#include <string.h>

#include "op/lowerings.h"
#include "op/rnn.h"
#include "op/spell.h"
#include "op/values.h"
#include "op/vjp.h"

static const struct act_row {
    const char *name;
    bool alpha, beta; /* which parameters it takes from the lists */
    double default_alpha, default_beta;
} acts[] = {
    {"Sigmoid", false, false, 0, 0},     {"Tanh", false, false, 0, 0},
    {"Relu", false, false, 0, 0},        {"Affine", true, true, 1, 0},
    {"LeakyRelu", true, false, 0.01, 0}, {"ThresholdedRelu", true, false, 1, 0},
    {"ScaledTanh", true, true, 1, 1},    {"HardSigmoid", true, true, 0.2, 0.5},
    {"Elu", true, false, 1, 0},          {"Softsign", false, false, 0, 0},
    {"Softplus", false, false, 0, 0},
};

static double apply(const op_rnn_act *f, double x)
{
    switch (f->kind) {
    case 0:
        return 1 / (1 + exp(-x));
    case 1:
        return tanh(x);
    case 2:
        return x > 0 ? x : 0;
    case 3:
        return f->alpha * x + f->beta;
    case 4:
        return x >= 0 ? x : f->alpha * x;
    case 5:
        return x >= f->alpha ? x : 0;
    case 6:
        return f->alpha * tanh(f->beta * x);
    case 7:
        return fmin(fmax(f->alpha * x + f->beta, 0), 1);
    case 8:
        return x >= 0 ? x : f->alpha * expm1(x);
    case 9:
        return x / (1 + fabs(x));
    default:
        return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
    }
}

static tacit_status read_activations(const ir_node *node, op_rnn *r, tacit_error *err)
{
    static const int usual[3][OP_RNN_FUNCTIONS] = {{1, 0, 0}, {0, 1, 0}, {0, 1, 1}};
    uint32_t n, n_alpha, n_beta, next_alpha = 0, next_beta = 0;
    const ir_string *names = ir_attr_strings(node, "activations", &n);
    const double *alpha = ir_attr_floats(node, "activation_alpha", &n_alpha);
    const double *beta = ir_attr_floats(node, "activation_beta", &n_beta);
    uint32_t per = r->kind == OP_RNN_PLAIN ? 1 : r->kind == OP_RNN_GRU ? 2 : 3;
    if (names && n != per * (uint32_t)r->directions)
        return error_set(err, TACIT_ERR_VALUE, "%u activations, expected %u", n,
                         per * (uint32_t)r->directions);
    for (uint32_t i = 0; i < per * (uint32_t)r->directions; i++) {
        int kind = names ? -1 : usual[r->kind][i % per];
        for (int k = 0; names && k < (int)(sizeof acts / sizeof *acts); k++)
            if (names[i].length == strlen(acts[k].name) &&
                strncasecmp(names[i].data, acts[k].name, names[i].length) == 0)
                kind = k;
        if (kind < 0)
            return error_set(err, TACIT_ERR_VALUE, "unknown activation '%.*s'",
                             (int)names[i].length, names[i].data);
        op_rnn_act *f = &r->f[i / per][i % per];
        *f = (op_rnn_act){kind, acts[kind].default_alpha, acts[kind].default_beta};
        if (acts[kind].alpha && next_alpha < n_alpha)
            f->alpha = alpha[next_alpha++];
        if (acts[kind].beta && next_beta < n_beta)
            f->beta = beta[next_beta++];
    }
    return TACIT_OK;
}

tacit_status op_rnn_read(const ir_node *node, const ir_shape *x, const ir_shape *w, op_rnn *r,
                         tacit_error *err)
{
    const char *direction = ir_attr_string(node, "direction", "forward");
    memset(r, 0, sizeof *r);
    r->kind = strcmp(node->type, "RNN") == 0   ? OP_RNN_PLAIN
              : strcmp(node->type, "GRU") == 0 ? OP_RNN_GRU
                                               : OP_RNN_LSTM;
    r->gates = r->kind == OP_RNN_PLAIN ? 1 : r->kind == OP_RNN_GRU ? 3 : 4;
    r->by_batch = ir_attr_int(node, "layout", 0) != 0;
    r->reverse = strcmp(direction, "reverse") == 0;
    r->directions = strcmp(direction, "bidirectional") == 0 ? 2 : 1;
    if (!r->reverse && r->directions == 1 && strcmp(direction, "forward") != 0)
        return error_set(err, TACIT_ERR_VALUE, "unknown direction '%s'", direction);
    if (x->rank != 3 || w->rank != 3 || w->dims[1] % r->gates)
        return error_set(err, TACIT_ERR_SHAPE, "X and W must have rank 3, W's rows %d gates",
                         r->gates);
    r->steps = x->dims[r->by_batch ? 1 : 0];
    r->batch = x->dims[r->by_batch ? 0 : 1];
    r->input = x->dims[2];
    r->hidden = w->dims[1] / r->gates;
    if (ir_attr_int(node, "hidden_size", r->hidden) != r->hidden)
        return error_set(err, TACIT_ERR_SHAPE, "hidden_size is %lld, the weights say %lld",
                         (long long)ir_attr_int(node, "hidden_size", 0), (long long)r->hidden);
    r->linear_before_reset = ir_attr_int(node, "linear_before_reset", 0) != 0;
    r->input_forget = ir_attr_int(node, "input_forget", 0) != 0;
    r->clip = ir_attr_float(node, "clip", INFINITY);
    return read_activations(node, r, err);
}

static tacit_status rnn_infer(op_infer *c)
{
    op_rnn r;
    TRY(op_need_float(c, 0));
    TRY(op_rnn_read(c->node, &c->in[0]->shape, &c->in[1]->shape, &r, c->err));
    int64_t d = r.directions, g = r.gates * r.hidden;
    int64_t state[3] = {r.by_batch ? r.batch : d, r.by_batch ? d : r.batch, r.hidden};
    TRY(op_need_shape(c, 1, 3, (int64_t[]){d, g, r.input}));
    TRY(op_need_shape(c, 2, 3, (int64_t[]){d, g, r.hidden}));
    TRY(op_need_shape(c, 3, 2, (int64_t[]){d, 2 * g}));
    TRY(op_need_shape(c, 4, 1, &r.batch));
    TRY(op_need_shape(c, 5, 3, state));
    TRY(op_need_shape(c, 6, 3, state));
    TRY(op_need_shape(c, 7, 2, (int64_t[]){d, 3 * r.hidden}));
    tacit_dtype dtype = c->in[0]->dtype;
    if (r.by_batch)
        op_set_out_dims(c, 0, dtype, 4, (int64_t[]){r.batch, r.steps, d, r.hidden});
    else
        op_set_out_dims(c, 0, dtype, 4, (int64_t[]){r.steps, d, r.batch, r.hidden});
    op_set_out_dims(c, 1, dtype, 3, state);
    op_set_out_dims(c, 2, dtype, 3, state);
    return TACIT_OK;
}

/* Weights of one direction. */
typedef struct weights {
    const double *w, *r, *wb, *rb, *peephole;
    const op_rnn_act *f;
} weights;

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static double clipped(const op_rnn *r, double v)
{
    return v > r->clip ? r->clip : v < -r->clip ? -r->clip : v;
}

/* Row `row` of W·x + Wb and of R·h + Rb. */
static double from_input(const op_rnn *r, const weights *k, int64_t row, const double *x)
{
    return dot(k->w + row * r->input, x, r->input) + (k->wb ? k->wb[row] : 0);
}
static double from_state(const op_rnn *r, const weights *k, int64_t row, const double *h)
{
    return dot(k->r + row * r->hidden, h, r->hidden) + (k->rb ? k->rb[row] : 0);
}

static void gru_cell(const op_rnn *r, const weights *k, const double *x, const double *h,
                     double *next, double *reset)
{
    int64_t n = r->hidden;
    for (int64_t i = 0; i < n; i++)
        reset[i] =
            apply(&k->f[0], clipped(r, from_input(r, k, n + i, x) + from_state(r, k, n + i, h)));
    for (int64_t i = 0; i < n; i++)
        reset[n + i] = reset[i] * h[i];
    for (int64_t i = 0; i < n; i++) {
        double z = apply(&k->f[0], clipped(r, from_input(r, k, i, x) + from_state(r, k, i, h)));
        double recurrent = r->linear_before_reset ? reset[i] * from_state(r, k, 2 * n + i, h)
                                                  : from_state(r, k, 2 * n + i, reset + n);
        double fresh = apply(&k->f[1], clipped(r, from_input(r, k, 2 * n + i, x) + recurrent));
        next[i] = (1 - z) * fresh + z * h[i];
    }
}

/* Gates in W and R are i, o, f, c; peepholes i, o, f. */
static void lstm_cell(const op_rnn *r, const weights *k, const double *x, const double *h,
                      double *next, double *cell)
{
    int64_t n = r->hidden;
    const double *p = k->peephole;
    for (int64_t i = 0; i < n; i++) {
        double in = from_input(r, k, i, x) + from_state(r, k, i, h) + (p ? p[i] * cell[i] : 0);
        double forget = from_input(r, k, 2 * n + i, x) + from_state(r, k, 2 * n + i, h) +
                        (p ? p[2 * n + i] * cell[i] : 0);
        double fresh = from_input(r, k, 3 * n + i, x) + from_state(r, k, 3 * n + i, h);
        in = apply(&k->f[0], clipped(r, in));
        forget = r->input_forget ? 1 - in : apply(&k->f[0], clipped(r, forget));
        cell[i] = forget * cell[i] + in * apply(&k->f[1], clipped(r, fresh));
        double out =
            from_input(r, k, n + i, x) + from_state(r, k, n + i, h) + (p ? p[n + i] * cell[i] : 0);
        next[i] = apply(&k->f[0], clipped(r, out)) * apply(&k->f[2], cell[i]);
    }
}

/* One sequence in one direction. `h` and `cell` start as the initial state and end as the last. */
static void run_sequence(const op_rnn *r, const weights *k, bool backward, int64_t length,
                         const double *x, int64_t x_step, double *y, int64_t y_step, double *h,
                         double *cell, double *work)
{
    for (int64_t t = 0; t < length; t++) {
        int64_t at = backward ? length - 1 - t : t;
        const double *now = x + at * x_step;
        double *next = work;
        if (r->kind == OP_RNN_LSTM)
            lstm_cell(r, k, now, h, next, cell);
        else if (r->kind == OP_RNN_GRU)
            gru_cell(r, k, now, h, next, work + r->hidden);
        else
            for (int64_t i = 0; i < r->hidden; i++)
                next[i] =
                    apply(&k->f[0], clipped(r, from_input(r, k, i, now) + from_state(r, k, i, h)));
        memcpy(h, next, (size_t)r->hidden * sizeof *h);
        memcpy(y + at * y_step, next, (size_t)r->hidden * sizeof *h);
    }
}

static tacit_status rnn_eval(op_eval *c)
{
    op_rnn r;
    double *x, *w, *rec, *b, *h, *cell, *p, *y, *work;
    int64_t *lengths;
    TRY(op_rnn_read(c->node, &op_in(c, 0)->shape, &op_in(c, 1)->shape, &r, c->err));
    int64_t n = r.hidden, g = r.gates * n, states = r.directions * r.batch * n;
    TRY(op_input_f64(c, 0, &x));
    TRY(op_input_f64(c, 1, &w));
    TRY(op_input_f64(c, 2, &rec));
    TRY(op_input_f64(c, 3, &b));
    TRY(op_input_i64(c, 4, &lengths));
    TRY(op_input_f64(c, 5, &h));
    TRY(op_input_f64(c, 6, &cell));
    TRY(op_input_f64(c, 7, &p));
    if (!h)
        TRY(op_scratch_f64(c, states, &h));
    if (!cell)
        TRY(op_scratch_f64(c, states, &cell));
    TRY(op_scratch_f64(c, r.steps * states, &y));
    TRY(op_scratch_f64(c, 3 * n, &work));
    for (int64_t i = 0; i < r.directions * r.batch; i++) {
        int64_t d = i / r.batch, s = i % r.batch, length = lengths ? lengths[s] : r.steps;
        if (length < 0 || length > r.steps)
            return error_set(c->err, TACIT_ERR_VALUE, "sequence_lens[%lld] is %lld of %lld steps",
                             (long long)s, (long long)length, (long long)r.steps);
        weights k = {w + d * g * r.input,      rec + d * g * n,
                     b ? b + d * 2 * g : NULL, b ? b + d * 2 * g + g : NULL,
                     p ? p + d * 3 * n : NULL, r.f[d]};
        int64_t state = (r.by_batch ? s * r.directions + d : d * r.batch + s) * n;
        int64_t x_at = r.by_batch ? s * r.steps * r.input : s * r.input;
        int64_t x_step = r.by_batch ? r.input : r.batch * r.input;
        int64_t y_at = r.by_batch ? (s * r.steps * r.directions + d) * n : (d * r.batch + s) * n;
        int64_t y_step = r.by_batch ? r.directions * n : r.directions * r.batch * n;
        run_sequence(&r, &k, r.reverse || d == 1, length, x + x_at, x_step, y + y_at, y_step,
                     h + state, cell + state, work);
    }
    op_output_f64(c, 0, y);
    op_output_f64(c, 1, h);
    op_output_f64(c, 2, cell);
    return TACIT_OK;
}

/* --- as scans, for the transforms ----------------------------------------------------------------
 */

static ir_value *with_float(op_diff *c, ir_value *v, const char *name, double value)
{
    if (v && !ir_attr_set_float(c->graph, v->producer, name, value))
        c->status = error_memory(c->err, "a derivative graph");
    return c->status == TACIT_OK ? v : NULL;
}

static ir_value *spell_act(op_diff *c, const op_rnn *r, const op_rnn_act *f, ir_value *x, bool clip)
{
    static const char *const plain[] = {
        "Sigmoid", "Tanh",        "Relu", NULL,       "LeakyRelu", "ThresholdedRelu",
        NULL,      "HardSigmoid", "Elu",  "Softsign", "Softplus"};
    if (clip && isfinite(r->clip))
        x = op_spell_clip(c, x, -r->clip, r->clip);
    if (f->kind == 3)
        return op_spell_shift(c, op_diff_scale(c, x, f->alpha), f->beta);
    if (f->kind == 6)
        return op_diff_scale(c, op_diff1(c, "Tanh", op_diff_scale(c, x, f->beta)), f->alpha);
    ir_value *y = op_diff1(c, plain[f->kind], x);
    if (acts[f->kind].alpha)
        y = with_float(c, y, "alpha", f->alpha);
    return acts[f->kind].beta ? with_float(c, y, "beta", f->beta) : y;
}

/* What one direction's step reads; gates of the input are computed for all steps at once. */
typedef struct step {
    const op_rnn *r;
    const op_rnn_act *f;
    ir_value *x, *h, *cell;      /* [B, gates·H], [B, H] */
    ir_value *rec, *bias, *peep; /* outer: [H, gates·H], [gates·H], [3·H]; the last two or NULL */
} step;

static ir_value *gate(op_diff *c, const step *s, ir_value *from, int64_t k)
{
    int32_t axis = from ? from->type.shape.rank - 1 : 0;
    return op_spell_slice(c, from, axis, k * s->r->hidden, (k + 1) * s->r->hidden);
}

/* Gate k of h·R + Rb. */
static ir_value *recurrent(op_diff *c, const step *s, ir_value *h, int64_t k)
{
    ir_value *y = op_spell_matmul(c, h, gate(c, s, s->rec, k));
    return s->bias ? op_spell_add(c, y, gate(c, s, s->bias, k)) : y;
}

static ir_value *preact(op_diff *c, const step *s, int64_t k)
{
    return op_spell_add(c, gate(c, s, s->x, k), recurrent(c, s, s->h, k));
}

static ir_value *one_minus(op_diff *c, ir_value *x)
{
    return op_spell_shift(c, op_diff1(c, "Neg", x), 1);
}

static ir_value *spell_gru(op_diff *c, const step *s)
{
    const op_rnn *r = s->r;
    ir_value *reset = spell_act(c, r, &s->f[0], preact(c, s, 1), true);
    ir_value *z = spell_act(c, r, &s->f[0], preact(c, s, 0), true);
    ir_value *back = r->linear_before_reset ? op_spell_mul(c, reset, recurrent(c, s, s->h, 2))
                                            : recurrent(c, s, op_spell_mul(c, reset, s->h), 2);
    ir_value *fresh = spell_act(c, r, &s->f[1], op_spell_add(c, gate(c, s, s->x, 2), back), true);
    return op_spell_add(c, op_spell_mul(c, one_minus(c, z), fresh), op_spell_mul(c, z, s->h));
}

static ir_value *peeped(op_diff *c, const step *s, ir_value *v, ir_value *cell, int64_t k)
{
    return s->peep ? op_spell_add(c, v, op_spell_mul(c, gate(c, s, s->peep, k), cell)) : v;
}

static ir_value *spell_lstm(op_diff *c, const step *s, ir_value **cell)
{
    const op_rnn *r = s->r;
    ir_value *in = peeped(c, s, preact(c, s, 0), s->cell, 0);
    in = spell_act(c, r, &s->f[0], in, true);
    ir_value *forget = peeped(c, s, preact(c, s, 2), s->cell, 2);
    forget = r->input_forget ? one_minus(c, in) : spell_act(c, r, &s->f[0], forget, true);
    ir_value *fresh = spell_act(c, r, &s->f[1], preact(c, s, 3), true);
    *cell = op_spell_add(c, op_spell_mul(c, forget, s->cell), op_spell_mul(c, in, fresh));
    ir_value *out = peeped(c, s, preact(c, s, 1), *cell, 1);
    out = spell_act(c, r, &s->f[0], out, true);
    return op_spell_mul(c, out, spell_act(c, r, &s->f[2], *cell, false));
}

/* a where the mask is one, b where it is zero. */
static ir_value *chosen(op_diff *c, ir_value *mask, ir_value *a, ir_value *b)
{
    return mask ? op_spell_add(c, op_spell_mul(c, mask, a), op_spell_mul(c, one_minus(c, mask), b))
                : a;
}

/* Row d of [D, …], without that axis. */
static ir_value *of_direction(op_diff *c, ir_value *x, int64_t d)
{
    return x ? op_spell_gather(c, x, op_diff_scalar(c, TACIT_I64, (double)d), 0) : NULL;
}

/* The scan of direction d over x [T, B, I]; mask [T, B, 1] or NULL. */
static ir_node *spell_direction(op_diff *c, const op_rnn *r, int64_t d, ir_value *x, ir_value *mask)
{
    int64_t g = r->gates * r->hidden;
    ir_value *w = of_direction(c, c->node->inputs[1], d),
             *b = of_direction(c, op_spell_input(c, 3), d);
    ir_value *first[2];
    ir_type state = x->type;
    state.shape = ir_shape_of(2, (int64_t[]){r->batch, r->hidden});
    for (uint32_t i = 0; i < 2; i++) {
        ir_value *v = op_spell_input(c, 5 + i);
        if (v && r->by_batch)
            v = op_diff_transpose(c, v, (int64_t[]){1, 0, 2});
        first[i] = v ? of_direction(c, v, d) : op_diff_zeros(c, &state);
    }
    ir_value *gates = op_spell_matmul(c, x, op_diff_swap_last(c, w));
    if (b)
        gates = op_spell_add(c, gates, op_spell_slice(c, b, 0, 0, g));
    op_scan_build build;
    if (!op_scan_begin(&build, c))
        return NULL;
    step s = {.r = r, .f = r->f[d], .h = op_scan_carry(&build, first[0])};
    if (r->kind == OP_RNN_LSTM)
        s.cell = op_scan_carry(&build, first[1]);
    s.x = op_scan_x(&build, gates);
    ir_value *m = op_scan_x(&build, mask);
    s.rec = op_scan_outer(&build, op_diff_swap_last(c, of_direction(c, c->node->inputs[2], d)));
    s.bias = b ? op_scan_outer(&build, op_spell_slice(c, b, 0, g, 2 * g)) : NULL;
    s.peep = op_scan_outer(&build, of_direction(c, op_spell_input(c, 7), d));
    op_diff *in = &build.body;
    ir_value *cell = NULL, *h = r->kind == OP_RNN_LSTM ? spell_lstm(in, &s, &cell)
                                : r->kind == OP_RNN_GRU
                                    ? spell_gru(in, &s)
                                    : spell_act(in, r, s.f, preact(in, &s, 0), true);
    build.step[build.n_step++] = m ? op_spell_mul(in, m, h) : h;
    build.next[0] = chosen(in, m, h, s.h);
    build.next[1] = cell ? chosen(in, m, cell, s.cell) : NULL;
    build.reverse = r->reverse || d == 1;
    return op_scan_end(&build);
}

/* 1 for steps inside the sequence: [T, B, 1]; NULL without lengths. */
static ir_value *spell_lengths(op_diff *c, const op_rnn *r, tacit_dtype dtype)
{
    ir_value *lengths = op_spell_input(c, 4);
    int64_t *count = op_spell_scratch(c, (size_t)(r->steps + 1) * sizeof *count);
    for (int64_t i = 0; count && i < r->steps; i++)
        count[i] = i;
    if (!lengths || !count)
        return NULL;
    ir_value *t = op_spell_ints(c, 3, (int64_t[]){r->steps, 1, 1}, count);
    lengths =
        op_spell_shaped(c, op_diff_cast(c, lengths, TACIT_I64), 3, (int64_t[]){1, r->batch, 1});
    return op_diff_cast(c, op_diff2(c, "Less", t, lengths), dtype);
}

tacit_status op_spell_rnn(op_diff *c, ir_value **out)
{
    const ir_node *n = c->node;
    ir_value *x = n->inputs[0], *all[2], *last[2][2];
    op_rnn r;
    TRY(op_rnn_read(n, &x->type.shape, &n->inputs[1]->type.shape, &r, c->err));
    if (r.by_batch)
        x = op_diff_transpose(c, x, (int64_t[]){1, 0, 2});
    ir_value *mask = spell_lengths(c, &r, n->inputs[0]->type.dtype);
    for (int64_t d = 0; x && d < r.directions; d++) {
        ir_node *scan = spell_direction(c, &r, d, x, mask);
        if (!scan)
            return c->status;
        int64_t axis = r.by_batch ? 1 : 0; /* where the directions lie in the states */
        last[0][d] = op_spell_unsqueeze(c, scan->outputs[0], axis);
        last[1][d] = r.kind == OP_RNN_LSTM ? op_spell_unsqueeze(c, scan->outputs[1], axis) : NULL;
        all[d] = op_spell_unsqueeze(c, scan->outputs[r.kind == OP_RNN_LSTM ? 2 : 1], 1);
    }
    uint32_t count = (uint32_t)r.directions;
    ir_value *y = op_spell_concat(c, count, all, 1); /* [T, D, B, H] */
    out[0] = r.by_batch && y ? op_diff_transpose(c, y, (int64_t[]){2, 0, 1, 3}) : y;
    for (uint32_t i = 0; i < 2; i++)
        if (n->n_outputs > i + 1 && n->outputs[i + 1])
            out[i + 1] = op_spell_concat(c, count, last[i], r.by_batch ? 1 : 0);
    return c->status;
}

const op_def op_rows_rnn[] = {
    {.name = "RNN",
     .min_in = 3,
     .max_in = 6,
     .min_out = 0,
     .max_out = 2,
     .infer = rnn_infer,
     .eval = rnn_eval,
     .lower = op_lower_rnn,
     .spell = op_spell_rnn},
    {.name = "GRU",
     .min_in = 3,
     .max_in = 6,
     .min_out = 0,
     .max_out = 2,
     .infer = rnn_infer,
     .eval = rnn_eval,
     .lower = op_lower_rnn,
     .spell = op_spell_rnn},
    {.name = "LSTM",
     .min_in = 3,
     .max_in = 8,
     .min_out = 0,
     .max_out = 3,
     .infer = rnn_infer,
     .eval = rnn_eval,
     .lower = op_lower_rnn,
     .spell = op_spell_rnn},
    {0},
};
