/* SPDX-License-Identifier: Apache-2.0
 * Runs an ONNX file once on made-up inputs and prints the first values of every output.
 * Usage: run_onnx MODEL.onnx [SIZE]     SIZE: of every symbolic dimension (default 1) */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tacit/tacit.h>

enum { MOST = 64 };

static int fail(const tacit_error *err)
{
    fprintf(stderr, "run_onnx: %s\n", err->message);
    return 1;
}

/* Every symbol of every input gets the same size. */
static uint32_t bind_symbols(const tacit_model *model, int64_t size, tacit_dim *dims)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < tacit_model_input_count(model); i++) {
        tacit_port port;
        if (tacit_model_input(model, i, &port) != TACIT_OK)
            continue;
        for (int32_t d = 0; d < port.rank && n < MOST; d++) {
            int known = !port.dim_names[d];
            for (uint32_t k = 0; k < n && !known; k++)
                known = strcmp(dims[k].name, port.dim_names[d]) == 0;
            if (!known)
                dims[n++] = (tacit_dim){port.dim_names[d], size};
        }
    }
    return n;
}

static tacit_tensor make_input(const tacit_port *port)
{
    tacit_tensor t = {.name = port->name, .dtype = port->dtype, .rank = port->rank};
    memcpy(t.dims, port->dims, sizeof t.dims);
    t.bytes = port->bytes;
    t.data = calloc(1, port->bytes + 1);
    for (size_t i = 0; t.data && port->dtype == TACIT_F32 && i < port->bytes / 4; i++)
        ((float *)t.data)[i] = (float)(i % 10) * 0.1f;
    return t;
}

static void print_output(const char *name, const tacit_tensor *t)
{
    printf("%s: %s[", name, tacit_dtype_text(t->dtype));
    for (int32_t d = 0; d < t->rank; d++)
        printf("%s%lld", d ? "," : "", (long long)t->dims[d]);
    printf("]");
    for (size_t i = 0; t->dtype == TACIT_F32 && i < 5 && i < t->bytes / 4; i++)
        printf(" %g", ((const float *)t->data)[i]);
    printf("\n");
}

int main(int argc, char **argv)
{
    tacit_error err;
    tacit_model *model = NULL;
    tacit_program *program = NULL;
    tacit_session *session = NULL;
    tacit_dim dims[MOST];
    tacit_tensor in[MOST] = {0}, out[MOST] = {0};
    if (argc < 2) {
        fprintf(stderr, "usage: run_onnx MODEL.onnx [SIZE]\n");
        return 2;
    }
    if (tacit_model_load(argv[1], NULL, &model, &err) != TACIT_OK)
        return fail(&err);
    tacit_compile_options options = {.dims = dims};
    options.n_dims = bind_symbols(model, argc > 2 ? atoll(argv[2]) : 1, dims);
    if (tacit_compile(model, &options, &program, &err) != TACIT_OK ||
        tacit_session_create(program, &session, &err) != TACIT_OK)
        return fail(&err);
    uint32_t n_in = tacit_program_input_count(program);
    uint32_t n_out = tacit_program_output_count(program);
    tacit_port port;
    for (uint32_t i = 0; i < n_in && i < MOST; i++)
        if (tacit_program_input(program, i, &port) == TACIT_OK)
            in[i] = make_input(&port);
    /* Outputs without data are lent by the session until its next run. */
    if (tacit_run(session, in, n_in, out, n_out < MOST ? n_out : MOST, &err) != TACIT_OK)
        return fail(&err);
    for (uint32_t i = 0; i < n_out && i < MOST; i++)
        if (tacit_program_output(program, i, &port) == TACIT_OK)
            print_output(port.name, &out[i]);
    for (uint32_t i = 0; i < n_in && i < MOST; i++)
        free(in[i].data);
    tacit_session_free(session);
    tacit_program_free(program);
    tacit_model_free(model);
    return 0;
}
