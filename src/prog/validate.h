/* SPDX-License-Identifier: Apache-2.0
 * Checks between the stages of compiling, as rows {phase, name, check}. The severity belongs to the
 * finding: `strict` fails on warnings, `normal` on errors, `none` runs nothing. */
#ifndef PROG_VALIDATE_H
#define PROG_VALIDATE_H

#include "prog/program.h"

typedef enum validate_phase {
    VALIDATE_LOADED,  /* the graph as loaded, bound and inferred */
    VALIDATE_PASSED,  /* after the passes */
    VALIDATE_PLAN,    /* views, order, offsets */
    VALIDATE_PROGRAM, /* thunks with resolved arguments, before execution */
} validate_phase;

typedef enum validate_severity {
    VALIDATE_ERROR,
    VALIDATE_WARNING,
    VALIDATE_INFO
} validate_severity;

typedef struct validate_run {
    const ir_graph *graph;
    const prog_program *program; /* NULL before planning */
    validate_phase phase;
    tacit_validate mode;
    const tacit_log *log;
    const char *check;   /* the row that is speaking */
    tacit_status status; /* of the first finding that fails */
    tacit_error *err;
} validate_run;

typedef struct validate_def {
    uint32_t phases; /* bit set of validate_phase */
    const char *name;
    void (*check)(validate_run *r);
} validate_def;

/* Rows in order; NULL past the last. */
const validate_def *validate_at(uint32_t index);
/* What a check calls for each thing it finds. */
void validate_find(validate_run *r, validate_severity severity, const char *format, ...)
    PRINTF_LIKE(3, 4);

tacit_status validate_graph(const ir_graph *g, validate_phase phase, tacit_validate mode,
                            const tacit_log *log, tacit_error *err);
tacit_status prog_validate(const prog_program *p, validate_phase phase, tacit_error *err);

#endif
