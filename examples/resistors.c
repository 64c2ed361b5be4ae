/* SPDX-License-Identifier: Apache-2.0
 * Five resistors between three nodes and ground. Kirchhoff's law makes the node voltages v the
 * solution of A(g)·v = i, where A is made of the conductances g. How does the voltage of node 3
 * answer to each of them? One gradient, which costs one more solve, against ten more circuits. */
#include <math.h>
#include <stdio.h>

#include <tacit/tacit.h>

enum { EDGES = 5 };

/* A row per resistor: which nodes it joins (ground has no column). */
static const char circuit[] =
    "tacit 1\n"
    "graph \"resistors\" {\n"
    "  in %g : f64[5]\n"
    "  const %M : f64[5,3] = [1, 0, 0, 1, -1, 0, 0, 1, 0, 0, 1, -1, 0, 0, 1]\n"
    "  const %i : f64[3] = [1, 0, 0.5]\n"
    "  const %probe : f64[3] = [0, 0, 1]\n"
    "  const %column : i64[1] = [1]\n"
    "  %gc = Unsqueeze(%g, %column) @gc\n"
    "  %gM = Mul(%gc, %M) @gM\n"
    "  %Mt = Transpose(%M) @Mt\n"
    "  %A = MatMul(%Mt, %gM) @A\n"
    "  %v = tacit.Solve(%A, %i) @v\n"
    "  %p = Mul(%v, %probe) @p\n"
    "  %volts = ReduceSum(%p) keepdims=0 @volts\n"
    "  out %volts\n"
    "}\n";

static tacit_tensor numbers(double *data, int64_t count, int32_t rank)
{
    return (tacit_tensor){.dtype = TACIT_F64,
                          .rank = rank,
                          .dims = {count},
                          .data = data,
                          .bytes = (size_t)count * sizeof *data};
}

/* Runs the model on conductances g; the outputs are the voltage and, if asked for, its slopes. */
static tacit_status solve(const tacit_program *program, double *g, double *volts, double *slopes,
                          tacit_error *err)
{
    tacit_session *session = NULL;
    tacit_tensor in = numbers(g, EDGES, 1);
    tacit_tensor out[2] = {numbers(volts, 1, 0), numbers(slopes, EDGES, 1)};
    tacit_status status = tacit_session_create(program, &session, err);
    if (status == TACIT_OK)
        status = tacit_run(session, &in, 1, out, slopes ? 2 : 1, err);
    tacit_session_free(session);
    return status;
}

/* The largest difference between the slopes and central differences, or -1. */
static double check(const tacit_program *plain, double *g, const double *slopes, tacit_error *err)
{
    const double h = 1e-6;
    double worst = 0;
    for (int k = 0; k < EDGES; k++) {
        double keep = g[k], up, down;
        g[k] = keep + h;
        if (solve(plain, g, &up, NULL, err) != TACIT_OK)
            return -1;
        g[k] = keep - h;
        if (solve(plain, g, &down, NULL, err) != TACIT_OK)
            return -1;
        g[k] = keep;
        worst = fmax(worst, fabs((up - down) / (2 * h) - slopes[k]));
    }
    return worst;
}

int main(void)
{
    const char *wrt[] = {"g"};
    tacit_grad_options options = {.with_loss = 1, .seed_ones = 1};
    double g[EDGES] = {1, 0.5, 0.25, 2, 0.8}, volts = 0, slopes[EDGES] = {0}, worst = -1;
    tacit_model *model = NULL, *gradient = NULL;
    tacit_program *plain = NULL, *both = NULL;
    tacit_error err;
    if (tacit_model_load_memory(circuit, sizeof circuit - 1, NULL, &model, &err) == TACIT_OK &&
        tacit_grad(model, 1, wrt, &options, &gradient, &err) == TACIT_OK &&
        tacit_compile(model, NULL, &plain, &err) == TACIT_OK &&
        tacit_compile(gradient, NULL, &both, &err) == TACIT_OK &&
        solve(both, g, &volts, slopes, &err) == TACIT_OK)
        worst = check(plain, g, slopes, &err);
    if (worst < 0) {
        fprintf(stderr, "resistors: %s\n", err.message);
    } else {
        printf("node 3: %.6f V\n", volts);
        for (int k = 0; k < EDGES; k++)
            printf("resistor %d: %+.6f V per siemens\n", k + 1, slopes[k]);
        printf("differences agree to %.0e\n", worst > 1e-9 ? worst : 1e-9);
    }
    tacit_program_free(both);
    tacit_program_free(plain);
    tacit_model_free(gradient);
    tacit_model_free(model);
    return worst < 0 || worst > 1e-7;
}
