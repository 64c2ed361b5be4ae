/* SPDX-License-Identifier: Apache-2.0
 * Spelling nodes out while loading. */
#include "load/spelling.h"

#include <string.h>

ir_value *spelling_in(const spelling *s, uint32_t i)
{
    return rewrite_input(&s->u, i);
}

ir_value *spelling_put(spelling *s, const char *type, uint32_t n, ir_value *const *inputs)
{
    while (n && !inputs[n - 1])
        n--;
    ir_value *v = s->failed ? NULL : rewrite_add(&s->u, type, n, inputs);
    s->failed |= !v;
    return v;
}

ir_value *spelling_put2(spelling *s, const char *type, ir_value *a, ir_value *b)
{
    return spelling_put(s, type, 2, (ir_value *[]){a, b});
}

void spelling_set_int(spelling *s, const ir_value *v, const char *name, int64_t value)
{
    s->failed |= s->failed || !ir_attr_set_int(s->u.g, v->producer, name, value);
}

void spelling_set_float(spelling *s, const ir_value *v, const char *name, double value)
{
    s->failed |= s->failed || !ir_attr_set_float(s->u.g, v->producer, name, value);
}

void spelling_set_ints(spelling *s, const ir_value *v, const char *name, uint32_t count,
                       const int64_t *values)
{
    s->failed |= s->failed || !ir_attr_set_ints(s->u.g, v->producer, name, count, values);
}

void spelling_set_like(spelling *s, const ir_value *v, uint32_t n, const char *const *names)
{
    for (uint32_t i = 0; i < n && !s->failed; i++) {
        const ir_attr *a = ir_attr_find(s->u.node, names[i]);
        s->failed |= a && !ir_attr_set(s->u.g, v->producer, a);
    }
}

tacit_status spelling_become(spelling *s, const char *domain, const char *type, uint32_t n,
                             ir_value *const *inputs)
{
    ir_node *node = s->u.node;
    while (n && !inputs[n - 1])
        n--;
    ir_value **list = ARENA_ARRAY(s->u.g->memory, n + 1, ir_value *);
    if (s->failed || !list)
        return rewrite_no_memory(&s->u);
    memcpy(list, inputs, n * sizeof *inputs);
    node->inputs = list;
    node->n_inputs = node->n_explicit = n;
    node->n_attrs = 0;
    node->domain = domain;
    return rewrite_type(&s->u, type);
}

tacit_status spelling_become_other(spelling *s, const char *domain, const char *type, uint32_t n,
                                   ir_value *const *inputs)
{
    ir_node *node = s->u.node;
    const ir_attr *attrs = node->attrs;
    uint32_t n_attrs = node->n_attrs;
    TRY(spelling_become(s, domain, type, n, inputs));
    node->attrs = attrs;
    node->n_attrs = n_attrs;
    return TACIT_OK;
}

tacit_status spelling_become_value(spelling *s, ir_value *v)
{
    return spelling_become(s, "", "Identity", 1, &v);
}

ir_value *spelling_scalar(spelling *s, const char *name, double value, ir_value *like)
{
    ir_value *v = s->failed ? NULL : rewrite_scalar(&s->u, name, value, like);
    s->failed |= !v;
    return v;
}

ir_value *spelling_floats(spelling *s, const char *name, double value)
{
    ir_value f32 = {.type.dtype = TACIT_F32};
    return spelling_scalar(s, name, value, &f32);
}

ir_value *spelling_ints(spelling *s, const char *name, uint32_t count, const int64_t *values)
{
    ir_value *v = s->failed ? NULL : rewrite_ints(&s->u, name, count, values);
    s->failed |= !v;
    return v;
}

ir_value *spelling_constant(spelling *s, const char *name, const ir_tensor *data)
{
    const char *stem = arena_printf(s->u.g->memory, "%s_%s", s->u.node->name, name);
    ir_value *v = s->failed || !stem || !data ? NULL : ir_constant_new(s->u.g, stem, data);
    s->failed |= !v;
    return v;
}
