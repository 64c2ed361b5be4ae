/* SPDX-License-Identifier: Apache-2.0
 * Trains a graph of one's own: two moons, told apart by a small network. Shows the training step as
 * a model, parameters updated where they lie, and checkpoint regions by hand. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tacit/tacit.h>

enum { POINTS = 256, HIDDEN = 24, PARAMS = 4, STEPS = 300 };

static const char *const params[PARAMS] = {"w1", "b1", "w2", "b2"};
static const int64_t sizes[PARAMS] = {2 * HIDDEN, HIDDEN, HIDDEN * 2, 2};

/* The loss of the network over all points. */
static tacit_status build(tacit_model **out, tacit_error *err)
{
    tacit_builder *b;
    tacit_status status = tacit_builder_create("moons", NULL, &b, err);
    if (status != TACIT_OK)
        return status;
    tacit_value x = tacit_builder_input(b, "x", TACIT_F32, 2, (int64_t[]){POINTS, 2}, NULL);
    tacit_value y = tacit_builder_input(b, "y", TACIT_I64, 1, (int64_t[]){POINTS}, NULL);
    tacit_value w1 = tacit_builder_input(b, "w1", TACIT_F32, 2, (int64_t[]){2, HIDDEN}, NULL);
    tacit_value b1 = tacit_builder_input(b, "b1", TACIT_F32, 1, (int64_t[]){HIDDEN}, NULL);
    tacit_value w2 = tacit_builder_input(b, "w2", TACIT_F32, 2, (int64_t[]){HIDDEN, 2}, NULL);
    tacit_value b2 = tacit_builder_input(b, "b2", TACIT_F32, 1, (int64_t[]){2}, NULL);
    tacit_value h = tacit_builder_node(b, "MatMul", 2, (tacit_value[]){x, w1}, 1, NULL);
    h = tacit_builder_node(b, "Add", 2, (tacit_value[]){h, b1}, 1, NULL);
    h = tacit_builder_node(b, "tacit.Checkpoint", 1, &h, 1, NULL); /* kept; what is before, not */
    h = tacit_builder_node(b, "Tanh", 1, &h, 1, NULL);
    h = tacit_builder_node(b, "MatMul", 2, (tacit_value[]){h, w2}, 1, NULL);
    h = tacit_builder_node(b, "Add", 2, (tacit_value[]){h, b2}, 1, NULL);
    tacit_builder_output(
        b, "loss",
        tacit_builder_node(b, "SoftmaxCrossEntropyLoss", 2, (tacit_value[]){h, y}, 1, NULL));
    status = tacit_builder_finish(b, out, err); /* any mistake above is reported here */
    tacit_builder_free(b);
    return status;
}

static float noise(void)
{
    return (float)rand() / (float)RAND_MAX - 0.5f;
}

static void draw(float *x, int64_t *y)
{
    float c = 1, s = 0; /* walks half a circle */
    for (int i = 0; i < POINTS; i++) {
        y[i] = i % 2;
        x[2 * i] = (y[i] ? 1 - c : c) + 0.2f * noise();
        x[2 * i + 1] = (y[i] ? 0.5f - s : s) + 0.2f * noise();
        float step = 3.14159f / POINTS, turned = c - s * step;
        s += c * step;
        c = turned;
    }
}

/* Every input and output of the step by name; NAME.next gets the buffer of NAME. */
static void *buffer(const char *name, float *x, int64_t *y, float *rate, float *count,
                    float *values[3][PARAMS])
{
    static const char *const suffix[3] = {"", ".mean", ".square"};
    if (strcmp(name, "x") == 0)
        return x;
    if (strcmp(name, "y") == 0)
        return y;
    if (strcmp(name, "learning_rate") == 0)
        return rate;
    if (strcmp(name, "step") == 0)
        return count;
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < PARAMS; i++) {
            char full[64], next[64];
            snprintf(full, sizeof full, "%s%s", params[i], suffix[k]);
            snprintf(next, sizeof next, "%s%s.next", params[i], suffix[k]);
            if (strcmp(name, full) == 0 || strcmp(name, next) == 0)
                return values[k][i];
        }
    return NULL;
}

static tacit_tensor tensor(const tacit_port *p, void *data)
{
    tacit_tensor t = {.name = p->name, .dtype = p->dtype, .rank = p->rank, .data = data};
    memcpy(t.dims, p->dims, sizeof p->dims);
    t.bytes = p->bytes;
    return t;
}

int main(void)
{
    enum { MOST = 32 };
    static float x[2 * POINTS], storage[3][PARAMS][2 * HIDDEN];
    static int64_t y[POINTS];
    float *values[3][PARAMS], rate = 0.02f, count = 0, loss = 0, first = 0;
    tacit_error err = {0};
    tacit_model *model = NULL, *step = NULL;
    tacit_program *program = NULL;
    tacit_session *session = NULL;
    tacit_tensor in[MOST], out[MOST];

    draw(x, y);
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < PARAMS; i++) {
            values[k][i] = storage[k][i];
            for (int64_t j = 0; k == 0 && i % 2 == 0 && j < sizes[i]; j++)
                values[k][i][j] = noise();
        }
    tacit_train_options options = {.optimizer = TACIT_ADAMW, .clip_norm = 1};
    tacit_compile_options compile = {.update_in_place = 1};
    if (build(&model, &err) != TACIT_OK ||
        tacit_train_step(model, PARAMS, params, &options, &step, &err) != TACIT_OK ||
        tacit_compile(step, &compile, &program, &err) != TACIT_OK ||
        tacit_session_create(program, &session, &err) != TACIT_OK)
        goto failed;
    uint32_t n_in = tacit_program_input_count(program), n_out = tacit_program_output_count(program);
    for (uint32_t i = 0; i < n_in && i < MOST; i++) {
        tacit_port p;
        if (tacit_program_input(program, i, &p) != TACIT_OK)
            goto failed;
        in[i] = tensor(&p, buffer(p.name, x, y, &rate, &count, values));
    }
    for (uint32_t i = 0; i < n_out && i < MOST; i++) {
        tacit_port p;
        if (tacit_program_output(program, i, &p) != TACIT_OK)
            goto failed;
        void *at = buffer(p.name, x, y, &rate, &count, values);
        out[i] = tensor(&p, at ? at : &loss);
    }
    for (int i = 0; i < STEPS; i++) {
        count = (float)(i + 1);
        if (tacit_run(session, in, n_in, out, n_out, &err) != TACIT_OK)
            goto failed;
        first = i ? first : loss;
        if (i % 50 == 0)
            printf("step %3d  loss %.4f\n", i, (double)loss);
    }
    printf("loss %.4f after %d steps, %.4f before\n", (double)loss, STEPS, (double)first);
    int code = loss < 0.2f * first ? 0 : 1;
    tacit_session_free(session);
    tacit_program_free(program);
    tacit_model_free(step);
    tacit_model_free(model);
    return code;
failed:
    fprintf(stderr, "train_graph: %s\n", err.message);
    return 1;
}
