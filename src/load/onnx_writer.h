/* SPDX-License-Identifier: Apache-2.0
 * What the parts of the ONNX writer share. */
#ifndef LOAD_ONNX_WRITER_H
#define LOAD_ONNX_WRITER_H

#include "load/load.h"
#include "load/wire_write.h"

/* Names of one graph's values in the file, by value id. */
typedef struct write_scope {
    const struct write_scope *parent;
    const ir_graph *graph;
    const char **names;
} write_scope;

typedef struct onnx_writer {
    arena *scratch;
    const ir_graph *top; /* its symbols name dims */
    map taken;           /* every value name in the file: subgraphs must not reuse outer names */
    uint32_t fresh;
    tacit_error *err;
} onnx_writer;

/* Everything of a TensorProto except its data; string data is complete. */
void onnx_put_tensor_head(sbuf *b, const ir_tensor *t, const char *name);
/* A whole TensorProto as field `field`. */
void onnx_put_tensor(sbuf *b, uint32_t field, const ir_tensor *t, const char *name);
/* A ValueInfoProto as field `field`. */
void onnx_put_value_info(const onnx_writer *w, sbuf *b, uint32_t field, const char *name,
                         const ir_type *type);
void onnx_put_type(const onnx_writer *w, sbuf *b, uint32_t field, const ir_type *type);
/* Everything of a GraphProto except its initializers. */
tacit_status onnx_put_graph(onnx_writer *w, sbuf *b, const write_scope *scope);
/* Names for the values of `g`, as a scope inside `parent`. `captured` are the names of the outer
 * values behind g->captures. */
tacit_status onnx_scope_open(onnx_writer *w, write_scope *s, const ir_graph *g,
                             const write_scope *parent, const char *const *captured);
/* The lowest opset (from 22 on) and IR version that hold all that the graph uses. */
int64_t onnx_opset_needed(const ir_graph *g);
int64_t onnx_ir_version(int64_t opset);

#endif
