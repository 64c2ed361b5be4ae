/* SPDX-License-Identifier: Apache-2.0
 * The op table: the list of families. */
#include <pthread.h>
#include <string.h>

#include "base/map.h"
#include "op/op.h"

/* One line per family file. */
#define OP_FAMILIES(F)                                                                             \
    F(arith)                                                                                       \
    F(attention)                                                                                   \
    F(axis)                                                                                        \
    F(blocked)                                                                                     \
    F(cache_grow)                                                                                  \
    F(cached_attention)                                                                            \
    F(cast)                                                                                        \
    F(compare)                                                                                     \
    F(complex)                                                                                     \
    F(contraction)                                                                                 \
    F(contrib)                                                                                     \
    F(contrib_attention)                                                                           \
    F(contrib_gqa)                                                                                 \
    F(contrib_matmul)                                                                              \
    F(control)                                                                                     \
    F(conv)                                                                                        \
    F(conv_other)                                                                                  \
    F(einsum)                                                                                      \
    F(function)                                                                                    \
    F(fused)                                                                                       \
    F(fused_attention)                                                                             \
    F(fused_elementwise)                                                                           \
    F(gather)                                                                                      \
    F(generate)                                                                                    \
    F(image_decoder)                                                                               \
    F(int_conv)                                                                                    \
    F(int_images)                                                                                  \
    F(int_matmul)                                                                                  \
    F(int8)                                                                                        \
    F(linalg)                                                                                      \
    F(loss)                                                                                        \
    F(math)                                                                                        \
    F(ml)                                                                                          \
    F(ml_linear)                                                                                   \
    F(ml_map)                                                                                      \
    F(ml_features)                                                                                 \
    F(ml_svm)                                                                                      \
    F(move)                                                                                        \
    F(nms)                                                                                         \
    F(nonlinear)                                                                                   \
    F(norm)                                                                                        \
    F(norm_other)                                                                                  \
    F(optimizer)                                                                                   \
    F(pad)                                                                                         \
    F(checkpoint)                                                                                  \
    F(pool)                                                                                        \
    F(pool_grad)                                                                                   \
    F(quant)                                                                                       \
    F(random)                                                                                      \
    F(recurrence)                                                                                  \
    F(reduce)                                                                                      \
    F(resize)                                                                                      \
    F(rnn)                                                                                         \
    F(rotary)                                                                                      \
    F(sample)                                                                                      \
    F(sampling)                                                                                    \
    F(scatter)                                                                                     \
    F(select)                                                                                      \
    F(sequence)                                                                                    \
    F(signal)                                                                                      \
    F(slice)                                                                                       \
    F(spectrum)                                                                                    \
    F(splat)                                                                                       \
    F(splat_grad)                                                                                  \
    F(string)                                                                                      \
    F(tfidf)                                                                                       \
    F(trees)                                                                                       \
    F(vision)                                                                                      \
    F(weights)

#define DECLARE(name) extern const op_def op_rows_##name[];
OP_FAMILIES(DECLARE)
#undef DECLARE

static const op_def *const families[] = {
#define LIST(name) op_rows_##name,
    OP_FAMILIES(LIST)
#undef LIST
};

const op_def *op_at(uint32_t index)
{
    for (size_t f = 0; f < sizeof families / sizeof *families; f++)
        for (const op_def *row = families[f]; row->name; row++)
            if (index-- == 0)
                return row;
    return NULL;
}

static bool matches(const op_def *row, const char *domain, const char *name)
{
    return strcmp(row->name, name) == 0 && strcmp(row->domain ? row->domain : "", domain) == 0;
}

/* The built-in rows by name: all are entered when the first is looked for. */
enum { SLOTS = 2 * OP_MOST };
static const op_def *slots[SLOTS];

/* The slot of a name, or the empty one where it belongs. */
static const op_def **find_slot(const char *domain, const char *name)
{
    uint64_t i = hash_bytes(name, strlen(name), 0);
    while (slots[i % SLOTS] && !matches(slots[i % SLOTS], domain, name))
        i++;
    return &slots[i % SLOTS];
}

static void enter_rows(void)
{
    for (size_t f = 0; f < sizeof families / sizeof *families; f++)
        for (const op_def *row = families[f]; row->name; row++)
            __builtin_prefetch(row->name); /* none has been read yet */
    for (size_t f = 0; f < sizeof families / sizeof *families; f++)
        for (const op_def *row = families[f]; row->name; row++) {
            const op_def **slot = find_slot(row->domain ? row->domain : "", row->name);
            *slot = *slot ? *slot : row; /* of several with one name the first counts */
        }
}

const op_def *op_find(const op_registry *registry, const char *domain, const char *name)
{
    static pthread_once_t entered = PTHREAD_ONCE_INIT;
    for (uint32_t i = 0; registry && i < registry->count; i++)
        if (matches(registry->rows[i], domain, name))
            return registry->rows[i];
    (void)pthread_once(&entered, enter_rows);
    return *find_slot(domain, name);
}

void op_resolve(const op_registry *registry, ir_node *node)
{
    node->op = op_find(registry, node->domain, node->type);
}

/* What to do about an operator of a domain that no row can know, or nothing. */
static const char *advice(const ir_node *node)
{
    if (strcmp(node->domain, "com.microsoft.nchwc") == 0)
        return "; ONNX Runtime has laid this file out for one machine: save it with "
               "ORT_ENABLE_EXTENDED instead of ORT_ENABLE_ALL";
    return "";
}

tacit_status op_no_rule(const ir_node *node, const char *rule, tacit_error *err)
{
    const char *dot = *node->domain ? "." : "";
    if (!node->op)
        return error_set(err, TACIT_ERR_UNSUPPORTED, "node '%s': op %s%s%s is not known%s",
                         node->name, node->domain, dot, node->type, advice(node));
    return error_set(err, TACIT_ERR_UNSUPPORTED, "node '%s': %s%s%s has no %s rule", node->name,
                     node->domain, dot, node->type, rule);
}

tacit_status op_context(const ir_node *node, tacit_status status, tacit_error *err)
{
    return error_context(err, status, "node '%s' (%s)", node->name, node->type);
}

ir_node *op_node(ir_graph *g, const char *type, const char *name, uint32_t n_inputs,
                 ir_value *const *inputs)
{
    ir_node *n = ir_node_new(g, type, "", name, n_inputs, inputs, 1, NULL);
    if (n)
        op_resolve(NULL, n);
    return n;
}
