/* SPDX-License-Identifier: Apache-2.0
 *
 * The vector kernels, as the lower rules choose them, on shapes of real models: one thread, best of
 * many runs, beside oneDNN where it was found at build time (its sgemm and its convolution run in
 * the same process, interleaved). Images lie in blocks of channels, as networks keep them; so do
 * those of oneDNN. `peak` is the register tile of fused multiply-adds alone: kernels that multiply
 * less pass it.
 *
 * usage: bench_kernels [PREFIX]    appends to $TACIT_BENCH_JSONL when that is set
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/rng.h"
#include "lines.h"
#include "op/blocked.h"
#include "op/lower.h"

#if defined(TACIT_HAVE_ONEDNN)
#include <dnnl.h>
#endif

enum { INPUTS = 4 };

typedef struct bench_node {
    arena memory;
    tacit_error err;
    ir_graph *graph;
    ir_node *node;
    op_operand in[INPUTS], out[1];
    float *data[INPUTS], *y;
    char *scratch;
    op_lower lower;
    slab constants;
    size_t constant_bytes; /* of all its model, or 0 */
    bool plain_sums;
} bench_node;

static const char *prefix = "";
static double peak_gflops;

static void die(const char *what)
{
    fprintf(stderr, "bench_kernels: %s\n", what);
    exit(1);
}

static float *random_floats(int64_t count)
{
    rng r = rng_seed((uint64_t)count);
    float *x = aligned_alloc(64, ((size_t)count * sizeof *x + 4096) / 64 * 64);
    if (!x)
        die("out of memory");
    for (int64_t i = 0; i < count; i++)
        x[i] = (float)rng_range(&r, -1, 1);
    return x;
}

/* A node of f32 inputs; bit i of `constants`: input i is a weight. */
static void node_begin(bench_node *b, const char *domain, const char *type, uint32_t n,
                       const ir_shape *shapes, uint32_t constants)
{
    *b = (bench_node){0};
    arena_init(&b->memory, NULL);
    b->graph = ir_graph_new(&b->memory, "bench");
    ir_value *values[INPUTS] = {0};
    for (uint32_t i = 0; i < n; i++) {
        ir_type t = ir_type_tensor(TACIT_F32, shapes[i].rank, shapes[i].dims);
        b->data[i] = random_floats(ir_shape_size(&shapes[i]));
        b->in[i] = (op_operand){.type = t, .dense = true};
        ir_shape_strides(&shapes[i], b->in[i].strides);
        if (constants >> i & 1) {
            ir_tensor *w = ARENA_NEW(&b->memory, ir_tensor);
            *w = ir_tensor_view(TACIT_F32, &shapes[i], b->data[i]);
            b->in[i].constant = w;
            values[i] = ir_constant_new(b->graph, NULL, w);
        } else {
            values[i] = ir_input_new(b->graph, NULL, &t);
        }
        b->in[i].value = values[i];
    }
    b->node = ir_node_new(b->graph, type, domain, "node", n, values, 1, NULL);
    if (!b->node)
        die("out of memory");
    op_resolve(NULL, b->node);
}

static void node_lower(bench_node *b)
{
    if (op_infer_node(b->graph, b->node, &b->err) != TACIT_OK)
        die(b->err.message);
    b->out[0] = (op_operand){
        .type = b->node->outputs[0]->type, .dense = true, .value = b->node->outputs[0]};
    ir_shape_strides(&b->out[0].type.shape, b->out[0].strides);
    b->y = random_floats(ir_shape_size(&b->out[0].type.shape));
    slab_init(&b->constants, NULL, 0);
    b->lower = (op_lower){.graph = b->graph,
                          .node = b->node,
                          .in = b->in,
                          .out = b->out,
                          .cpu = cpu_detect(),
                          .memory = &b->memory,
                          .constants = &b->constants,
                          .constant_bytes = b->constant_bytes,
                          .plain_sums = b->plain_sums,
                          .err = &b->err};
    if (b->node->op->lower(&b->lower) != TACIT_OK)
        die("no kernel");
    b->scratch = (char *)random_floats((int64_t)b->lower.scratch / 4 + 16);
    for (uint32_t i = 0; i < b->lower.thunks.count; i++) {
        op_thunk *t = b->lower.thunks.data[i];
        for (uint32_t k = 0; k < t->binds.count; k++) {
            const op_bind *bind = &t->binds.data[k];
            char *p = bind->kind == OP_BIND_INPUT    ? (char *)b->data[bind->index]
                      : bind->kind == OP_BIND_OUTPUT ? (char *)b->y
                                                     : b->scratch;
            p += bind->byte_offset;
            memcpy((char *)t->args + bind->field, &p, sizeof p);
        }
    }
}

static void node_end(bench_node *b)
{
    for (uint32_t i = 0; i < INPUTS; i++)
        free(b->data[i]);
    free(b->y);
    free(b->scratch);
    slab_free(&b->constants);
    arena_free(&b->memory);
}

static double node_run(void *context)
{
    bench_node *b = context;
    uint64_t t = clock_ns();
    for (uint32_t i = 0; i < b->lower.thunks.count; i++) {
        const op_thunk *k = b->lower.thunks.data[i];
        k->fn(k->args, 0, k->tiles);
    }
    return (double)(clock_ns() - t);
}

/* Best of many, the two interleaved; ns on the wall: what a thread is said to have run is too
 * little now and then where the host takes time away. */
typedef double run_fn(void *context);
static void best_of(run_fn *ours, void *a, run_fn *peer, void *b, double *ours_ns, double *peer_ns)
{
    *ours_ns = *peer_ns = INFINITY;
    uint64_t start = clock_ns();
    for (int i = 0; i < 1000 && (i < 5 || clock_ns() - start < 1000000000); i++) {
        *ours_ns = fmin(*ours_ns, ours(a));
        if (peer)
            *peer_ns = fmin(*peer_ns, peer(b));
    }
}

static bool wanted(const char *name)
{
    return bench_wanted(name, prefix);
}

static void report(const char *name, double ours, double peer, const char *peer_name,
                   const char *unit, bool more_is_better)
{
    double ratio = more_is_better ? ours / peer : peer / ours;
    printf("%-34s %10.1f %-8s", name, ours, unit);
    if (isfinite(peer))
        printf(" %10.1f %-7s %6.2fx", peer, peer_name, ratio);
    if (more_is_better && peak_gflops > 0)
        printf("  %3.0f %% of peak", 100 * ours / peak_gflops);
    printf("\n");
    if (isfinite(peer))
        bench_line(name, ours, peer, peer_name, unit, ratio);
}

/* --- peers ------------------------------------------------------------------------------------ */

typedef struct sgemm_case {
    int64_t m, n, k;
    const float *a, *b;
    float *c;
} sgemm_case;

#if defined(TACIT_HAVE_ONEDNN)
static double sgemm_run(void *context)
{
    sgemm_case *s = context;
    uint64_t t = clock_ns();
    if (dnnl_sgemm('N', 'N', s->m, s->n, s->k, 1, s->a, s->k, s->b, s->n, 0, s->c, s->n) !=
        dnnl_success)
        die("dnnl_sgemm failed");
    return (double)(clock_ns() - t);
}

/* A convolution with the layouts oneDNN likes best; re-ordering is not counted. */
typedef struct conv_case {
    dnnl_primitive_t primitive;
    dnnl_stream_t stream;
    dnnl_exec_arg_t args[4];
    dnnl_memory_t memory[4];
    dnnl_engine_t engine;
} conv_case;

static double conv_run(void *context)
{
    conv_case *c = context;
    uint64_t t = clock_ns();
    if (dnnl_primitive_execute(c->primitive, c->stream, 4, c->args) != dnnl_success ||
        dnnl_stream_wait(c->stream) != dnnl_success)
        die("oneDNN convolution failed");
    return (double)(clock_ns() - t);
}

static bool conv_begin(conv_case *c, int64_t ic, int64_t oc, int64_t hw, int64_t kernel,
                       int64_t stride, int64_t group)
{
    int64_t pad = kernel / 2, out = (hw + 2 * pad - kernel) / stride + 1;
    dnnl_dims_t x = {1, ic, hw, hw}, y = {1, oc, out, out}, bias = {oc};
    dnnl_dims_t w = {oc, ic, kernel, kernel}, gw = {group, oc / group, ic / group, kernel, kernel};
    dnnl_dims_t strides = {stride, stride}, pads = {pad, pad};
    dnnl_memory_desc_t mx, mw, mb, my;
    dnnl_convolution_desc_t desc;
    dnnl_primitive_desc_t pd;
    dnnl_memory_desc_init_by_tag(&mx, 4, x, dnnl_f32, dnnl_format_tag_any);
    dnnl_memory_desc_init_by_tag(&mw, group > 1 ? 5 : 4, group > 1 ? gw : w, dnnl_f32,
                                 dnnl_format_tag_any);
    dnnl_memory_desc_init_by_tag(&mb, 1, bias, dnnl_f32, dnnl_a);
    dnnl_memory_desc_init_by_tag(&my, 4, y, dnnl_f32, dnnl_format_tag_any);
    if (dnnl_engine_create(&c->engine, dnnl_cpu, 0) != dnnl_success ||
        dnnl_stream_create(&c->stream, c->engine, dnnl_stream_default_flags) != dnnl_success ||
        dnnl_convolution_forward_desc_init(&desc, dnnl_forward_inference, dnnl_convolution_direct,
                                           &mx, &mw, &mb, &my, strides, pads,
                                           pads) != dnnl_success ||
        dnnl_primitive_desc_create(&pd, &desc, NULL, c->engine, NULL) != dnnl_success)
        return false;
    static const dnnl_query_t query[] = {dnnl_query_src_md, dnnl_query_weights_md,
                                         dnnl_query_weights_md, dnnl_query_dst_md};
    static const int what[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST};
    for (int i = 0; i < 4; i++) {
        const dnnl_memory_desc_t *md = dnnl_primitive_desc_query_md(pd, query[i], i == 2);
        if (dnnl_memory_create(&c->memory[i], md, c->engine, DNNL_MEMORY_ALLOCATE) != dnnl_success)
            return false;
        void *data;
        dnnl_memory_get_data_handle(c->memory[i], &data);
        memset(data, 0, dnnl_memory_desc_get_size(md));
        c->args[i] = (dnnl_exec_arg_t){what[i], c->memory[i]};
    }
    bool ok = dnnl_primitive_create(&c->primitive, pd) == dnnl_success;
    dnnl_primitive_desc_destroy(pd);
    return ok;
}

static void conv_end(conv_case *c)
{
    for (int i = 0; i < 4; i++)
        dnnl_memory_destroy(c->memory[i]);
    dnnl_primitive_destroy(c->primitive);
    dnnl_stream_destroy(c->stream);
    dnnl_engine_destroy(c->engine);
}
#endif

/* --- entries ---------------------------------------------------------------------------------- */

/* `model`: bytes of all weights of its model, in which pieces of A are little; 0: there are no
 * others. */
static void bench_gemm(int64_t m, int64_t n, int64_t k, const char *activation, size_t model)
{
    char name[80];
    snprintf(name, sizeof name, "gemm/%" PRId64 "x%" PRId64 "x%" PRId64 "%s%s%s/t1", m, n, k,
             activation ? "_" : "", activation ? activation : "", model ? "_large_model" : "");
    if (!wanted(name))
        return;
    const ir_shape shapes[] = {{2, {m, k}}, {2, {k, n}}, {1, {n}}};
    bench_node b;
    node_begin(&b, "tacit", "MatMul", 3, shapes, 6);
    if (activation)
        (void)ir_attr_set_string(b.graph, b.node, "activation", activation);
    b.constant_bytes = model;
    node_lower(&b);
    double ours, peer, flops = 2.0 * (double)(m * n * k);
#if defined(TACIT_HAVE_ONEDNN)
    sgemm_case s = {m, n, k, b.data[0], b.data[1], random_floats(m * n)};
    best_of(node_run, &b, sgemm_run, &s, &ours, &peer);
    free(s.c);
#else
    best_of(node_run, &b, NULL, NULL, &ours, &peer);
#endif
    report(name, flops / ours, flops / peer, "oneDNN", "GFLOP/s", true);
    node_end(&b);
}

static void bench_conv(const char *label, int64_t ic, int64_t oc, int64_t hw, int64_t kernel,
                       int64_t stride, int64_t group)
{
    char name[80];
    snprintf(name, sizeof name,
             "conv/%s_%" PRId64 "x%" PRId64 "_%" PRId64 "_k%" PRId64 "s%" PRId64 "/t1", label, ic,
             oc, hw, kernel, stride);
    if (!wanted(name))
        return;
    ir_shape shapes[] = {{5, {1, ic / OP_BLOCK, hw, hw, OP_BLOCK}},
                         {4, {oc, ic / group, kernel, kernel}},
                         {1, {oc}}};
    if (ic % OP_BLOCK) /* a photograph */
        shapes[0] = (ir_shape){4, {1, ic, hw, hw}};
    int64_t pad = kernel / 2, out = (hw + 2 * pad - kernel) / stride + 1;
    bench_node b;
    node_begin(&b, "tacit", "BlockedConv", 3, shapes, 6);
    bool ok = ir_attr_set_int(b.graph, b.node, "channels", ic) &&
              ir_attr_set_ints(b.graph, b.node, "strides", 2, (int64_t[]){stride, stride}) &&
              ir_attr_set_ints(b.graph, b.node, "pads", 4, (int64_t[]){pad, pad, pad, pad}) &&
              ir_attr_set_int(b.graph, b.node, "group", group) &&
              ir_attr_set_string(b.graph, b.node, "activation", "relu");
    if (!ok)
        die("out of memory");
    node_lower(&b);
    double ours, peer = INFINITY;
    double flops = 2.0 * (double)(oc * out * out) * (double)(ic / group * kernel * kernel);
#if defined(TACIT_HAVE_ONEDNN)
    conv_case c = {0};
    if (!conv_begin(&c, ic, oc, hw, kernel, stride, group))
        die("oneDNN has no such convolution");
    best_of(node_run, &b, conv_run, &c, &ours, &peer);
    conv_end(&c);
#else
    best_of(node_run, &b, NULL, NULL, &ours, &peer);
#endif
    report(name, flops / ours, flops / peer, "oneDNN", "GFLOP/s", true);
    node_end(&b);
}

static void bench_attention(int64_t batch, int64_t heads, int64_t queries, int64_t keys,
                            int64_t depth, bool causal)
{
    char name[80];
    snprintf(name, sizeof name,
             "kernel/attention_%" PRId64 "b%" PRId64 "h%" PRId64 "q%" PRId64 "k%s", batch, heads,
             queries, keys, causal ? "_causal" : "");
    if (!wanted(name))
        return;
    const ir_shape shapes[] = {{4, {batch, heads, queries, depth}},
                               {4, {batch, heads, keys, depth}},
                               {4, {batch, heads, keys, depth}}};
    bench_node b;
    node_begin(&b, "tacit", "Attention", 3, shapes, 0);
    (void)ir_attr_set_float(b.graph, b.node, "scale", 1 / sqrt((double)depth));
    (void)ir_attr_set_int(b.graph, b.node, "causal", causal);
    node_lower(&b);
    double ours, peer;
    best_of(node_run, &b, NULL, NULL, &ours, &peer);
    double flops = 4.0 * (double)(batch * heads * queries) * (double)(keys * depth);
    report(name, flops / ours / (causal ? 2 : 1), peer, "", "GFLOP/s", true);
    node_end(&b);
}

/* Row and element-wise kernels: bytes in and out per ns. */
static void bench_bytes(const char *label, const char *domain, const char *type, uint32_t n,
                        const ir_shape *shapes, uint32_t constants)
{
    char name[80];
    snprintf(name, sizeof name, "kernel/%s", label);
    if (!wanted(name))
        return;
    bench_node b;
    node_begin(&b, domain, type, n, shapes, constants);
    node_lower(&b);
    double ours, peer;
    best_of(node_run, &b, NULL, NULL, &ours, &peer);
    const op_thunk *t = b.lower.thunks.data[b.lower.thunks.count - 1];
    report(name, (double)t->bytes / ours, INFINITY, "", "GB/s", false);
    node_end(&b);
}

/* A product that lives in L1 but for its panel: as close to the register tile as a node gets. */
static double tile_gflops(bool plain_sums)
{
    const ir_shape shapes[] = {{2, {120, 384}}, {2, {384, 64}}};
    bench_node b;
    node_begin(&b, "tacit", "MatMul", 2, shapes, 2);
    b.plain_sums = plain_sums;
    node_lower(&b);
    double best = INFINITY;
    for (int i = 0; i < 500; i++)
        best = fmin(best, node_run(&b));
    node_end(&b);
    return 2.0 * 120 * 384 * 64 / best;
}

static void measure_peak(void)
{
    peak_gflops = tile_gflops(true);
    printf("%s, GFLOP/s of the register tile: %.1f by multiply-adds, %.1f as the rule chooses\n",
           cpu_isa_name(cpu_detect().isa), peak_gflops, tile_gflops(false));
}

int main(int argc, char **argv)
{
    enum { LARGE = 500 << 20 };
    if (argc > 1)
        prefix = argv[1];
    /* The peer reads this when it is loaded, so it must be there before we start. */
    if (!getenv("OMP_NUM_THREADS")) {
        setenv("OMP_NUM_THREADS", "1", 1);
        execv("/proc/self/exe", argv);
    }
    measure_peak();
    bench_gemm(1, 3072, 768, NULL, 0);
    bench_gemm(4, 768, 768, NULL, 0);
    bench_gemm(16, 768, 768, NULL, 0);
    bench_gemm(32, 512, 512, NULL, 0);
    bench_gemm(128, 384, 384, NULL, 0);
    bench_gemm(128, 768, 768, NULL, 0);
    bench_gemm(128, 2304, 768, NULL, 0);
    bench_gemm(128, 3072, 768, NULL, 0);
    bench_gemm(128, 3072, 768, "gelu", 0);
    bench_gemm(128, 768, 3072, NULL, 0);
    bench_gemm(512, 768, 768, NULL, 0);
    bench_gemm(1024, 1024, 1024, NULL, 0);
    bench_gemm(512, 2304, 768, NULL, LARGE);
    bench_gemm(512, 3072, 768, NULL, LARGE);
    bench_gemm(512, 768, 3072, NULL, LARGE);
    bench_conv("stem", 3, 64, 224, 7, 2, 1);
    bench_conv("resnet", 64, 64, 56, 3, 1, 1);
    bench_conv("resnet", 64, 256, 56, 1, 1, 1);
    bench_conv("resnet", 256, 64, 56, 1, 1, 1);
    bench_conv("resnet", 128, 128, 28, 3, 1, 1);
    bench_conv("resnet", 128, 128, 56, 3, 2, 1);
    bench_conv("resnet", 256, 512, 56, 1, 2, 1);
    bench_conv("resnet", 256, 256, 14, 3, 1, 1);
    bench_conv("resnet", 1024, 256, 14, 1, 1, 1);
    bench_conv("resnet", 256, 1024, 14, 1, 1, 1);
    bench_conv("resnet", 512, 512, 7, 3, 1, 1);
    bench_conv("resnet", 512, 2048, 7, 1, 1, 1);
    bench_conv("resnet", 2048, 512, 7, 1, 1, 1);
    bench_conv("mobile", 16, 96, 112, 1, 1, 1);
    bench_conv("mobile", 96, 24, 56, 1, 1, 1);
    bench_conv("depthwise", 96, 96, 112, 3, 2, 96);
    bench_conv("depthwise", 144, 144, 56, 3, 1, 144);
    bench_conv("depthwise", 384, 384, 14, 3, 1, 384);
    bench_conv("depthwise", 960, 960, 7, 3, 1, 960);
    bench_attention(1, 4, 64, 64, 64, false);
    bench_attention(1, 12, 128, 128, 64, false);
    bench_attention(1, 12, 128, 128, 64, true);
    bench_attention(1, 12, 1024, 1024, 64, true);
    bench_attention(2, 8, 256, 256, 64, false);
    bench_attention(1, 12, 1, 1024, 64, false);
    bench_bytes("softmax_1536x128", "", "Softmax", 1, (ir_shape[]){{2, {1536, 128}}}, 0);
    bench_bytes("norm_128x768", "tacit", "Norm", 3,
                (ir_shape[]){{2, {128, 768}}, {1, {768}}, {1, {768}}}, 6);
    bench_bytes("gelu_128x3072", "", "Gelu", 1, (ir_shape[]){{2, {128, 3072}}}, 0);
    bench_bytes("add_128x768", "", "Add", 2, (ir_shape[]){{2, {128, 768}}, {2, {128, 768}}}, 0);
    bench_bytes("bias_128x768", "", "Add", 2, (ir_shape[]){{2, {128, 768}}, {1, {768}}}, 2);
    bench_bytes("transpose_768x768", "", "Transpose", 1, (ir_shape[]){{2, {768, 768}}}, 0);
    bench_bytes("mean_2048x49", "", "GlobalAveragePool", 1, (ir_shape[]){{4, {1, 2048, 7, 7}}}, 0);
    /* Reading and little else: from L2, L3 and memory on the reference machine. */
    bench_bytes("largest_of_512KB", "", "ReduceMax", 1, (ir_shape[]){{2, {16, 8192}}}, 0);
    bench_bytes("largest_of_3MB", "", "ReduceMax", 1, (ir_shape[]){{2, {96, 8192}}}, 0);
    bench_bytes("largest_of_256MB", "", "ReduceMax", 1, (ir_shape[]){{2, {8192, 8192}}}, 0);
    return 0;
}
