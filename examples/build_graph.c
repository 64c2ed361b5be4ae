/* SPDX-License-Identifier: Apache-2.0
 * Builds y = softmax(x·w + b) with the C builder, prints the graph, runs it. */
#include <stdio.h>

#include <tacit/tacit.h>

int main(void)
{
    static const float w[3 * 2] = {1, 0, 0, 1, 1, 1}; /* [3,2] */
    static const float bias[2] = {1.5f, 0};
    float x[3] = {1, 2, 3}, y[2];
    int64_t x_dims[2] = {1, 3}, w_dims[2] = {3, 2}, b_dims[1] = {2};
    tacit_error err;
    tacit_builder *b = NULL;
    tacit_model *model = NULL;
    tacit_program *program = NULL;
    tacit_session *session = NULL;
    char *text = NULL;

    if (tacit_builder_create("classifier", NULL, &b, &err) != TACIT_OK)
        goto failed;
    tacit_value vx = tacit_builder_input(b, "x", TACIT_F32, 2, x_dims, NULL);
    tacit_value vw = tacit_builder_weight(b, "w", TACIT_F32, 2, w_dims, w);
    tacit_value vb = tacit_builder_weight(b, "b", TACIT_F32, 1, b_dims, bias);
    tacit_value product = tacit_builder_node(b, "MatMul", 2, (tacit_value[]){vx, vw}, 1, NULL);
    tacit_value sum = tacit_builder_node(b, "Add", 2, (tacit_value[]){product, vb}, 1, NULL);
    tacit_value out = tacit_builder_node(b, "Softmax", 1, &sum, 1, NULL);
    tacit_builder_attr_int(b, "axis", 1);
    tacit_builder_output(b, "y", out);
    /* Any mistake above is reported here. */
    if (tacit_builder_finish(b, &model, &err) != TACIT_OK ||
        tacit_model_text(model, 1, &text, &err) != TACIT_OK ||
        tacit_compile(model, NULL, &program, &err) != TACIT_OK ||
        tacit_session_create(program, &session, &err) != TACIT_OK)
        goto failed;
    printf("%s\n", text);

    tacit_tensor in = {.dtype = TACIT_F32, .rank = 2, .dims = {1, 3}, .data = x, .bytes = sizeof x};
    tacit_tensor result = {
        .dtype = TACIT_F32, .rank = 2, .dims = {1, 2}, .data = y, .bytes = sizeof y};
    if (tacit_run(session, &in, 1, &result, 1, &err) != TACIT_OK)
        goto failed;
    printf("y = %.4f %.4f\n", (double)y[0], (double)y[1]);
    tacit_text_free(text);
    tacit_session_free(session);
    tacit_program_free(program);
    tacit_model_free(model);
    tacit_builder_free(b);
    return 0;

failed:
    fprintf(stderr, "build_graph: %s\n", err.message);
    return 1;
}
