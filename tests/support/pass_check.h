/* SPDX-License-Identifier: Apache-2.0
 * Checking passes: parse a graph, run passes, and hold the result to the interpreter's answer on
 * the graph as it was. */
#ifndef SUPPORT_PASS_CHECK_H
#define SUPPORT_PASS_CHECK_H

#include "pass/pass.h"

/* Parsed, resolved and inferred; fails the test otherwise. */
ir_graph *pass_check_parse(arena *a, const char *text, size_t length);
/* Sorted, resolved and inferred in place. */
void pass_check_prepare(ir_graph *g);
/* The optimised graph, after comparing it with `g` on random inputs: every element within
 * `tolerance` (relative to the larger of 1 and the value). `only` and `disabled` may be NULL. */
ir_graph *pass_check_run(const ir_graph *g, const char *only, const char *disabled,
                         double tolerance, pass_report *report);
/* Nodes of this type ("Softmax", "tacit.Attention"). */
uint32_t pass_check_count(const ir_graph *g, const char *type);
/* The first node of this type; fails the test when there is none. */
ir_node *pass_check_find(const ir_graph *g, const char *type);
/* Some node has a note with this text. */
bool pass_check_noted(const ir_graph *g, const char *text);

#endif
