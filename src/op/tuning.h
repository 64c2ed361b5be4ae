/* SPDX-License-Identifier: Apache-2.0
 * What was measured on this machine: which of several ways to compute a shape is the fastest. A
 * rule with ways to choose from asks op_lower_choice (op/lower.h); without an answer it takes its
 * own. Kept in a text file, one line each: machine, key and way, separated by tabs. */
#ifndef OP_TUNING_H
#define OP_TUNING_H

#include "base/arena.h"
#include "base/cpu.h"
#include "base/sbuf.h"
#include "base/vec.h"

enum { OP_TUNING_KEY = 96 };

typedef struct op_tuning_line {
    const char *machine, *key;
    int way; /* 1 …; 0: the rule's own choice */
} op_tuning_line;

/* A place in a program where a way was chosen. */
typedef struct op_tuning_point {
    const char *node, *key;
    uint32_t ways;
} op_tuning_point;

typedef struct op_tuning {
    arena memory;
    const char *machine; /* processor and ISA; NULL while there are no lines */
    VEC(op_tuning_line) lines;
    VEC(op_tuning_point) points; /* of the last program compiled while `record` was set */
    bool record;
    int force; /* not -1: this way wherever there is one */
} op_tuning;

void op_tuning_init(op_tuning *t, const tacit_allocator *allocator);
void op_tuning_free(op_tuning *t);
/* Reads lines; those that are not understood are left out: the file is advice. False: out of
 * memory. */
bool op_tuning_read(op_tuning *t, const char *text, size_t size);
void op_tuning_write(const op_tuning *t, sbuf *out);
/* The way for this machine, or 0. */
int op_tuning_find(const op_tuning *t, const char *key);
bool op_tuning_set(op_tuning *t, const char *key, int way);

#endif
