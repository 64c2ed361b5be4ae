/* SPDX-License-Identifier: Apache-2.0
 * Real architectures (narrow, so that the reference is quick): what must fuse does fuse, near
 * misses are explained, and compiling stays fast. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "load/load.h"
#include "support/pass_check.h"

typedef struct example {
    arena memory;
    file_map map;
    load_files files;
    ir_graph *graph;
    char path[256];
} example;

static void open_example(example *x, const char *arguments)
{
    char command[1024];
    tacit_error err = {0};
    *x = (example){0};
    arena_init(&x->memory, NULL);
    snprintf(x->path, sizeof x->path, "%s/pass_example_%d.onnx", TACIT_BINARY_DIR, (int)getpid());
    snprintf(command, sizeof command, "%s/tacit example %s --out %s >/dev/null", TACIT_BINARY_DIR,
             arguments, x->path);
    assert_int_equal(system(command), 0);
    assert_int_equal(file_map_open(&x->map, x->path, &err), TACIT_OK);
    load_options o = {.name = x->path, .map = &x->map};
    if (load_onnx(x->map.data, x->map.size, &o, &x->memory, &x->files, &x->graph, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    pass_check_prepare(x->graph);
}

static void close_example(example *x)
{
    load_files_close(&x->files);
    file_map_close(&x->map);
    unlink(x->path);
    arena_free(&x->memory);
}

static void print_types(const ir_graph *g)
{
    if (!getenv("TACIT_VERBOSE"))
        return;
    for (uint32_t i = 0; i < g->nodes.count; i++)
        print_message("%s%s%s %s\n", g->nodes.data[i]->domain, *g->nodes.data[i]->domain ? "." : "",
                      g->nodes.data[i]->type, g->nodes.data[i]->name);
}

static ir_graph *optimised(const example *x)
{
    ir_graph *g = pass_check_run(x->graph, NULL, NULL, 1e-3, NULL);
    print_types(g);
    return g;
}

static uint32_t activations(const ir_graph *g, const char *name)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < g->nodes.count; i++)
        count += strcmp(ir_attr_string(g->nodes.data[i], "activation", ""), name) == 0;
    return count;
}

static uint32_t residuals(const ir_graph *g, const char *type)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < g->nodes.count; i++)
        count += strcmp(g->nodes.data[i]->type, type) == 0 && g->nodes.data[i]->n_inputs == 4;
    return count;
}

static void gpt2_fuses(void **state)
{
    (void)state;
    example x;
    open_example(&x, "gpt2 --layers 3 --hidden 16 --heads 2 --vocab 50 --seq 8");
    ir_graph *g = optimised(&x);
    assert_int_equal(pass_check_count(g, "tacit.Attention"), 3);
    assert_int_equal(pass_check_count(g, "Softmax"), 0);
    assert_int_equal(pass_check_count(g, "Where"), 0);
    /* c_attn, c_proj, c_fc, mlp.c_proj; the head stays a plain product */
    assert_int_equal(pass_check_count(g, "tacit.MatMul"), 12);
    assert_int_equal(pass_check_count(g, "MatMul"), 1);
    assert_int_equal(pass_check_count(g, "Gelu"), 0);
    assert_int_equal(pass_check_count(g, "Tanh"), 0);
    assert_int_equal(pass_check_count(g, "Add"), 1); /* token + position */
    const ir_node *attention = pass_check_find(g, "tacit.Attention");
    assert_int_equal(ir_attr_int(attention, "causal", 0), 1);
    assert_int_equal(attention->n_inputs, 3);
    assert_string_equal(ir_attr_string(attention, "out_layout", ""), "bshd");
    assert_int_equal(activations(g, "gelu_tanh"), 3);
    assert_int_equal(residuals(g, "MatMul"), 6);
    close_example(&x);
}

static void bert_fuses(void **state)
{
    (void)state;
    example x;
    open_example(&x, "bert --layers 2 --hidden 16 --heads 2 --vocab 50 --seq 8");
    ir_graph *g = optimised(&x);
    assert_int_equal(pass_check_count(g, "tacit.Attention"), 2);
    assert_int_equal(pass_check_count(g, "Erf"), 0);
    /* qkv in one, dense, intermediate, output; and the pooler */
    assert_int_equal(pass_check_count(g, "tacit.MatMul"), 9);
    assert_int_equal(pass_check_count(g, "tacit.Norm") + pass_check_count(g, "LayerNormalization"),
                     5);
    assert_int_equal(pass_check_count(g, "Split"), 2);
    assert_int_equal(activations(g, "gelu"), 2);
    assert_int_equal(residuals(g, "MatMul"), 4);
    assert_int_equal(pass_check_find(g, "tacit.Attention")->n_inputs, 4);
    close_example(&x);
}

static void llama_fuses(void **state)
{
    (void)state;
    example x;
    open_example(&x, "llama --layers 2 --hidden 32 --heads 4 --kv-heads 2 --ffn 48 --vocab 50 "
                     "--seq 8");
    ir_graph *g = optimised(&x);
    assert_int_equal(pass_check_count(g, "tacit.Attention"), 2);
    assert_int_equal(ir_attr_int(pass_check_find(g, "tacit.Attention"), "causal", 0), 1);
    assert_int_equal(pass_check_count(g, "RotaryEmbedding"), 4);
    assert_int_equal(pass_check_count(g, "RMSNormalization"), 5);
    assert_int_equal(pass_check_count(g, "tacit.Gated"), 2);
    assert_int_equal(pass_check_count(g, "Expand"), 0);
    close_example(&x);
}

static void cnns_fuse(void **state)
{
    (void)state;
    example x;
    open_example(&x, "resnet50 --image 32 --classes 10");
    tacit_error err = {0};
    pass_report report;
    /* The reference takes long on these weights; the values are checked on small cases. */
    ir_graph *g = x.graph;
    assert_int_equal(pass_pipeline(g, NULL, &x.memory, &report, &err), TACIT_OK);
    print_types(g);
    assert_int_equal(pass_check_count(g, "BatchNormalization"), 0);
    assert_int_equal(pass_check_count(g, "Relu"), 0);
    assert_int_equal(pass_check_count(g, "Add"), 0);
    assert_int_equal(pass_check_count(g, "tacit.BlockedConv"), 53);
    assert_int_equal(pass_check_count(g, "tacit.Block") + pass_check_count(g, "tacit.Unblock"), 0);
    assert_int_equal(residuals(g, "BlockedConv"), 16);
    assert_int_equal(activations(g, "relu"), 49);
    close_example(&x);
    open_example(&x, "mobilenetv2 --image 32 --classes 10");
    g = x.graph;
    assert_int_equal(pass_pipeline(g, NULL, &x.memory, &report, &err), TACIT_OK);
    print_types(g);
    assert_int_equal(pass_check_count(g, "BatchNormalization"), 0);
    assert_int_equal(pass_check_count(g, "Clip"), 0);
    assert_int_equal(pass_check_count(g, "Add"), 0);
    assert_int_equal(pass_check_count(g, "tacit.BlockedConv"), 52);
    assert_int_equal(pass_check_count(g, "tacit.Block") + pass_check_count(g, "tacit.Unblock"), 0);
    close_example(&x);
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void passes_are_quick(void **state)
{
    (void)state;
    example x;
    open_example(&x, "gpt2 --layers 48 --hidden 8 --heads 2 --ffn 8 --vocab 10 --seq 8");
    uint32_t before = x.graph->nodes.count;
    assert_true(before > 1500);
    tacit_error err = {0};
    pass_report report;
    double start = seconds();
    assert_int_equal(pass_pipeline(x.graph, NULL, &x.memory, &report, &err), TACIT_OK);
    double took = seconds() - start;
    print_message("%u nodes in %.1f ms, %u rounds\n", before, 1e3 * took, report.rounds);
    assert_int_equal(pass_check_count(x.graph, "tacit.Attention"), 48);
    assert_true(took < 1.0); /* far above what it takes, for slow and sanitised builds */
    close_example(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt2_fuses),       cmocka_unit_test(bert_fuses),
        cmocka_unit_test(llama_fuses),      cmocka_unit_test(cnns_fuse),
        cmocka_unit_test(passes_are_quick),
    };
    return cmocka_run_group_tests_name("passes on real architectures", tests, NULL, NULL);
}
