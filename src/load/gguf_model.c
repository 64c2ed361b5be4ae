/* SPDX-License-Identifier: Apache-2.0 */
#include "load/gguf_model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    MOST_LAYERS = 4096,
    MOST_WIDTH = 1 << 20,
    MOST_POSITIONS = 131072, /* longer contexts are cut to this */
    MOST_TABLE = 1 << 24,
};

#define NEIGHBOURS .rotary = LOAD_GGUF_NEIGHBOURS
#define HALVES .rotary = LOAD_GGUF_HALVES
#define LEARNED .rotary = LOAD_GGUF_LEARNED
#define GELU .activation = LOAD_GGUF_GELU
#define RELU_SQUARED .activation = LOAD_GGUF_RELU_SQUARED
#define PARALLEL .order = LOAD_GGUF_PARALLEL
#define BOTH .order = LOAD_GGUF_BOTH

static const load_gguf_architecture architectures[] = {
    {"arcee", NEIGHBOURS, RELU_SQUARED},
    {"chatglm", NEIGHBOURS, .joined_gate = true},
    {"cohere2", NEIGHBOURS, PARALLEL, .layer_norm = true, .window_period = 4, .still_period = 4},
    {"command-r", NEIGHBOURS, PARALLEL, .layer_norm = true},
    {"ernie4_5", NEIGHBOURS},
    {"exaone", HALVES},
    {"falcon", HALVES, GELU, PARALLEL, .layer_norm = true},
    {"gemma", HALVES, GELU, .root_width = true},
    {"gemma2", HALVES, GELU, BOTH, .root_width = true, .window_period = 2, .window = 4096,
     .softcap = 50, .final_softcap = 30, .wide_scores = 46},
    {"gemma3", HALVES, GELU, BOTH, .root_width = true, .window_period = 6, .local_base = 10000,
     .wide_scores = 62},
    {"glm4", NEIGHBOURS, BOTH, .joined_gate = true},
    {"gpt2", LEARNED, GELU, .layer_norm = true},
    {"gptneox", HALVES, GELU, .layer_norm = true},
    {"granite", NEIGHBOURS, .divides_logits = true},
    {"internlm2", NEIGHBOURS},
    {"llama", NEIGHBOURS},
    {"minicpm", NEIGHBOURS, .divides_logits = true},
    {"nemotron", HALVES, RELU_SQUARED, .layer_norm = true},
    {"olmo2", HALVES, .order = LOAD_GGUF_POST},
    {"orion", HALVES, .layer_norm = true},
    {"phi2", HALVES, GELU, PARALLEL, .layer_norm = true},
    {"phi3", HALVES, .joined_gate = true, .window_period = 1},
    {"qwen2", HALVES},
    {"qwen3", HALVES},
    {"smollm3", NEIGHBOURS, .still_period = 4},
    {"stablelm", HALVES, .layer_norm = true},
    {"starcoder", LEARNED, GELU, .layer_norm = true},
    {"starcoder2", HALVES, GELU, .layer_norm = true},
    {"xverse", NEIGHBOURS},
};

static const load_gguf_architecture *find_architecture(const char *name)
{
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++)
        if (strcmp(architectures[i].name, name) == 0)
            return &architectures[i];
    return NULL;
}

static const load_gguf_pair *find(const load_gguf_file *f, const load_gguf_shape *m,
                                  const char *key)
{
    char name[256];
    snprintf(name, sizeof name, "%s.%s", m->is->name, key);
    return load_gguf_find(f, name);
}

double load_gguf_of(const load_gguf_file *f, const load_gguf_shape *m, const char *key,
                    double fallback)
{
    const load_gguf_pair *p = find(f, m, key);
    return p && p->kind == LOAD_GGUF_NUMBER ? p->number : fallback;
}

/* A count, or an array with one for each layer, which must be the same for all. */
static tacit_status read_count(const load_gguf_file *f, const load_gguf_shape *m, const char *key,
                               int64_t fallback, int64_t most, int64_t *out, tacit_error *err)
{
    const load_gguf_pair *p = find(f, m, key);
    double n = p && p->kind != LOAD_GGUF_STRING ? p->number : (double)fallback;
    for (uint64_t i = 1; load_gguf_numbers(p) && i < p->count; i++)
        if (load_gguf_number(p, i) != n)
            return error_set(err, TACIT_ERR_UNSUPPORTED,
                             "%s.%s differs between layers (%g and %g): no graph is made for that",
                             m->is->name, key, n, load_gguf_number(p, i));
    if (!(n >= 1) || n > (double)most || n != floor(n))
        return error_set(err, TACIT_ERR_FORMAT, "%s.%s is %g", m->is->name, key, n);
    *out = (int64_t)n;
    return TACIT_OK;
}

static tacit_status read_counts(const load_gguf_file *f, load_gguf_shape *m, tacit_error *err)
{
    TRY(read_count(f, m, "block_count", 0, MOST_LAYERS, &m->layers, err));
    TRY(read_count(f, m, "embedding_length", 0, MOST_WIDTH, &m->width, err));
    TRY(read_count(f, m, "attention.head_count", 0, m->width, &m->heads, err));
    TRY(read_count(f, m, "attention.head_count_kv", m->heads, m->heads, &m->kv_heads, err));
    TRY(read_count(f, m, "context_length", 2048, INT32_MAX, &m->context, err));
    TRY(read_count(f, m, "attention.key_length", m->width / m->heads, MOST_WIDTH, &m->depth, err));
    TRY(read_count(f, m, "attention.value_length", m->depth, MOST_WIDTH, &m->value_depth, err));
    TRY(read_count(f, m, "rope.dimension_count", m->depth, m->depth, &m->rotated, err));
    m->window = 0;
    if (m->is->window_period && (m->is->window || find(f, m, "attention.sliding_window")))
        TRY(read_count(f, m, "attention.sliding_window", m->is->window, INT32_MAX, &m->window,
                       err));
    m->context = m->context < MOST_POSITIONS ? m->context : MOST_POSITIONS;
    return TACIT_OK;
}

/* What scores, embeddings, what is added to x, and logits are multiplied by. */
static void read_factors(const load_gguf_file *f, load_gguf_shape *m)
{
    double divisor = m->is->wide_scores && m->is->wide_scores == m->layers
                         ? (double)m->width / (double)m->heads
                         : (double)m->depth;
    m->scores = load_gguf_of(f, m, "attention.scale", 0);
    m->scores = m->scores > 0 ? m->scores : 1 / sqrt(divisor);
    m->embedding =
        load_gguf_of(f, m, "embedding_scale", m->is->root_width ? sqrt((double)m->width) : 1);
    m->residual = load_gguf_of(f, m, "residual_scale", 1);
    m->logits = load_gguf_of(f, m, "logit_scale", 1);
    if (m->is->divides_logits && m->logits > 0)
        m->logits = 1 / m->logits;
}

static tacit_status check_shape(const load_gguf_file *f, const load_gguf_shape *m, tacit_error *err)
{
    if (m->heads % m->kv_heads || m->rotated % 2 || !(m->base > 0) || !(m->epsilon >= 0))
        return error_set(err, TACIT_ERR_FORMAT, "%lld heads, %lld of keys, %lld rotated",
                         (long long)m->heads, (long long)m->kv_heads, (long long)m->rotated);
    const double factors[] = {m->scores,  m->embedding,     m->residual,   m->logits,
                              m->softcap, m->final_softcap, m->is->softcap};
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++)
        if (!isfinite(factors[i]) || factors[i] < 0)
            return error_set(err, TACIT_ERR_FORMAT, "a scale or softcap is %g", factors[i]);
    if (m->context * (m->rotated / 2) > MOST_TABLE)
        return error_set(err, TACIT_ERR_LIMIT, "%lld positions of %lld angles",
                         (long long)m->context, (long long)m->rotated / 2);
    if (load_gguf_of(f, m, "expert_count", 0) > 0)
        return error_set(err, TACIT_ERR_UNSUPPORTED,
                         "%s with experts: graphs are made for dense models", m->is->name);
    return TACIT_OK;
}

tacit_status load_gguf_read_shape(const load_gguf_file *f, load_gguf_shape *m, tacit_error *err)
{
    const load_gguf_pair *name = load_gguf_find(f, "general.architecture");
    const char *arch = name && name->kind == LOAD_GGUF_STRING ? name->text : "";
    m->is = find_architecture(arch);
    if (!m->is) {
        char known[512];
        size_t at = 0;
        for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++)
            at += (size_t)snprintf(known + at, sizeof known - at, "%s%s", i ? ", " : "",
                                   architectures[i].name);
        return error_set(err, TACIT_ERR_UNSUPPORTED, "architecture '%s': graphs are made for %s",
                         arch, known);
    }
    TRY(read_counts(f, m, err));
    m->order = m->is->order;
    if (load_gguf_of(f, m, "use_parallel_residual", 0) != 0)
        m->order = LOAD_GGUF_PARALLEL;
    m->epsilon = load_gguf_of(f, m,
                              m->is->layer_norm ? "attention.layer_norm_epsilon"
                                                : "attention.layer_norm_rms_epsilon",
                              1e-5);
    m->base = load_gguf_of(f, m, "rope.freq_base", 10000);
    m->softcap = load_gguf_of(f, m, "attn_logit_softcapping", m->is->softcap);
    m->final_softcap = load_gguf_of(f, m, "final_logit_softcapping", m->is->final_softcap);
    read_factors(f, m);
    return check_shape(f, m, err);
}

/* --- rotary angles -----------------------------------------------------------------------------
 */

/* YaRN: fast pairs turn as they were trained, slow ones by so much less that the whole context is
 * as far as the trained one, those between partly; and all scores become a little steeper. */
typedef struct yarn {
    double low, high; /* pairs before `low` are fast, from `high` on slow */
} yarn;

static double turns_in(const load_gguf_shape *m, double context, double turns)
{
    double pi = 3.14159265358979323846;
    return (double)m->rotated * log(context / (turns * 2 * pi)) / (2 * log(m->base));
}

static yarn yarn_of(const load_gguf_file *f, const load_gguf_shape *m)
{
    double context = load_gguf_of(f, m, "rope.scaling.original_context_length",
                                  load_gguf_of(f, m, "context_length", 2048));
    double fast = load_gguf_of(f, m, "rope.scaling.yarn_beta_fast", 32);
    double slow = load_gguf_of(f, m, "rope.scaling.yarn_beta_slow", 1);
    return (yarn){fmax(0, floor(turns_in(m, context, fast))),
                  fmin((double)m->rotated - 1, ceil(turns_in(m, context, slow)))};
}

/* How much of its own speed a pair keeps. */
static double yarn_keeps(const yarn *y, int64_t pair)
{
    double x = ((double)pair - y->low) / fmax(0.001, y->high - y->low);
    return 1 - fmin(1, fmax(0, x));
}

tacit_status load_gguf_angles(const load_gguf_file *f, const load_gguf_shape *m, bool local,
                              const float *factors, double *speeds, double *magnitude,
                              tacit_error *err)
{
    const load_gguf_pair *p = find(f, m, "rope.scaling.type");
    const char *type = p && p->kind == LOAD_GGUF_STRING ? p->text : "none";
    bool own = local && m->is->local_base > 0; /* neither the file's base nor its scaling */
    bool stretched = strcmp(type, "yarn") == 0, even = strcmp(type, "linear") == 0;
    if (!stretched && !even && strcmp(type, "none") != 0 && strcmp(type, "longrope") != 0)
        return error_set(err, TACIT_ERR_UNSUPPORTED, "rope.scaling.type '%s'", type);
    double factor =
        load_gguf_of(f, m, "rope.scaling.factor", load_gguf_of(f, m, "rope.scale_linear", 1));
    double slower = !own && (stretched || even || !p) && factor > 0 ? 1 / factor : 1;
    double base = own ? load_gguf_of(f, m, "rope.freq_base_swa", m->is->local_base) : m->base;
    yarn y = yarn_of(f, m);
    *magnitude = own ? 1 : load_gguf_of(f, m, "rope.scaling.attn_factor", 1);
    if (stretched && !own && slower < 1)
        *magnitude *= 1 - 0.1 * log(slower);
    for (int64_t i = 0; i < m->rotated / 2; i++) {
        double speed = pow(base, -2.0 * (double)i / (double)m->rotated);
        if (factors && !own)
            speed /= (double)factors[i];
        double keeps = stretched ? yarn_keeps(&y, i) : 0;
        speeds[i] = speed * (slower + (1 - slower) * keeps);
        if (!isfinite(speeds[i]) || !isfinite(*magnitude))
            return error_set(err, TACIT_ERR_FORMAT, "rotary angles are not numbers");
    }
    return TACIT_OK;
}
