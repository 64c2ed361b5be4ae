/* SPDX-License-Identifier: Apache-2.0
 * Which kernels a row's lowering picks for its specimens. */
#include "op/lower.h"
#include "op/specimen.h"

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
        if (op_lower_alone(&c) && row->lower(&c) == TACIT_OK)
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
