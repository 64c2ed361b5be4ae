/* SPDX-License-Identifier: Apache-2.0
 * TfIdfVectorizer: counts of n-grams with skips, weighted. */
#include <string.h>

#include "op/elementwise.h"

typedef struct grams {
    const int64_t *ints; /* the pool: one of the two */
    const ir_string *strings;
    uint32_t pool;
    const int64_t *starts; /* where the 1-grams, 2-grams … begin in the pool */
    uint32_t n_starts;
    const int64_t *index; /* output coordinate of every n-gram */
    uint32_t n_index;
    int64_t shortest, longest, skips, outputs;
} grams;

static tacit_status read_grams(const ir_node *node, grams *g, tacit_error *err)
{
    uint32_t n_ints, n_strings;
    g->ints = ir_attr_ints(node, "pool_int64s", &n_ints);
    g->strings = ir_attr_strings(node, "pool_strings", &n_strings);
    g->pool = g->ints ? n_ints : n_strings;
    g->starts = ir_attr_ints(node, "ngram_counts", &g->n_starts);
    g->index = ir_attr_ints(node, "ngram_indexes", &g->n_index);
    g->shortest = ir_attr_int(node, "min_gram_length", 1);
    g->longest = ir_attr_int(node, "max_gram_length", 1);
    g->skips = ir_attr_int(node, "max_skip_count", 0);
    if ((!g->ints && !g->strings) || !g->starts || !g->index || g->n_index == 0)
        return error_set(err, TACIT_ERR_GRAPH, "a pool, ngram_counts and ngram_indexes are needed");
    if (g->shortest < 1 || g->longest < g->shortest || g->longest > g->n_starts || g->skips < 0)
        return error_set(err, TACIT_ERR_VALUE, "bad gram lengths or skip count");
    uint64_t total = 0;
    for (uint32_t i = 0; i < g->n_starts; i++) {
        int64_t end = i + 1 < g->n_starts ? g->starts[i + 1] : g->pool;
        if (g->starts[i] < 0 || end < g->starts[i] || end > g->pool ||
            (end - g->starts[i]) % (i + 1) != 0)
            return error_set(err, TACIT_ERR_VALUE, "ngram_counts do not fit the pool");
        total += (uint64_t)(end - g->starts[i]) / (i + 1);
    }
    if (total > g->n_index)
        return error_set(err, TACIT_ERR_VALUE, "ngram_indexes is shorter than the pool");
    g->outputs = 0;
    for (uint32_t i = 0; i < g->n_index; i++) {
        if (g->index[i] < 0 || g->index[i] > INT32_MAX)
            return error_set(err, TACIT_ERR_VALUE, "ngram_indexes[%u] is out of range", i);
        g->outputs = g->index[i] + 1 > g->outputs ? g->index[i] + 1 : g->outputs;
    }
    return TACIT_OK;
}

static tacit_status tfidf_infer(op_infer *c)
{
    TRY(op_check_class(c, 0, OP_INT | OP_STRING));
    const ir_shape *x = &c->in[0]->shape;
    grams g;
    TRY(read_grams(c->node, &g, c->err));
    if (x->rank < 1 || x->rank > 2)
        return error_set(c->err, TACIT_ERR_SHAPE, "the input must be [C] or [N, C]");
    if ((c->in[0]->dtype == TACIT_STRING) != (g.strings != NULL && !g.ints))
        return error_set(c->err, TACIT_ERR_TYPE, "the pool does not fit a %s input",
                         tacit_dtype_text(c->in[0]->dtype));
    ir_shape y = *x;
    y.dims[x->rank - 1] = g.outputs;
    c->out[0] = ir_type_tensor(TACIT_F32, y.rank, y.dims);
    return TACIT_OK;
}

static bool item_equal(const grams *g, const ir_tensor *x, int64_t at, int64_t pool)
{
    if (g->ints)
        return ir_load_i64(x->dtype, x->data, at) == g->ints[pool];
    const ir_string *a = (const ir_string *)x->data + at, *b = &g->strings[pool];
    return a->length == b->length && (!a->length || memcmp(a->data, b->data, a->length) == 0);
}

/* Counts the n-grams whose items lie `step` apart, in the row at `row` of `columns` items. */
static void count_grams(const grams *g, const ir_tensor *x, int64_t row, int64_t columns, int64_t n,
                        int64_t step, int64_t first_id, float *count)
{
    int64_t start = g->starts[n - 1];
    int64_t end = n < g->n_starts ? g->starts[n] : g->pool;
    for (int64_t i = 0; i + (n - 1) * step < columns; i++)
        for (int64_t p = start; p < end; p += n) {
            int64_t k = 0;
            while (k < n && item_equal(g, x, row + i + k * step, p + k))
                k++;
            if (k == n)
                count[first_id + (p - start) / n]++;
        }
}

static tacit_status tfidf_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0);
    ir_tensor *y = op_out(c, 0);
    const char *mode = ir_attr_string(c->node, "mode", "TF");
    bool idf = strcmp(mode, "IDF") == 0, weigh = idf || strcmp(mode, "TFIDF") == 0;
    if (!weigh && strcmp(mode, "TF") != 0)
        return error_set(c->err, TACIT_ERR_VALUE, "mode '%s' is not TF, IDF or TFIDF", mode);
    grams g;
    TRY(read_grams(c->node, &g, c->err));
    uint32_t n_weights;
    const double *weights = ir_attr_floats(c->node, "weights", &n_weights);
    float *count = op_eval_scratch(c, g.n_index * sizeof *count);
    if (!count)
        return error_memory(c->err, "TfIdfVectorizer");
    int64_t columns = x->shape.dims[x->shape.rank - 1];
    int64_t rows = x->shape.rank == 2 ? x->shape.dims[0] : 1;
    memset(y->data, 0, y->bytes);
    for (int64_t row = 0; row < rows; row++) {
        memset(count, 0, g.n_index * sizeof *count);
        int64_t id = 0;
        for (int64_t n = 1; n <= g.longest; n++) {
            /* A 1-gram has nothing to skip. */
            for (int64_t skip = 0; n >= g.shortest && skip <= (n > 1 ? g.skips : 0); skip++)
                if (n == 1 || skip < columns)
                    count_grams(&g, x, row * columns, columns, n, skip + 1, id, count);
            id += ((n < g.n_starts ? g.starts[n] : g.pool) - g.starts[n - 1]) / n;
        }
        for (int64_t k = 0; k < id; k++) {
            float v = idf && count[k] > 1 ? 1 : count[k];
            if (weigh && weights && k < n_weights)
                v *= (float)weights[k];
            ((float *)y->data)[row * g.outputs + g.index[k]] += v;
        }
    }
    return TACIT_OK;
}

const op_def op_rows_tfidf[] = {
    {.name = "TfIdfVectorizer",
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .flags = OP_NOT_DIFFERENTIABLE,
     .infer = tfidf_infer,
     .eval = tfidf_eval},
    {0},
};
