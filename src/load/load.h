/* SPDX-License-Identifier: Apache-2.0
 *
 * Model and tensor files in and out: ONNX, safetensors, .npy, .npz.
 *
 * Files are hostile until proven otherwise: every reader is bounded by its input, refuses what does
 * not add up and says which file, node or tensor and why. Tensor bytes stay where they are in the
 * mapped file wherever their alignment allows it; halves of ONNX files wherever they lie.
 */
#ifndef LOAD_LOAD_H
#define LOAD_LOAD_H

#include "base/file.h"
#include "op/op.h"

/* Files that tensors of a graph still point into (external data); a list in the arena. */
typedef struct load_file {
    struct load_file *next;
    const char *path;
    file_map map;
} load_file;
/* A tensor that could not stay where it lies, and which bytes of which file it was made from. */
typedef struct load_moved {
    const unsigned char *data;
    size_t bytes, offset;
    const file_map *file;
} load_moved;
typedef struct load_files {
    load_file *first;
    VEC(load_moved) copies; /* by address */
} load_files;
/* Call once, after the last use of the graph and before its arena is freed. */
void load_files_close(load_files *files);
/* The copy that these bytes are part of; NULL: of none. */
const load_moved *load_moved_of(const load_files *files, const void *data, size_t bytes);

typedef struct load_options {
    const char *name; /* the file, for messages; may be NULL */
    const char *dir;  /* where external tensors may lie; NULL: there are none */
    const op_registry *registry;
    const file_map
        *map; /* the map that `data` is, if it is one: pages of copied tensors are let go */
} load_options;

/* --- ONNX ------------------------------------------------------------------------------------- */
/* `data` must outlive the graph: weights point into it. `files` receives the maps of external
 * data, also on failure; the caller closes them. Nodes are the newest ONNX forms, functions are
 * inlined, Constant nodes are initializers; ops without a row keep op NULL. */
tacit_status load_onnx(const void *data, size_t size, const load_options *options, arena *memory,
                       load_files *files, ir_graph **out, tacit_error *err);
/* Whether the bytes look like an ONNX model (to tell formats apart, not a promise). */
bool load_onnx_probe(const void *data, size_t size);
/* One serialized TensorProto, SequenceProto or OptionalProto (as `kind` says). Numeric data may
 * point into `data`. */
tacit_status load_onnx_value(const void *data, size_t size, ir_kind kind, arena *memory,
                             ir_tensor *out, tacit_error *err);

/* Writes `g` as an ONNX model that other runtimes read: the lowest opset from 22 on that has all it
 * uses. Own fused ops are decomposed first. Weights beyond 2 GB go to PATH.data; all other files
 * hold them inside, each aligned so that load_onnx uses it in place. Whole or not at all. */
tacit_status load_onnx_write(const ir_graph *g, const char *path, tacit_error *err);
/* The same into a buffer (at most 2 GB). */
tacit_status load_onnx_encode(const ir_graph *g, sbuf *out, tacit_error *err);
/* One TensorProto, SequenceProto or OptionalProto appended to `out`. */
tacit_status load_onnx_encode_value(const ir_tensor *t, sbuf *out, tacit_error *err);

/* --- tensors by name -------------------------------------------------------------------------- */
typedef struct load_named {
    const char *name;
    ir_tensor tensor;
} load_named;
typedef struct load_pair {
    const char *key, *value;
} load_pair;
typedef struct load_tensors {
    VEC(load_named) items;
    VEC(load_pair) metadata; /* safetensors only */
} load_tensors;
const ir_tensor *load_tensors_find(const load_tensors *t, const char *name); /* or NULL */

/* safetensors. Data lies in place in `data`, which must outlive the tensors (dtypes whose alignment
 * the file does not give are copied). */
tacit_status load_safetensors(const void *data, size_t size, arena *memory, load_tensors *out,
                              tacit_error *err);
bool load_safetensors_probe(const void *data, size_t size);
bool load_safetensors_holds(tacit_dtype dtype);
/* Tensors start at multiples of 64. */
tacit_status load_safetensors_write(const load_tensors *t, const char *path, tacit_error *err);

/* A whole model as safetensors: the graph's text in the metadata, the weights as tensors, used in
 * place. Ops are not resolved and nodes not sorted. */
tacit_status load_archive(const void *data, size_t size, arena *memory, ir_graph **out,
                          tacit_error *err);
tacit_status load_archive_write(const ir_graph *g, const char *path, tacit_error *err);

/* .npy: one tensor, format versions 1 to 3, either byte order, C or Fortran order. */
tacit_status load_npy(const void *data, size_t size, arena *memory, ir_tensor *out,
                      tacit_error *err);
tacit_status load_npy_write(const ir_tensor *t, const char *path, tacit_error *err);
tacit_status load_npy_encode(const ir_tensor *t, sbuf *out, tacit_error *err);

/* .npz: stored members in place, deflated ones (when built with zlib) inflated into `memory`. What
 * inflates beyond 1 GiB and 200 times the file is refused. */
tacit_status load_npz(const void *data, size_t size, arena *memory, load_tensors *out,
                      tacit_error *err);
tacit_status load_npz_write(const load_tensors *t, const char *path, tacit_error *err);

#endif
