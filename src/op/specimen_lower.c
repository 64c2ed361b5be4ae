/* SPDX-License-Identifier: Apache-2.0
 * Which kernels a row's lowering picks for its specimens. */
#include "op/lower.h"
#include "op/specimen.h"

static bool make_operands(arena *a, op_lower *c)
{
    ir_node *n = c->node;
    op_operand *in = ARENA_ARRAY(a, n->n_inputs + 1u, op_operand);
    op_operand *out = ARENA_ARRAY(a, n->n_outputs + 1u, op_operand);
    for (uint32_t i = 0; in && out && i < n->n_inputs + n->n_outputs; i++) {
        const ir_value *v = i < n->n_inputs ? n->inputs[i] : n->outputs[i - n->n_inputs];
        op_operand *o = i < n->n_inputs ? &in[i] : &out[i - n->n_inputs];
        if (!v)
            continue;
        if (!ir_type_is_static(&v->type) || v->type.kind != IR_TENSOR)
            return false;
        *o = (op_operand){.type = v->type, .dense = true, .value = v};
        o->constant = v->is_initializer ? v->constant : NULL;
        ir_shape_strides(&v->type.shape, o->strides);
    }
    c->in = in;
    c->out = out;
    return in && out;
}

static void lower_one(const op_def *row, tacit_dtype type, uint64_t seed, const cpu_features *cpu,
                      op_specimen_kernel *visit, void *context)
{
    arena a;
    arena_init(&a, NULL);
    op_specimen s;
    if (op_specimen_make(&a, row, type, seed, NULL, NULL, &s) &&
        op_infer_graph(s.graph, NULL) == TACIT_OK) {
        slab constants;
        slab_init(&constants, NULL, 0);
        op_lower c = {
            .graph = s.graph, .node = s.node, .cpu = *cpu, .memory = &a, .constants = &constants};
        if (make_operands(&a, &c) && row->lower(&c) == TACIT_OK)
            for (uint32_t i = 0; i < c.thunks.count; i++)
                visit(context, c.thunks.data[i]->kernel);
        slab_free(&constants);
    }
    arena_free(&a);
}

void op_specimen_kernels(const op_def *row, tacit_dtype type, op_specimen_kernel *visit,
                         void *context)
{
    static const cpu_features levels[] = {
        {.isa = CPU_PORTABLE},
        {.isa = CPU_AVX2},
        {.isa = CPU_AVX512,
         .avx512_vnni = true,
         .avx512_bf16 = true,
         .avx512_vbmi = true,
         .avx512_vbmi2 = true},
    };
    for (uint32_t level = 0; row->lower && level < 3; level++)
        for (uint64_t seed = 0; seed < 16; seed++)
            lower_one(row, type, seed, &levels[level], visit, context);
}
