/* SPDX-License-Identifier: Apache-2.0
 * The graph as text: pleasant to read, and parses back to the same graph. */
#ifndef IR_TEXT_H
#define IR_TEXT_H

#include "ir/graph.h"

typedef struct ir_text_options {
    bool elide_weights; /* constants of more than 16 elements print as "…" and lose their data */
    bool notes;         /* provenance as comments */
} ir_text_options;

void ir_graph_print(const ir_graph *g, const ir_text_options *options, sbuf *out);
/* Errors name line and column. Ops are not resolved here (op_resolve does that). */
tacit_status ir_graph_parse(const char *text, size_t length, arena *memory, ir_graph **out,
                            tacit_error *err);
/* Same structure, names, types, attributes and constant bytes; `why` (may be NULL) gets the first
 * difference. */
bool ir_graph_equal(const ir_graph *a, const ir_graph *b, sbuf *why);

#endif
