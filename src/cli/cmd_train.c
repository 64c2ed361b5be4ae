/* SPDX-License-Identifier: Apache-2.0
 * tacit train: trains a small network on drawn digits and leaves a model other runtimes read. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cpu.h"
#include "base/progress.h"
#include "base/sbuf.h"
#include "cli/digits.h"
#include "cli/train.h"
#include "load/load.h"

enum { SAMPLES = 10000, HELD_OUT = 1000, TRAINED = SAMPLES - HELD_OUT, EVAL_BATCH = 100 };

typedef struct trainer {
    const char *what, *model, *out, *resume, *exec;
    int64_t epochs, batch, seed, threads;
    double rate;
    bool json;
    train_net net;
    train_place at;
    float *images, *batch_images, *losses;
    int64_t *labels, *batch_labels, *order, n_losses;
    tacit_program *step, *score;
    tacit_session *step_session, *score_session;
    double seconds;
    tacit_error err;
} trainer;

static tacit_tensor tensor(tacit_dtype dtype, int32_t rank, const int64_t *dims, void *data,
                           const char *name)
{
    tacit_tensor t = {.name = name, .dtype = dtype, .rank = rank, .data = data};
    t.bytes = tacit_dtype_bits(dtype) / 8;
    for (int32_t i = 0; i < rank; i++) {
        t.dims[i] = dims[i];
        t.bytes *= (size_t)dims[i];
    }
    return t;
}

static tacit_tensor image_tensor(int64_t count, float *data)
{
    return tensor(TACIT_F32, 4, (int64_t[]){count, 1, DIGITS_SIDE, DIGITS_SIDE}, data, "image");
}

/* --- compiling -------------------------------------------------------------------------------- */

static tacit_status compile(trainer *t, const tacit_model *m, int64_t batch,
                            tacit_program **program, tacit_session **session)
{
    tacit_dim dim = {"batch", batch};
    tacit_compile_options o = {
        .dims = &dim, .n_dims = 1, .threads = (uint32_t)t->threads, .update_in_place = 1};
    o.executor = strcmp(t->exec, "serial") == 0      ? TACIT_EXEC_SERIAL
                 : strcmp(t->exec, "reference") == 0 ? TACIT_EXEC_REFERENCE
                                                     : TACIT_EXEC_TASKS;
    tacit_status status = tacit_compile(m, &o, program, &t->err);
    return status == TACIT_OK ? tacit_session_create(*program, session, &t->err) : status;
}

static tacit_status make_step(trainer *t)
{
    const char *names[TRAIN_MAX_PARAMS];
    for (uint32_t i = 0; i < t->net.n_params; i++)
        names[i] = t->net.params[i].name;
    tacit_dim dim = {"batch", t->batch};
    tacit_train_options o = {
        .dims = &dim, .n_dims = 1, .optimizer = TACIT_ADAMW, .weight_decay = 0.01, .clip_norm = 1};
    tacit_model *loss = NULL, *step = NULL;
    tacit_status status = train_build(&t->net, TRAIN_LOSS, &loss, &t->err);
    if (status == TACIT_OK)
        status = tacit_train_step(loss, t->net.n_params, names, &o, &step, &t->err);
    if (status == TACIT_OK) {
        char path[4096];
        snprintf(path, sizeof path, "%s/step.tacit", t->out);
        status = tacit_model_save(step, path, &t->err);
    }
    if (status == TACIT_OK)
        status = compile(t, step, t->batch, &t->step, &t->step_session);
    tacit_model_free(loss);
    tacit_model_free(step);
    return status;
}

static tacit_status make_programs(trainer *t)
{
    tacit_model *score = NULL;
    tacit_status status = make_step(t);
    if (status == TACIT_OK)
        status = train_build(&t->net, TRAIN_SCORE, &score, &t->err);
    if (status == TACIT_OK)
        status = compile(t, score, EVAL_BATCH, &t->score, &t->score_session);
    tacit_model_free(score);
    return status;
}

/* --- running ---------------------------------------------------------------------------------- */

/* Parameters and state are updated where they lie. */
static tacit_status run_step(trainer *t, float *loss)
{
    enum { MOST = TRAIN_MAX_PARAMS * (1 + TRAIN_STATES) + 8 };
    static const char *const suffix[] = {"", ".mean", ".square"};
    tacit_tensor in[MOST], out[MOST];
    char names[MOST][64];
    uint32_t n_in = 0, n_out = 0;
    float rate = (float)(t->rate * pow(0.8, (double)t->at.epoch)), count = (float)(t->at.step + 1);
    in[n_in++] = image_tensor(t->batch, t->batch_images);
    in[n_in++] = tensor(TACIT_I64, 1, &t->batch, t->batch_labels, "label");
    in[n_in++] = tensor(TACIT_F32, 0, NULL, &rate, "learning_rate");
    in[n_in++] = tensor(TACIT_F32, 0, NULL, &count, "step");
    out[n_out++] = tensor(TACIT_F32, 0, NULL, loss, NULL);
    for (int k = 0; k <= TRAIN_STATES; k++)
        for (uint32_t i = 0; i < t->net.n_params; i++) {
            train_param *p = &t->net.params[i];
            snprintf(names[n_in], sizeof names[n_in], "%s%s", p->name, suffix[k]);
            in[n_in] = tensor(TACIT_F32, p->rank, p->dims, p->now[k], names[n_in]);
            n_in++;
            out[n_out++] = tensor(TACIT_F32, p->rank, p->dims, p->now[k], NULL);
        }
    tacit_status status = tacit_run(t->step_session, in, n_in, out, n_out, &t->err);
    t->at.step += status == TACIT_OK;
    return status;
}

/* The order of an epoch depends on the seed and its number alone: a resumed run sees the same. */
static void shuffle(trainer *t)
{
    rng r = rng_seed((uint64_t)t->seed * 1000003u + (uint64_t)t->at.epoch);
    for (int64_t i = 0; i < TRAINED; i++)
        t->order[i] = i;
    for (int64_t i = TRAINED - 1; i > 0; i--) {
        int64_t k = (int64_t)rng_below(&r, (uint64_t)i + 1), keep = t->order[i];
        t->order[i] = t->order[k];
        t->order[k] = keep;
    }
}

static tacit_status run_epoch(trainer *t, progress *bar, double *mean)
{
    int64_t steps = TRAINED / t->batch;
    double sum = 0;
    shuffle(t);
    for (int64_t s = 0; s < steps && !cli_interrupted; s++) {
        for (int64_t i = 0; i < t->batch; i++) {
            int64_t from = t->order[s * t->batch + i];
            memcpy(t->batch_images + i * DIGITS_PIXELS, t->images + from * DIGITS_PIXELS,
                   DIGITS_PIXELS * sizeof(float));
            t->batch_labels[i] = t->labels[from];
        }
        float loss;
        tacit_status status = run_step(t, &loss);
        if (status != TACIT_OK)
            return status;
        if (!isfinite(loss)) {
            t->err.status = TACIT_ERR_VALUE;
            snprintf(t->err.message, sizeof t->err.message,
                     "the loss of step %lld is not a number: try a smaller --lr",
                     (long long)t->at.step);
            return TACIT_ERR_VALUE;
        }
        t->losses[t->n_losses++] = loss;
        sum += loss;
        char note[64];
        snprintf(note, sizeof note, "epoch %lld  loss %.4f", (long long)t->at.epoch + 1,
                 (double)loss);
        progress_update(bar, (uint64_t)t->n_losses, note);
    }
    *mean = steps ? sum / (double)steps : 0;
    return TACIT_OK;
}

/* Share of the held-out digits that get the highest score. */
static tacit_status measure(trainer *t, double *accuracy)
{
    float scores[EVAL_BATCH * DIGITS_CLASSES];
    int64_t right = 0;
    for (int64_t first = TRAINED; first < SAMPLES; first += EVAL_BATCH) {
        tacit_tensor in[1 + TRAIN_MAX_PARAMS];
        in[0] = image_tensor(EVAL_BATCH, t->images + first * DIGITS_PIXELS);
        for (uint32_t i = 0; i < t->net.n_params; i++) {
            train_param *p = &t->net.params[i];
            in[1 + i] = tensor(TACIT_F32, p->rank, p->dims, p->now[0], p->name);
        }
        tacit_tensor out =
            tensor(TACIT_F32, 2, (int64_t[]){EVAL_BATCH, DIGITS_CLASSES}, scores, NULL);
        tacit_status status =
            tacit_run(t->score_session, in, 1 + t->net.n_params, &out, 1, &t->err);
        if (status != TACIT_OK)
            return status;
        for (int64_t i = 0; i < EVAL_BATCH; i++) {
            int64_t best = 0;
            for (int64_t k = 1; k < DIGITS_CLASSES; k++)
                if (scores[i * DIGITS_CLASSES + k] > scores[i * DIGITS_CLASSES + best])
                    best = k;
            right += best == t->labels[first + i];
        }
    }
    *accuracy = (double)right / HELD_OUT;
    return TACIT_OK;
}

static void say_epoch(const trainer *t, double loss, double accuracy)
{
    printf(t->json ? "{\"epoch\":%lld,\"loss\":%.6f,\"held_out\":%.4f}\n"
                   : "epoch %2lld  loss %.4f  held out %.4f\n",
           (long long)t->at.epoch, loss, accuracy);
    fflush(stdout);
}

static tacit_status train(trainer *t, double *accuracy)
{
    progress bar;
    char path[4096];
    tacit_status status = measure(t, accuracy);
    uint64_t start = clock_ns();
    progress_begin(&bar, "training", (uint64_t)((t->epochs - t->at.epoch) * (TRAINED / t->batch)));
    snprintf(path, sizeof path, "%s/checkpoint.safetensors", t->out);
    while (status == TACIT_OK && t->at.epoch < t->epochs) {
        double loss = 0;
        status = run_epoch(t, &bar, &loss);
        if (cli_interrupted || status != TACIT_OK)
            break;
        t->at.epoch++;
        progress_end(&bar);
        status = measure(t, accuracy);
        if (status == TACIT_OK)
            status = train_save(&t->net, &t->at, path, &t->err);
        if (status == TACIT_OK)
            say_epoch(t, loss, *accuracy);
    }
    progress_end(&bar);
    t->seconds = (double)(clock_ns() - start) / 1e9;
    return status;
}

/* --- files ------------------------------------------------------------------------------------ */

static tacit_status write_held_out(trainer *t)
{
    char path[4096];
    ir_shape images = ir_shape_of(4, (int64_t[]){HELD_OUT, 1, DIGITS_SIDE, DIGITS_SIDE});
    ir_shape labels = ir_shape_of(1, (int64_t[]){HELD_OUT});
    ir_tensor x = ir_tensor_view(TACIT_F32, &images, t->images + TRAINED * DIGITS_PIXELS);
    ir_tensor y = ir_tensor_view(TACIT_I64, &labels, t->labels + TRAINED);
    snprintf(path, sizeof path, "%s/held-out-images.npy", t->out);
    tacit_status status = load_npy_write(&x, path, &t->err);
    snprintf(path, sizeof path, "%s/held-out-labels.npy", t->out);
    return status == TACIT_OK ? load_npy_write(&y, path, &t->err) : status;
}

static tacit_status write_results(trainer *t)
{
    char path[4096];
    tacit_model *model = NULL;
    tacit_status status = train_build(&t->net, TRAIN_EXPORT, &model, &t->err);
    snprintf(path, sizeof path, "%s/model.onnx", t->out);
    if (status == TACIT_OK)
        status = tacit_model_save(model, path, &t->err);
    tacit_model_free(model);
    snprintf(path, sizeof path, "%s/loss.svg", t->out);
    if (status == TACIT_OK)
        status = train_curve(t->net.name, t->losses, t->n_losses, path, &t->err);
    return status == TACIT_OK ? write_held_out(t) : status;
}

/* --- the command ------------------------------------------------------------------------------ */

static int prepare(trainer *t)
{
    int64_t steps = TRAINED / t->batch * t->epochs;
    if (!train_init(&t->net, t->model, (uint64_t)t->seed))
        return t->net.name ? cli_fail("train", "out of memory")
                           : cli_usage_error("train", "unknown model '%s': convnet or transformer",
                                             t->model);
    t->at = (train_place){.seed = t->seed, .batch = t->batch, .rate = t->rate};
    t->images = malloc((size_t)SAMPLES * DIGITS_PIXELS * sizeof(float));
    t->labels = malloc(SAMPLES * sizeof *t->labels);
    t->order = malloc(TRAINED * sizeof *t->order);
    t->batch_images = malloc((size_t)t->batch * DIGITS_PIXELS * sizeof(float));
    t->batch_labels = malloc((size_t)t->batch * sizeof *t->batch_labels);
    t->losses = malloc((size_t)(steps + 1) * sizeof *t->losses);
    if (!t->images || !t->labels || !t->order || !t->batch_images || !t->batch_labels || !t->losses)
        return cli_fail("train", "out of memory");
    struct stat st;
    if (mkdir(t->out, 0777) != 0 && (stat(t->out, &st) != 0 || !S_ISDIR(st.st_mode)))
        return cli_fail("train", "cannot make the folder '%s'", t->out);
    digits_draw((uint64_t)t->seed, SAMPLES, t->images, t->labels);
    if (t->resume && train_resume(&t->net, &t->at, t->resume, &t->err) != TACIT_OK)
        return cli_fail("train", "%s", t->err.message);
    if (t->at.epoch > t->epochs)
        return cli_usage_error("train", "the checkpoint has %lld epochs already, --epochs is %lld",
                               (long long)t->at.epoch, (long long)t->epochs);
    return make_programs(t) == TACIT_OK ? -1 : cli_fail("train", "%s", t->err.message);
}

static int run(trainer *t)
{
    double accuracy = 0;
    int code = prepare(t);
    if (code >= 0)
        return code;
    if (train(t, &accuracy) != TACIT_OK)
        return cli_fail("train", "%s", t->err.message);
    if (cli_interrupted && !t->at.epoch)
        return cli_stop("train", "interrupted before the first epoch was complete");
    if (cli_interrupted)
        return cli_stop("train", "interrupted; --resume %s/checkpoint.safetensors goes on", t->out);
    if (write_results(t) != TACIT_OK)
        return cli_fail("train", "%s", t->err.message);
    if (t->json) {
        printf("{\"model\":\"%s\",\"epochs\":%lld,\"steps\":%lld,\"loss\":%.6f,\"seconds\":%.2f,"
               "\"accuracy\":%.4f}\n",
               t->net.name, (long long)t->epochs, (long long)t->at.step,
               t->n_losses ? (double)t->losses[t->n_losses - 1] : 0.0, t->seconds, accuracy);
    } else {
        printf("%lld steps in %.1f s; wrote %s/model.onnx, checkpoint.safetensors, loss.svg\n",
               (long long)t->at.step, t->seconds, t->out);
        printf("accuracy %.4f\n", accuracy);
    }
    return CLI_OK;
}

static void release(trainer *t)
{
    tacit_session_free(t->step_session);
    tacit_session_free(t->score_session);
    tacit_program_free(t->step);
    tacit_program_free(t->score);
    train_free(&t->net);
    free(t->images);
    free(t->labels);
    free(t->order);
    free(t->batch_images);
    free(t->batch_labels);
    free(t->losses);
}

int cmd_train(int argc, char **argv)
{
    cli_finish_first();
    trainer t = {
        .model = "convnet", .exec = "tasks", .epochs = 8, .batch = 50, .seed = 1, .rate = 2e-3};
    const cli_option options[] = {
        {"--out", CLI_STRING, &t.out, "DIR", "folder for the model and checkpoints; required"},
        {"--model", CLI_STRING, &t.model, "NAME", "convnet (default) or transformer"},
        {"--epochs", CLI_INT, &t.epochs, "N", "passes over the 9000 training digits (default 8)"},
        {"--batch", CLI_INT, &t.batch, "N", "digits per step (default 50)"},
        {"--lr", CLI_FLOAT, &t.rate, "X", "learning rate, falling by a fifth each epoch (0.002)"},
        {"--seed", CLI_INT, &t.seed, "N", "seed of digits, weights and order (default 1)"},
        {"--resume", CLI_STRING, &t.resume, "FILE", "go on from a checkpoint"},
        {"--exec", CLI_STRING, &t.exec, "NAME", "executor: tasks (default), serial or reference"},
        {"--threads", CLI_INT, &t.threads, "N", "threads for --exec tasks (default: all)"},
        {"--json", CLI_FLAG, &t.json, NULL, "one JSON object per epoch and at the end"},
    };
    const cli_usage usage = {
        "train",
        "digits --out DIR [options]",
        "Trains a small network on 10000 drawn digits of 16x16 pixels, 1000 of them held out. "
        "Leaves "
        "in DIR:\nmodel.onnx, checkpoint.safetensors, loss.svg, step.tacit (the graph of one step) "
        "and the held-out\ndigits as held-out-images.npy and held-out-labels.npy.",
        options,
        CLI_COUNT(options),
        1,
        1};
    int code = cli_parse(&usage, argc, argv, &t.what, NULL);
    if (code >= 0)
        return code;
    if (strcmp(t.what, "digits") != 0)
        return cli_usage_error("train", "unknown data '%s': digits", t.what);
    if (!t.out)
        return cli_usage_error("train", "--out DIR is required");
    if (t.epochs < 0 || t.epochs > 1000 || t.batch < 1 || t.batch > TRAINED || t.threads < 0 ||
        t.threads > 256 || !(t.rate > 0))
        return cli_usage_error("train", "--epochs is 0 to 1000, --batch 1 to %d, --lr positive",
                               TRAINED);
    if (strcmp(t.exec, "tasks") != 0 && strcmp(t.exec, "serial") != 0 &&
        strcmp(t.exec, "reference") != 0)
        return cli_usage_error("train", "unknown executor '%s': tasks, serial or reference",
                               t.exec);
    code = run(&t);
    release(&t);
    return code;
}
