/* SPDX-License-Identifier: Apache-2.0
 *
 * Lowering one node to thunks. A `lower` rule chooses kernels, fills their arguments and says which
 * pointer fields stand for which operand; it runs before the memory plan, so pointers are bound
 * later. Everything it asks for (scratch, packed constants) is thereby known before planning.
 */
#ifndef OP_LOWER_H
#define OP_LOWER_H

#include "base/cpu.h"
#include "base/file.h"
#include "base/slab.h"
#include "cpu/kernel.h"
#include "op/op.h"

typedef enum op_bind_kind {
    OP_BIND_INPUT,   /* index: node input */
    OP_BIND_OUTPUT,  /* index: node output */
    OP_BIND_SCRATCH, /* byte_offset into the node's scratch */
    OP_BIND_FAULT,   /* the session's cpu_fault */
} op_bind_kind;

/* One pointer field in a thunk's arguments. Tile t touches bytes
 * [t·tile_stride, t·tile_stride + tile_bytes) after byte_offset; tile_bytes 0: any tile, anywhere.
 */
typedef struct op_bind {
    uint32_t field; /* offset of the pointer in the arguments */
    op_bind_kind kind;
    uint32_t index;
    bool write;
    int64_t byte_offset;
    uint64_t tile_stride, tile_bytes;
} op_bind;

typedef struct op_thunk {
    cpu_kernel fn;
    const char *kernel; /* its name: "softmax_f32_avx512" */
    void *args;         /* plain data, in the lowering's arena */
    uint32_t args_size;
    uint32_t tiles;
    uint32_t together; /* tiles that are better run in one call, about; 0: any number */
    const ir_node *node;
    double flops;
    uint64_t bytes; /* read and written */
    /* Tile t reads stream_tile bytes of constants from stream + t·stream_tile on; NULL: others. */
    const void *stream;
    size_t stream_tile;
    VEC(op_bind) binds;
} op_thunk;

/* A byte range written once at compile time and read by kernels: packed weights, tables. */
typedef struct op_packed {
    void *data;
    size_t bytes;
    bool later; /* written by jobs alone */
} op_packed;

/* Packing that nobody needs before the node runs: jobs may run in any order, on any thread. A
 * job reads [first, first + bytes) of a weight, which is not read again by this node. The weight
 * may be late (ir/recipe.h): its address is put into the arguments when the job runs. */
typedef struct op_job {
    cpu_kernel fn;
    void *args;
    size_t args_size;
    size_t key_size; /* of the arguments: what packing depends on, addresses in packed memory among
                        it; others come behind. 0: all */
    uint32_t begin, end; /* tiles */
    const ir_tensor *weight;
    const ir_tensor *beside[2]; /* other constants that are read; NULL: none */
    size_t field;               /* of the arguments: where the address of the weight belongs… */
    size_t offset;              /* …so many bytes behind its begin */
    size_t first, bytes;
    bool second; /* after those of its node that are not; these come before it */
    bool last;   /* `second`, and after all others of its node, of which there are some */
    /* All of the weight is resident until its node's jobs are done: they come early, while as many
     * bytes of others are still to be packed. */
    bool ahead;
} op_job;
typedef VEC(op_job) op_jobs;

/* The owner of mapped weights. Told that bytes were packed and are not read again; asked where they
 * lie in a file, to be read without becoming resident: false where they cannot. */
typedef void op_drop_fn(void *context, const void *data, size_t bytes);
typedef bool op_place_fn(void *context, const void *data, size_t bytes, file_place *out);

struct op_lower {
    ir_graph *graph;
    ir_node *node;
    const op_operand *in; /* n_inputs; value NULL: absent. Strides already view-aware */
    const op_operand *out;
    cpu_features cpu;
    arena *memory;
    const tacit_allocator *allocator;
    VEC(op_thunk *) thunks;
    size_t scratch; /* bytes, live while the node's thunks run */
    VEC(op_packed) packed;
    slab *constants, *weights; /* where they lie; weights: for later, NULL: with the others */
    size_t constant_bytes;     /* of the whole program, about */
    op_drop_fn *drop;          /* may be NULL, as the next */
    op_place_fn *place;
    void *owner;              /* their context */
    op_jobs *jobs;            /* NULL: op_lower_later works at once */
    bool serial;              /* thunks run one after another, on one thread */
    bool batch_invariant;     /* sums of a row are made in the same order whatever the batch */
    bool plain_sums;          /* term by term: no way with fewer multiplications */
    struct op_tuning *tuning; /* measured choices; may be NULL */
    tacit_error *err;
};

/* Add a thunk of `tiles` tiles; returns its zeroed arguments to fill, or NULL (no memory). */
void *op_lower_thunk(op_lower *c, const char *kernel, cpu_kernel fn, size_t args_size,
                     uint32_t tiles);
/* Bind pointer fields of the newest thunk. `field` is offsetof. The tiled form states which bytes
 * tile t touches: lets the parallel executor start tile t early. */
tacit_status op_lower_in(op_lower *c, size_t field, uint32_t input);
tacit_status op_lower_in_tiled(op_lower *c, size_t field, uint32_t input, uint64_t tile_stride,
                               uint64_t tile_bytes);
tacit_status op_lower_out(op_lower *c, size_t field, uint32_t output);
tacit_status op_lower_out_tiled(op_lower *c, size_t field, uint32_t output, uint64_t tile_stride,
                                uint64_t tile_bytes);
tacit_status op_lower_fault(op_lower *c, size_t field);
/* Reserve `bytes` of node scratch (64-byte aligned) and bind `field` to it; `write` as used by the
 * newest thunk. To let two thunks share a piece, pass the offset returned by op_lower_reserve. */
size_t op_lower_reserve(op_lower *c, size_t bytes);
tacit_status op_lower_scratch(op_lower *c, size_t field, size_t offset, bool write);
/* The pointer bound last points so many bytes further on. */
void op_lower_behind(op_lower *c, int64_t bytes);
/* Work of the newest thunk, for profiles and scheduling. */
void op_lower_cost(op_lower *c, double flops, uint64_t bytes);
/* A call of the newest thunk has work that its tiles share: it should run about `tiles` of them. */
void op_lower_together(op_lower *c, uint32_t tiles);
/* Are so many bytes too many for the largest cache, and the program's constants, so that each run
 * reads them from memory? */
bool op_lower_exceeds_cache(const op_lower *c, uint64_t bytes);
bool op_lower_exceeds_core(const op_lower *c, uint64_t bytes); /* for a core's own cache */
bool op_lower_streams(const op_lower *c);
/* Tiles of the newest thunk read these constants, each its own, one behind the other. What comes
 * from memory is asked for by threads that wait. */
void op_lower_stream(op_lower *c, const void *data, size_t tile_bytes);
/* Memory for packed constants: owned by the program, 64-byte aligned. NULL: no memory. */
void *op_lower_pack(op_lower *c, size_t bytes);
/* The same for what op_lower_later writes and nothing else: it may be there already, and must not
 * be written before. */
void *op_lower_pack_later(op_lower *c, size_t bytes);
/* A job that reads all of the constant operand `input`, whose address belongs at `field` of the
 * arguments; it has no tiles yet. */
op_job op_lower_job(const op_lower *c, uint32_t input, cpu_kernel fn, void *args, size_t args_size,
                    size_t field);
/* Runs a packing kernel, now or with all the others; the arguments are copied. */
tacit_status op_lower_later(op_lower *c, const op_job *job);
/* The same in pieces of `each` tiles, which are panels: tile t reads rows [t·width, (t + 1)·width),
 * where there are so many, of `rows` rows of `row` bytes from job->offset on. */
tacit_status op_lower_panels_later(op_lower *c, const op_job *job, int64_t width, int64_t rows,
                                   size_t row, int64_t each);
/* What a thread that runs jobs has: memory of job->bytes where the weight is late, and the part of
 * a file that its jobs have read, whose pages go together: whenever pages go all processors are
 * interrupted. */
typedef struct op_room {
    void *memory;
    const char *read, *end; /* NULL: nothing */
} op_room;
void op_job_run(const op_lower *c, const op_job *job, op_room *room);
/* After the last job: the pages that are left go. */
void op_room_close(const op_lower *c, op_room *room);
/* Are the contents of a constant operand at hand, or can be made when they are packed? */
bool op_lower_is_weight(const op_lower *c, uint32_t input);
/* The constant operand `input` has been packed and its original will not be read again. */
void op_lower_packed_away(op_lower *c, uint32_t input);
/* The weight has been looked at: its pages may go until it is packed. */
void op_lower_looked_at(const op_lower *c, uint32_t input);
/* Which of the ways 1 … `ways` to take for the shape that the key names: what was measured on this
 * machine, 0 where nothing was. */
int op_lower_choice(op_lower *c, uint32_t ways, const char *key, ...) PRINTF_LIKE(3, 4);
/* Why this kernel: shown by `tacit explain`. */
void op_lower_note(op_lower *c, const char *format, ...) PRINTF_LIKE(2, 3);
/* For lower rules that find no kernel for these types: the program falls back to the evaluator. */
#define OP_LOWER_NO_KERNEL TACIT_ERR_UNSUPPORTED

/* --- a node by itself, without a program (op/kernel_run.c) ------------------------------------ */
/* Operands of c->node, each in memory of its own, initializers known. False: not all have static
 * shapes, or there is no memory. */
bool op_lower_alone(op_lower *c);
/* Runs a node of static shapes by the kernels that lowering picks for it, on this thread; outputs
 * lie in `memory`. OP_LOWER_NO_KERNEL: there are none, or they refuse what they read. */
tacit_status op_run_kernels(ir_graph *g, ir_node *node, const ir_tensor *const *in, ir_tensor *out,
                            arena *memory, tacit_error *err);

#endif
