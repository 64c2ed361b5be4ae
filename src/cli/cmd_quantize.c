/* SPDX-License-Identifier: Apache-2.0
 * tacit quantize: weights in fewer bits, written as ONNX, with what it costs in accuracy. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/internal.h"
#include "base/file.h"
#include "base/map.h"
#include "base/sbuf.h"
#include "cli/inputs.h"
#include "load/load.h"

typedef struct work {
    cli_job before, after;
    tacit_quantize_options options;
    tacit_quantize_report report;
    VEC(tacit_range) ranges;
    map range_at; /* value name → 1 + index in ranges */
    bool out_of_memory;
} work;

/* --- calibration -------------------------------------------------------------------------------
 */

static void see(void *context, const char *node, const char *op, const char *value,
                const tacit_tensor *t)
{
    work *w = context;
    (void)node, (void)op;
    if (t->dtype != TACIT_F32 || !t->data)
        return;
    tacit_range r = {.value = value, .low = INFINITY, .high = -INFINITY};
    for (int64_t i = 0, n = cli_elements(t); i < n; i++) {
        double x = cli_element(t, i);
        r.low = x < r.low ? x : r.low;
        r.high = x > r.high ? x : r.high;
    }
    if (!(r.low <= r.high) || isinf(r.low) || isinf(r.high))
        return;
    uintptr_t at = (uintptr_t)map_get(&w->range_at, value);
    if (at) {
        tacit_range *old = &w->ranges.data[at - 1];
        old->low = fmin(old->low, r.low);
        old->high = fmax(old->high, r.high);
        return;
    }
    r.value = arena_strdup(&w->before.memory, value);
    if (!r.value || !vec_push(&w->before.memory, &w->ranges, r) ||
        !map_put(&w->range_at, r.value, (void *)(uintptr_t)w->ranges.count))
        w->out_of_memory = true;
}

/* One sample from an .npz file: an array for every input. */
static int load_sample(const char *path, cli_job *job, file_map *file)
{
    tacit_error err = {TACIT_OK, ""};
    load_tensors sample = {0};
    tacit_status status = file_map_open(file, path, &err);
    if (status == TACIT_OK)
        status = load_npz(file->data, file->size, &job->memory, &sample, &err);
    if (status != TACIT_OK)
        return cli_fail("quantize", "%s: %s", path, err.message);
    for (uint32_t i = 0; i < job->n_inputs; i++) {
        tacit_tensor *in = &job->inputs[i];
        const ir_tensor *t = load_tensors_find(&sample, in->name);
        ir_shape want = ir_shape_of(in->rank, in->dims);
        if (!t)
            return cli_fail("quantize", "%s has no array '%s'", path, in->name);
        char a[IR_SHAPE_TEXT], b[IR_SHAPE_TEXT];
        if (t->dtype != in->dtype || !ir_shape_equal(&t->shape, &want))
            return cli_fail("quantize", "%s: '%s' is %s%s, but the model wants %s%s", path,
                            in->name, tacit_dtype_text(t->dtype), ir_shape_text(&t->shape, a),
                            tacit_dtype_text(in->dtype), ir_shape_text(&want, b));
        memcpy(in->data, t->data, in->bytes);
    }
    return -1;
}

/* Runs the model as it was loaded, every value watched; graph inputs are looked at directly. */
static int calibrate(work *w, const cli_list *files)
{
    static const char *const all[] = {"all"};
    tacit_compile_options o = w->before.options;
    cli_job plain = {0};
    o.disabled_passes = all;
    o.n_disabled_passes = 1;
    o.executor = TACIT_EXEC_SERIAL;
    int code = cli_job_second(&w->before, &o, &plain);
    if (code >= 0)
        return code;
    tacit_session_watch(plain.session, see, w);
    uint32_t count = files->count ? files->count : 1;
    for (uint32_t i = 0; code < 0 && i < count; i++) {
        file_map file = {0};
        if (files->count)
            code = load_sample(files->items[i], &w->before, &file);
        for (uint32_t k = 0; code < 0 && k < plain.n_inputs; k++)
            see(w, NULL, NULL, plain.inputs[k].name, &plain.inputs[k]);
        if (code < 0)
            code = cli_job_run(&plain);
        file_map_close(&file);
    }
    cli_job_close(&plain);
    if (code < 0 && w->out_of_memory)
        code = cli_fail("quantize", "out of memory");
    w->options.ranges = w->ranges.data;
    w->options.n_ranges = w->ranges.count;
    return code;
}

/* --- report ------------------------------------------------------------------------------------
 */

typedef struct accuracy {
    double relative; /* √(Σ(a−b)²/Σb²) */
    double cosine, worst;
} accuracy;

static accuracy compare(const tacit_tensor *a, const tacit_tensor *b)
{
    double error = 0, power = 0, other = 0, product = 0, worst = 0;
    for (int64_t i = 0, n = cli_elements(b); i < n; i++) {
        double x = cli_element(a, i), y = cli_element(b, i);
        error += (x - y) * (x - y);
        power += y * y;
        other += x * x;
        product += x * y;
        worst = fmax(worst, fabs(x - y));
    }
    double both = sqrt(power) * sqrt(other);
    return (accuracy){power > 0 ? sqrt(error / power) : 0, both > 0 ? product / both : 1, worst};
}

static void print_report(const work *w, const char *out, bool json)
{
    const tacit_quantize_report *r = &w->report;
    sbuf text;
    sbuf_init(&text, NULL);
    char before[24], after[24];
    if (json) {
        sbuf_text(&text, "{\"file\":");
        sbuf_json(&text, out);
        sbuf_printf(&text,
                    ",\"layers\":%u,\"bytes_before\":%llu,\"bytes_after\":%llu,"
                    "\"weight_error\":%.6g,\"outputs\":[",
                    r->layers, (unsigned long long)r->bytes_before,
                    (unsigned long long)r->bytes_after, r->weight_error);
    } else {
        sbuf_printf(&text, "%u layers: %s of weights became %s, error of the weights %.3g %%\n",
                    r->layers, cli_bytes(r->bytes_before, before), cli_bytes(r->bytes_after, after),
                    100 * r->weight_error);
    }
    for (uint32_t i = 0, shown = 0; i < w->before.n_outputs; i++) {
        const tacit_tensor *a = &w->after.outputs[i], *b = &w->before.outputs[i];
        if (!ir_dtype_is_float(b->dtype) || !a->data || !b->data)
            continue;
        accuracy q = compare(a, b);
        if (json) {
            sbuf_text(&text, shown++ ? ",{\"name\":" : "{\"name\":");
            sbuf_json(&text, b->name);
            sbuf_printf(&text, ",\"relative_error\":%.6g,\"cosine\":%.8f,\"max_abs_error\":%.6g}",
                        q.relative, q.cosine, q.worst);
        } else {
            sbuf_printf(&text, "%s: relative error %.3g %%, cosine %.6f, largest difference %.4g\n",
                        b->name, 100 * q.relative, q.cosine, q.worst);
        }
    }
    sbuf_text(&text, json ? "]}\n" : "");
    fputs(sbuf_str(&text) ? sbuf_str(&text) : "", stdout);
    sbuf_free(&text);
}

/* The written file is what is compared: it is read back. */
static int measure(work *w, const char *out, const cli_compile *compile, const cli_list *inputs,
                   int64_t seed)
{
    int code = cli_job_run(&w->before);
    if (code < 0)
        code = cli_job_open(&w->after, "quantize", out, compile, inputs, seed);
    for (uint32_t i = 0; code < 0 && i < w->after.n_inputs; i++)
        w->after.inputs[i].data = w->before.inputs[i].data;
    return code < 0 ? cli_job_run(&w->after) : code;
}

static int write_model(work *w, const char *out)
{
    tacit_error err = {TACIT_OK, ""};
    tacit_model *model = NULL;
    tacit_status status = tacit_quantize(w->before.model, &w->options, &model, &w->report, &err);
    if (status == TACIT_OK && w->report.layers == 0)
        status = TACIT_ERR_UNSUPPORTED,
        snprintf(err.message, sizeof err.message,
                 "no MatMul or Gemm with constant f32 weights of 32 x 16 or more");
    if (status == TACIT_OK)
        status = tacit_model_save(model, out, &err);
    tacit_model_free(model);
    return status == TACIT_OK ? -1 : cli_fail("quantize", "%s", err.message);
}

static int storage(const char *name, tacit_storage *out)
{
    static const char *const names[] = {"int8", "int4", "bf16", "f16"};
    for (uint32_t i = 0; name && i < CLI_COUNT(names); i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (tacit_storage)i;
            return -1;
        }
    return cli_usage_error("quantize", "--weights is int8, int4, bf16 or f16, not '%s'",
                           name ? name : "");
}

int cmd_quantize(int argc, char **argv)
{
    cli_compile compile = {0};
    cli_list inputs = {0}, samples = {0};
    const char *path = NULL, *out = NULL, *weights = "int8";
    int64_t seed = 1;
    bool json = false, fixed = false;
    work w = {0};
    const cli_option options[] = {
        {"--out", CLI_STRING, &out, "FILE.onnx", "where to write; required"},
        {"--weights", CLI_STRING, &weights, "TYPE", "int8 (default), int4, bf16 or f16"},
        {"--block", CLI_INT, &w.options.block, "N",
         "weights that share a scale: 16, 32 (default), 64, 128, 256"},
        {"--static", CLI_FLAG, &fixed, NULL,
         "activations in bytes too, by ranges seen while calibrating"},
        {"--calibrate", CLI_LIST, &samples, "FILE.npz",
         "a sample for --static: an array per input; repeatable"},
        {"--input", CLI_LIST, &inputs, "NAME=VALUE",
         "what accuracy is measured on: FILE.npy, random (default) or zeros; repeatable"},
        {"--seed", CLI_INT, &seed, "N", "seed of random inputs (default 1)"},
        {"--json", CLI_FLAG, &json, NULL, "machine-readable report"},
        CLI_COMPILE_OPTIONS(&compile),
    };
    const cli_usage usage = {
        "quantize",
        "MODEL --out FILE.onnx [--weights TYPE] [options]",
        "Stores the weights of linear layers in fewer bits, in forms that any ONNX runtime reads\n"
        "(MatMulNBits; Cast; QuantizeLinear), and reports how far the outputs moved.",
        options,
        CLI_COUNT(options),
        1,
        1};
    int code = cli_parse(&usage, argc, argv, &path, NULL);
    if (code >= 0)
        return code;
    if (!out)
        return cli_usage_error("quantize", "--out FILE is required");
    if ((code = storage(weights, &w.options.weights)) >= 0)
        return code;
    if (fixed && w.options.weights != TACIT_STORE_INT8)
        return cli_usage_error("quantize", "--static goes with --weights int8");
    if (samples.count && !fixed)
        return cli_usage_error("quantize", "--calibrate needs --static");
    code = cli_job_open(&w.before, "quantize", path, &compile, &inputs, seed);
    map_init(&w.range_at, &w.before.memory);
    if (code < 0 && fixed)
        code = calibrate(&w, &samples);
    if (code < 0)
        code = write_model(&w, out);
    if (code < 0)
        code = measure(&w, out, &compile, &inputs, seed);
    if (code < 0) {
        print_report(&w, out, json);
        code = CLI_OK;
    }
    cli_job_close(&w.after);
    cli_job_close(&w.before);
    return code;
}
