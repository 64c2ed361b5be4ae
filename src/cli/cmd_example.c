/* SPDX-License-Identifier: Apache-2.0
 * tacit example: well-known architectures with seeded weights, as ONNX. */
#include <stdio.h>
#include <string.h>

#include "cli/example.h"

static const struct {
    const char *name;
    void (*build)(example *e);
    example_sizes size; /* presets where the name means more than the builder's defaults */
    const char *about;
} architectures[] = {
    {"mlp", example_mlp, {0}, "three linear layers with ReLU (--width)"},
    {"block", example_block, {0}, "one pre-norm transformer block (--hidden --heads --seq)"},
    {"attention", example_attention, {0}, "attention alone (--batch --heads --seq --hidden)"},
    {"attention-causal", example_attention_causal, {0}, "the same with a triangular mask"},
    {"gpt2", example_gpt2, {0}, "GPT-2, 124M parameters, 12 layers"},
    {"bert", example_bert, {0}, "BERT-base, 110M parameters, 12 layers"},
    {"bert-tiny",
     example_bert,
     {.layers = 2, .hidden = 128, .heads = 2, .ffn = 512, .classes = 2},
     "BERT with 2 layers of width 128 and a two-class head"},
    {"minilm",
     example_bert,
     {.layers = 6, .hidden = 384, .heads = 12, .ffn = 1536},
     "MiniLM-L6-H384, 22M parameters"},
    {"resnet50", example_resnet50, {0}, "ResNet-50, 25M parameters, 224x224"},
    {"mobilenetv2", example_mobilenetv2, {0}, "MobileNetV2, 3.5M parameters, 224x224"},
    {"squeezenet", example_squeezenet, {0}, "SqueezeNet 1.1, 1.2M parameters, 224x224"},
    {"densenet121", example_densenet121, {0}, "DenseNet-121, 8M parameters, 224x224"},
    {"llama", example_llama, {0}, "Llama with 135M parameters: 30 layers, GQA, RoPE, SwiGLU"},
};

static void override(int64_t *size, int64_t preset)
{
    if (*size <= 0)
        *size = preset;
}

static void apply_preset(example_sizes *s, const example_sizes *preset)
{
    override(&s->layers, preset->layers);
    override(&s->hidden, preset->hidden);
    override(&s->heads, preset->heads);
    override(&s->ffn, preset->ffn);
    override(&s->classes, preset->classes);
}

/* Sizes that cannot make a model, in words; NULL when fine. */
static const char *complaint(const example_sizes *s)
{
    const int64_t all[] = {s->batch, s->seq,   s->layers, s->hidden,  s->heads, s->kv_heads,
                           s->ffn,   s->vocab, s->width,  s->classes, s->image};
    for (uint32_t i = 0; i < CLI_COUNT(all); i++)
        if (all[i] < 0 || all[i] > 1 << 20)
            return "sizes must be between 1 and 1048576";
    if (s->hidden && s->heads && s->hidden % s->heads)
        return "--hidden must be a multiple of --heads";
    if (s->heads && s->kv_heads && s->heads % s->kv_heads)
        return "--heads must be a multiple of --kv-heads";
    if (s->seq > 1024)
        return "--seq is at most 1024";
    return NULL;
}

static int write_model(example *e, const char *out)
{
    tacit_error err = {TACIT_OK, ""};
    tacit_model *model = NULL;
    if (e->out_of_memory)
        return cli_fail("example", "out of memory for the weights");
    tacit_status status = tacit_builder_finish(e->b, &model, &err);
    if (status == TACIT_OK)
        status = tacit_model_save(model, out, &err);
    tacit_model_free(model);
    return status == TACIT_OK ? CLI_OK : cli_fail("example", "%s", err.message);
}

static int make(uint32_t which, example *e, int64_t seed, const char *out)
{
    tacit_error err = {TACIT_OK, ""};
    if (tacit_builder_create(architectures[which].name, NULL, &e->b, &err) != TACIT_OK)
        return cli_fail("example", "%s", err.message);
    e->random = rng_seed((uint64_t)seed);
    architectures[which].build(e);
    int code = write_model(e, out);
    tacit_builder_free(e->b);
    example_free(e);
    return code;
}

int cmd_example(int argc, char **argv)
{
    example e = {0};
    const char *out = NULL, *name = NULL;
    int64_t seed = 1;
    example_sizes *s = &e.size;
    const cli_option options[] = {
        {"--out", CLI_STRING, &out, "FILE", "where to write (.onnx or .tacit); required"},
        {"--seed", CLI_INT, &seed, "N", "seed of the weights (default 1)"},
        {"--batch", CLI_INT, &s->batch, "N", "batch size (default 1)"},
        {"--seq", CLI_INT, &s->seq, "N", "sequence length (default 128)"},
        {"--dynamic", CLI_FLAG, &s->dynamic, NULL, "leave batch and sequence symbolic"},
        {"--decode", CLI_FLAG, &s->decode, NULL,
         "gpt2 with past keys and values as inputs, grown ones as outputs"},
        {"--layers", CLI_INT, &s->layers, "N", "number of layers"},
        {"--hidden", CLI_INT, &s->hidden, "N", "width of the residual stream"},
        {"--heads", CLI_INT, &s->heads, "N", "attention heads"},
        {"--kv-heads", CLI_INT, &s->kv_heads, "N", "key/value heads (llama)"},
        {"--ffn", CLI_INT, &s->ffn, "N", "width of the feed-forward layer"},
        {"--vocab", CLI_INT, &s->vocab, "N", "vocabulary size"},
        {"--width", CLI_INT, &s->width, "N", "width of the mlp (default 512)"},
        {"--classes", CLI_INT, &s->classes, "N", "outputs of the classifier"},
        {"--image", CLI_INT, &s->image, "N", "image side (default 224)"},
    };
    const cli_usage usage = {
        "example",
        "NAME --out FILE [options]",
        "Writes an architecture at its real size with seeded weights.\n"
        "NAME: mlp, block, attention, attention-causal, gpt2, bert, bert-tiny, minilm, resnet50,\n"
        "mobilenetv2, squeezenet, densenet121, llama.",
        options,
        CLI_COUNT(options),
        1,
        1};
    int code = cli_parse(&usage, argc, argv, &name, NULL);
    if (code >= 0)
        return code;
    if (!out)
        return cli_usage_error("example", "--out FILE is required");
    for (uint32_t i = 0; i < CLI_COUNT(architectures); i++) {
        if (strcmp(name, architectures[i].name) != 0)
            continue;
        apply_preset(s, &architectures[i].size);
        const char *wrong = s->decode && architectures[i].build != example_gpt2
                                ? "--decode is for gpt2"
                                : complaint(s);
        return wrong ? cli_usage_error("example", "%s", wrong) : make(i, &e, seed, out);
    }
    return cli_usage_error("example", "unknown architecture '%s'", name);
}
