/* SPDX-License-Identifier: Apache-2.0
 * An operator of one's own, with its derivative: y = x³ and dy/dx, in one model. */
#include <stdio.h>
#include <string.h>

#include <tacit/tacit.h>

static tacit_status cube_infer(void *context, const tacit_custom_call *c, tacit_error *err)
{
    (void)context;
    (void)err;
    c->outputs[0].dtype = c->inputs[0].dtype;
    c->outputs[0].rank = c->inputs[0].rank;
    memcpy(c->outputs[0].dims, c->inputs[0].dims, sizeof c->inputs[0].dims);
    return TACIT_OK;
}

static tacit_status cube_run(void *context, const tacit_custom_call *c, tacit_error *err)
{
    const float *x = c->inputs[0].data;
    float *y = c->outputs[0].data;
    (void)context;
    (void)err;
    for (size_t i = 0; i < c->inputs[0].bytes / sizeof *x; i++)
        y[i] = x[i] * x[i] * x[i];
    return TACIT_OK;
}

/* dx = 3x²·dy, built from operators that Tacit knows. */
static tacit_status cube_vjp(void *context, const tacit_custom_rule *r, tacit_error *err)
{
    const float three = 3;
    tacit_builder *b = r->builder;
    tacit_value x = r->inputs[0], dy = r->seeds[0];
    (void)context;
    (void)err;
    tacit_value k = tacit_builder_constant(b, NULL, TACIT_F32, 0, NULL, &three);
    tacit_value square = tacit_builder_node(b, "Mul", 2, (tacit_value[]){x, x}, 1, NULL);
    tacit_value slope = tacit_builder_node(b, "Mul", 2, (tacit_value[]){k, square}, 1, NULL);
    r->results[0] = tacit_builder_node(b, "Mul", 2, (tacit_value[]){slope, dy}, 1, NULL);
    return TACIT_OK;
}

int main(void)
{
    static const tacit_custom_op cube = {.domain = "my",
                                         .name = "Cube",
                                         .min_inputs = 1,
                                         .max_inputs = 1,
                                         .n_outputs = 1,
                                         .infer = cube_infer,
                                         .run = cube_run,
                                         .vjp = cube_vjp};
    static const char graph[] = "tacit 1\n"
                                "graph \"cube\" {\n"
                                "  in %x : f32[3]\n"
                                "  %y = my.Cube(%x) @cube\n"
                                "  %sum = ReduceSum(%y) @sum\n"
                                "  out %sum\n"
                                "}\n";
    const tacit_custom_op *ops[] = {&cube};
    tacit_load_options load = {.custom_ops = ops, .n_custom_ops = 1};
    tacit_grad_options options = {.with_loss = 1};
    const char *wrt[] = {"x"};
    float x[3] = {1, 2, -3}, seed = 1, loss, dx[3];
    tacit_error err;
    tacit_model *model = NULL, *gradient = NULL;
    tacit_program *program = NULL;
    tacit_session *session = NULL;
    int code = 1;

    tacit_tensor in[2] = {
        {.name = "x", .dtype = TACIT_F32, .rank = 1, .dims = {3}, .data = x, .bytes = sizeof x},
        {.name = "d_output",
         .dtype = TACIT_F32,
         .rank = 1,
         .dims = {1},
         .data = &seed,
         .bytes = 4}};
    tacit_tensor out[2] = {
        {.dtype = TACIT_F32, .rank = 1, .dims = {1}, .data = &loss, .bytes = 4}, /* axes are kept */
        {.dtype = TACIT_F32, .rank = 1, .dims = {3}, .data = dx, .bytes = sizeof dx}};
    if (tacit_model_load_memory(graph, sizeof graph - 1, &load, &model, &err) == TACIT_OK &&
        tacit_grad(model, 1, wrt, &options, &gradient, &err) == TACIT_OK &&
        tacit_compile(gradient, NULL, &program, &err) == TACIT_OK &&
        tacit_session_create(program, &session, &err) == TACIT_OK &&
        tacit_run(session, in, 2, out, 2, &err) == TACIT_OK) {
        printf("sum of cubes %g, slopes %g %g %g\n", loss, dx[0], dx[1], dx[2]);
        code = !(loss == -18 && dx[0] == 3 && dx[1] == 12 && dx[2] == 27);
    } else {
        fprintf(stderr, "custom_op: %s\n", err.message);
    }
    tacit_session_free(session);
    tacit_program_free(program);
    tacit_model_free(gradient);
    tacit_model_free(model);
    return code;
}
