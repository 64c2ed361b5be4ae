/* SPDX-License-Identifier: Apache-2.0
 * Dense linear systems: tacit Solve(A, B), batched over leading axes. */
#include <dlfcn.h>
#include <math.h>
#include <string.h>

#include "op/values.h"
#include "op/vjp.h"

typedef struct solve {
    int64_t batch, n, columns;
} solve;

/* B is [..., n] (one right side) or [..., n, k]. */
static tacit_status solve_read(const ir_shape *a, const ir_shape *b, solve *s, tacit_error *err)
{
    char at[IR_SHAPE_TEXT], bt[IR_SHAPE_TEXT];
    bool fits = a->rank >= 2 && (b->rank == a->rank || b->rank == a->rank - 1);
    *s = (solve){.batch = 1, .columns = 1};
    if (fits) {
        s->n = a->dims[a->rank - 1];
        s->columns = b->rank == a->rank ? b->dims[b->rank - 1] : 1;
        fits = a->dims[a->rank - 2] == s->n && b->dims[a->rank - 2] == s->n;
    }
    for (int32_t i = 0; fits && i < a->rank - 2; i++) {
        fits = a->dims[i] == b->dims[i];
        s->batch *= a->dims[i];
    }
    return fits ? TACIT_OK
                : error_set(err, TACIT_ERR_SHAPE, "matrices %s and right sides %s do not fit",
                            ir_shape_text(a, at), ir_shape_text(b, bt));
}

static tacit_status solve_infer(op_infer *c)
{
    solve s;
    TRY(op_need_float(c, 0));
    TRY(op_check_same_dtype(c));
    TRY(solve_read(&c->in[0]->shape, &c->in[1]->shape, &s, c->err));
    op_set_out(c, 0, c->in[0]->dtype, &c->in[1]->shape);
    return TACIT_OK;
}

/* LU with partial pivoting, in place; b becomes x. False: a pivot is zero. */
static bool eliminate(int64_t n, int64_t k, double *a, double *b)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t pivot = i;
        for (int64_t r = i + 1; r < n; r++)
            if (fabs(a[r * n + i]) > fabs(a[pivot * n + i]))
                pivot = r;
        if (a[pivot * n + i] == 0)
            return false;
        for (int64_t j = 0; pivot != i && j < n + k; j++) {
            double *x = j < n ? &a[i * n + j] : &b[i * k + j - n];
            double *y = j < n ? &a[pivot * n + j] : &b[pivot * k + j - n], t = *x;
            *x = *y;
            *y = t;
        }
        for (int64_t r = i + 1; r < n; r++) {
            double f = a[r * n + i] / a[i * n + i];
            for (int64_t j = i + 1; j < n; j++)
                a[r * n + j] -= f * a[i * n + j];
            for (int64_t j = 0; j < k; j++)
                b[r * k + j] -= f * b[i * k + j];
        }
    }
    for (int64_t i = n; i-- > 0;)
        for (int64_t j = 0; j < k; j++) {
            for (int64_t r = i + 1; r < n; r++)
                b[i * k + j] -= a[i * n + r] * b[r * k + j];
            b[i * k + j] /= a[i * n + i];
        }
    return true;
}

/* LAPACKE_dgesv, row-major. Loaded when the first large system comes, so that programs which solve
 * nothing do not carry a BLAS; loading again is only a look-up. */
typedef int dgesv_fn(int layout, int n, int k, double *a, int lda, int *pivots, double *b, int ldb);
enum { ROW_MAJOR = 101, SMALL = 64 };

static dgesv_fn *find_dgesv(void)
{
    void *library = dlopen("liblapacke.so.3", RTLD_LAZY | RTLD_LOCAL);
    void *symbol = library ? dlsym(library, "LAPACKE_dgesv") : NULL;
    dgesv_fn *dgesv;
    memcpy(&dgesv, &symbol, sizeof dgesv); /* ISO C has no cast from data to function pointers */
    return dgesv;
}

/* Large systems go to LAPACK where it is present; it refuses NaN, which then spreads by hand. */
static bool solve_one(op_eval *c, int64_t n, int64_t k, double *a, double *b)
{
    bool large = n > SMALL && n < INT32_MAX && k < INT32_MAX;
    int *pivots = large ? op_eval_scratch(c, (size_t)n * sizeof *pivots) : NULL;
    dgesv_fn *dgesv = pivots ? find_dgesv() : NULL;
    int info = dgesv ? dgesv(ROW_MAJOR, (int)n, (int)k, a, (int)n, pivots, b, (int)k) : -1;
    return info >= 0 ? info == 0 : eliminate(n, k, a, b);
}

static tacit_status solve_eval(op_eval *c)
{
    solve s;
    double *a, *b;
    TRY(solve_read(&op_in(c, 0)->shape, &op_in(c, 1)->shape, &s, c->err));
    TRY(op_input_f64(c, 0, &a));
    TRY(op_input_f64(c, 1, &b));
    for (int64_t i = 0; i < s.batch && s.columns > 0; i++)
        if (!solve_one(c, s.n, s.columns, a + i * s.n * s.n, b + i * s.n * s.columns))
            return error_set(c->err, TACIT_ERR_VALUE, "matrix %lld of size %lld is singular",
                             (long long)i, (long long)s.n);
    op_output_f64(c, 0, b);
    return TACIT_OK;
}

const op_def op_rows_linalg[] = {
    {.name = "Solve",
     .domain = "tacit",
     .min_in = 2,
     .max_in = 2,
     .min_out = 1,
     .max_out = 1,
     .infer = solve_infer,
     .eval = solve_eval,
     .vjp = op_vjp_solve,
     .batch = op_batch_solve},
    {0},
};
