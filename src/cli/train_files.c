/* SPDX-License-Identifier: Apache-2.0
 * What a training run leaves on disk: checkpoints and the picture of its losses. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sbuf.h"
#include "cli/train.h"
#include "load/load.h"

static const char *const state_suffix[1 + TRAIN_STATES] = {"", ".mean", ".square"};

static tacit_status collect(const train_net *net, const train_place *at, arena *a, load_tensors *t,
                            tacit_error *err)
{
    const load_pair about[] = {
        {"model", net->name},
        {"epoch", arena_printf(a, "%lld", (long long)at->epoch)},
        {"step", arena_printf(a, "%lld", (long long)at->step)},
        {"seed", arena_printf(a, "%lld", (long long)at->seed)},
        {"batch", arena_printf(a, "%lld", (long long)at->batch)},
        {"rate", arena_printf(a, "%.17g", at->rate)},
    };
    bool ok = true;
    for (uint32_t i = 0; i < CLI_COUNT(about); i++)
        ok = ok && about[i].value && vec_push(a, &t->metadata, about[i]);
    for (uint32_t i = 0; ok && i < net->n_params; i++)
        for (int k = 0; ok && k <= TRAIN_STATES; k++) {
            const train_param *p = &net->params[i];
            ir_shape shape = ir_shape_of(p->rank, p->dims);
            load_named item = {arena_printf(a, "%s%s", p->name, state_suffix[k]),
                               ir_tensor_view(TACIT_F32, &shape, p->now[k])};
            ok = item.name && vec_push(a, &t->items, item);
        }
    return ok ? TACIT_OK : error_memory(err, "a checkpoint");
}

tacit_status train_save(const train_net *net, const train_place *at, const char *path,
                        tacit_error *err)
{
    arena a;
    load_tensors t = {.items = {0}};
    arena_init(&a, NULL);
    tacit_status status = collect(net, at, &a, &t, err);
    if (status == TACIT_OK)
        status = load_safetensors_write(&t, path, err);
    arena_free(&a);
    return status;
}

static const char *note(const load_tensors *t, const char *key)
{
    for (uint32_t i = 0; i < t->metadata.count; i++)
        if (strcmp(t->metadata.data[i].key, key) == 0)
            return t->metadata.data[i].value;
    return "";
}

static tacit_status restore(train_net *net, train_place *at, const load_tensors *t,
                            const char *path, tacit_error *err)
{
    if (strcmp(note(t, "model"), net->name) != 0)
        return error_set(err, TACIT_ERR_VALUE, "%s: the checkpoint is of '%s', not of '%s'", path,
                         note(t, "model"), net->name);
    if (atoll(note(t, "seed")) != at->seed || atoll(note(t, "batch")) != at->batch)
        return error_set(err, TACIT_ERR_VALUE,
                         "%s: the run used --seed %s --batch %s; go on with the same", path,
                         note(t, "seed"), note(t, "batch"));
    at->epoch = atoll(note(t, "epoch"));
    at->step = atoll(note(t, "step"));
    if (at->epoch < 0 || at->step < 0)
        return error_set(err, TACIT_ERR_VALUE, "%s: a negative epoch or step", path);
    for (uint32_t i = 0; i < net->n_params; i++)
        for (int k = 0; k <= TRAIN_STATES; k++) {
            train_param *p = &net->params[i];
            char name[64];
            snprintf(name, sizeof name, "%s%s", p->name, state_suffix[k]);
            const ir_tensor *from = load_tensors_find(t, name);
            ir_shape shape = ir_shape_of(p->rank, p->dims);
            if (!from || from->dtype != TACIT_F32 || !ir_shape_equal(&from->shape, &shape))
                return error_set(err, TACIT_ERR_VALUE,
                                 "%s: tensor '%s' is missing or not f32 of "
                                 "the parameter's shape",
                                 path, name);
            memcpy(p->now[k], from->data, (size_t)p->count * sizeof(float));
        }
    return TACIT_OK;
}

tacit_status train_resume(train_net *net, train_place *at, const char *path, tacit_error *err)
{
    file_map file;
    TRY(file_map_open(&file, path, err));
    arena a;
    load_tensors t = {.items = {0}};
    arena_init(&a, NULL);
    tacit_status status = load_safetensors(file.data, file.size, &a, &t, err);
    if (status == TACIT_OK)
        status = restore(net, at, &t, path, err);
    arena_free(&a);
    file_map_close(&file);
    return status;
}

enum { WIDE = 640, HIGH = 320, LEFT = 56, RIGHT = 12, TOP = 32, BOTTOM = 40, DOTS = 300 };

static double across(double share)
{
    return LEFT + share * (WIDE - LEFT - RIGHT);
}

static double down(double loss, double top)
{
    return TOP + (1 - loss / top) * (HIGH - TOP - BOTTOM);
}

static void axes(sbuf *s, double top, int64_t count)
{
    for (int i = 0; i <= 4; i++) {
        double value = top * i / 4, y = down(value, top);
        sbuf_printf(s, "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#ddd\"/>\n",
                    LEFT, y, WIDE - RIGHT, y);
        sbuf_printf(s, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.2g</text>\n", LEFT - 6,
                    y + 4, value);
        sbuf_printf(s, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%lld</text>\n",
                    across(i / 4.0), HIGH - BOTTOM + 16, (long long)(count * i / 4));
    }
    sbuf_printf(s, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">step</text>\n", WIDE / 2,
                HIGH - 8);
}

tacit_status train_curve(const char *title, const float *losses, int64_t count, const char *path,
                         tacit_error *err)
{
    sbuf s;
    double top = 0.1;
    int64_t dots = count < DOTS ? count : DOTS;
    for (int64_t i = 0; i < count; i++)
        top = losses[i] > top ? losses[i] : top;
    sbuf_init(&s, NULL);
    sbuf_printf(&s,
                "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
                "font-family=\"sans-serif\" font-size=\"12\">\n"
                "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
                "<text x=\"%d\" y=\"20\" font-size=\"14\">%s: training loss</text>\n",
                WIDE, HIGH, LEFT, title);
    axes(&s, top, count);
    sbuf_text(&s, "<polyline fill=\"none\" stroke=\"#1f5fa8\" stroke-width=\"1.5\" points=\"");
    for (int64_t i = 0; i < dots; i++) { /* each dot is the mean of its steps */
        int64_t from = i * count / dots, to = (i + 1) * count / dots;
        double sum = 0;
        for (int64_t k = from; k < to; k++)
            sum += losses[k];
        sbuf_printf(&s, "%.1f,%.1f ", across((double)(from + to) / 2 / (double)count),
                    down(sum / (double)(to - from), top));
    }
    sbuf_text(&s, "\"/>\n</svg>\n");
    const char *text = sbuf_str(&s);
    tacit_status status =
        text ? file_write_all(path, text, s.length, err) : error_memory(err, "the loss curve");
    sbuf_free(&s);
    return status;
}
