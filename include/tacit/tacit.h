/* SPDX-License-Identifier: Apache-2.0
 *
 * tacit/tacit.h: load a model, compile it once, run it many times.
 *
 *     tacit_model *model;      the graph as it was loaded or built; immutable once compiled
 *     tacit_program *program;  the compiled form for one choice of shapes and options; immutable
 *     tacit_session *session;  one caller's memory for running a program; cheap, one per thread
 *
 *     tacit_model_load("model.onnx", NULL, &model, &err);
 *     tacit_compile(model, NULL, &program, &err);
 *     tacit_session_create(program, &session, &err);
 *     tacit_run(session, inputs, 1, outputs, 1, &err);
 *
 * Ownership: every object is released by its own _free function, in any order: a program keeps
 * what it needs of its model, a session of its program (reference counts inside). Threads: models
 * and programs may be shared freely; a session is used by one thread at a time. Nothing is global.
 * Options structs: zero them (or pass NULL) for the defaults.
 */
#ifndef TACIT_TACIT_H
#define TACIT_TACIT_H

#include "tacit/status.h"
#include "tacit/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tacit_model tacit_model;
typedef struct tacit_program tacit_program;
typedef struct tacit_session tacit_session;
typedef struct tacit_tuning tacit_tuning;

/* "0.1.0" */
TACIT_API const char *tacit_version(void);

/* Values are tensors; ONNX has sequences, optionals and maps too. */
typedef enum tacit_kind {
    TACIT_KIND_TENSOR,
    TACIT_KIND_SEQUENCE, /* items: tensors of one element type */
    TACIT_KIND_OPTIONAL, /* items: none, or one tensor or sequence */
    TACIT_KIND_MAP       /* items: a tensor of keys and one of values, equally long */
} tacit_kind;

/* A tensor: dense, row-major. For outputs whose shape only the data can tell, pass data NULL: Tacit
 * fills in the shape and lends memory that lives until the session's next run; there it may be
 * given as it is, and is lent anew. Values of other kinds are always lent. An optional input may
 * also be given as the value itself. */
typedef struct tacit_tensor {
    const char *name; /* NULL: by position */
    tacit_dtype dtype;
    int32_t rank;
    int64_t dims[TACIT_MAX_RANK];
    void *data;
    size_t bytes;
    tacit_kind kind;
    struct tacit_tensor *items; /* of kinds other than a tensor */
    uint32_t n_items;
} tacit_tensor;

/* Element of a tensor of strings. */
typedef struct tacit_string {
    const char *data;
    uint64_t length;
} tacit_string;

/* ------------------------------------------------------------------------------ extend ------- */

/* One use of a custom operator, as its callbacks see it. */
typedef struct tacit_custom_call {
    const tacit_tensor *inputs; /* absent ones have dtype TACIT_DTYPE_NONE */
    uint32_t n_inputs;
    tacit_tensor *outputs;
    uint32_t n_outputs;
    const void *node; /* for tacit_custom_int and the like */
} tacit_custom_call;

typedef struct tacit_builder tacit_builder; /* see "build" below */
typedef uint32_t tacit_value;               /* a value of a builder; 0: none */

/* One use of a custom operator in a graph that is being transformed. A rule adds nodes with the
 * builder, which belongs to Tacit: it must be neither finished nor freed, and has no inputs or
 * outputs to add. */
typedef struct tacit_custom_rule {
    const tacit_custom_call *call; /* types and attributes of the node as it was; no data */
    tacit_builder *builder;
    const tacit_value *inputs;  /* of the node; 0: absent. For `batch`: the new inputs */
    const tacit_value *outputs; /* of the node; NULL for `batch` */
    /* vjp: cotangent of each output. jvp: tangent of each input. 0: zero. NULL for `batch`. */
    const tacit_value *seeds;
    const unsigned char *batched; /* batch: 1 for inputs with a leading axis of batch_size */
    int64_t batch_size;
    /* To be set. vjp: cotangent of each input, jvp: tangent of each output (0: zero), of that
     * one's type. batch: every output, with the leading axis. */
    tacit_value *results;
} tacit_custom_rule;

/* An operator of the caller's own. The callbacks may be called from any thread that compiles or
 * runs the model, at the same time; the struct must outlive every model that uses it. */
typedef struct tacit_custom_op {
    const char *domain; /* not "" */
    const char *name;
    uint32_t min_inputs, max_inputs, n_outputs;
    void *context;
    /* Sets dtype, rank and dims of every output from the inputs' (whose data may be NULL). */
    tacit_status (*infer)(void *context, const tacit_custom_call *call, tacit_error *err);
    /* Fills the outputs' data. */
    tacit_status (*run)(void *context, const tacit_custom_call *call, tacit_error *err);
    /* Rules of the transforms; each may be NULL. Without vjp the operator stops tacit_grad with an
     * error; without jvp tangents follow from the vjp; without batch the operator runs once for
     * every entry of the batch. */
    tacit_status (*vjp)(void *context, const tacit_custom_rule *rule, tacit_error *err);
    tacit_status (*jvp)(void *context, const tacit_custom_rule *rule, tacit_error *err);
    tacit_status (*batch)(void *context, const tacit_custom_rule *rule, tacit_error *err);
} tacit_custom_op;

/* Attributes of the node; `fallback` when absent. */
TACIT_API int64_t tacit_custom_int(const tacit_custom_call *call, const char *name,
                                   int64_t fallback);
TACIT_API double tacit_custom_float(const tacit_custom_call *call, const char *name,
                                    double fallback);
TACIT_API const char *tacit_custom_string(const tacit_custom_call *call, const char *name,
                                          const char *fallback);
/* The bytes of a text attribute, zeros included, or of a tensor attribute; NULL when absent. */
TACIT_API const void *tacit_custom_bytes(const tacit_custom_call *call, const char *name,
                                         size_t *size);

/* ------------------------------------------------------------------------------- load -------- */

typedef struct tacit_load_options {
    const tacit_allocator *allocator; /* must outlive the model and all made from it */
    const tacit_log *log;
    const char *external_data_dir; /* for models in memory: where external tensors may lie */
    const tacit_custom_op *const *custom_ops; /* looked up before the built-in ones */
    uint32_t n_custom_ops;
} tacit_load_options;

/* The format (ONNX, GGUF, Tacit text, safetensors-with-graph) is told by the contents. The file
 * stays mapped: weights are used in place. */
TACIT_API TACIT_MUST_USE tacit_status tacit_model_load(const char *path,
                                                       const tacit_load_options *options,
                                                       tacit_model **out, tacit_error *err);
/* `data` must stay valid and unchanged as long as the model and what is made from it. */
TACIT_API TACIT_MUST_USE tacit_status tacit_model_load_memory(const void *data, size_t size,
                                                              const tacit_load_options *options,
                                                              tacit_model **out, tacit_error *err);
/* The suffix of `path` chooses the format: .onnx, .tacit (text) or .safetensors (the graph's text
 * with its weights). Whole or not at all. */
TACIT_API TACIT_MUST_USE tacit_status tacit_model_save(const tacit_model *model, const char *path,
                                                       tacit_error *err);
TACIT_API void tacit_model_free(tacit_model *model);

/* What a model or program takes and gives. Dims: ≥ 0 a size, -1 a symbol (dim_names[i]) or a size
 * only the data can tell (dim_names[i] NULL). Strings belong to the model or program. */
typedef struct tacit_port {
    const char *name;
    tacit_dtype dtype;
    int32_t rank; /* -1: unknown */
    int64_t dims[TACIT_MAX_RANK];
    const char *dim_names[TACIT_MAX_RANK];
    size_t bytes; /* of a fully known shape, else 0 */
    tacit_kind kind;
} tacit_port;

TACIT_API uint32_t tacit_model_input_count(const tacit_model *model);
TACIT_API uint32_t tacit_model_output_count(const tacit_model *model);
TACIT_API TACIT_MUST_USE tacit_status tacit_model_input(const tacit_model *model, uint32_t index,
                                                        tacit_port *out);
TACIT_API TACIT_MUST_USE tacit_status tacit_model_output(const tacit_model *model, uint32_t index,
                                                         tacit_port *out);
/* What the file says about its model; texts are "" where it says nothing, and belong to the model.
 * `metadata_count` pairs of key and value are read one by one. */
typedef struct tacit_about {
    const char *graph_name, *graph_doc;
    const char *producer, *producer_version, *domain, *doc;
    int64_t version;
    uint32_t metadata_count;
} tacit_about;

TACIT_API void tacit_model_about(const tacit_model *model, tacit_about *out);
TACIT_API TACIT_MUST_USE tacit_status tacit_model_metadata(const tacit_model *model, uint32_t index,
                                                           const char **key, const char **value);
/* Weights, for those who train them: type and contents (`data` may be NULL; it receives NULL where
 * the file's contents were left out). They belong to the model. Halves may begin at an odd address,
 * where the file has them. */
TACIT_API uint32_t tacit_model_weight_count(const tacit_model *model);
TACIT_API TACIT_MUST_USE tacit_status tacit_model_weight(const tacit_model *model, uint32_t index,
                                                         tacit_port *out, const void **data);
/* The graph in text form. Large weights are elided unless `with_weights`. Release the text with
 * tacit_text_free. */
TACIT_API TACIT_MUST_USE tacit_status tacit_model_text(const tacit_model *model, int with_weights,
                                                       char **out, tacit_error *err);
TACIT_API void tacit_text_free(char *text);

/* -------------------------------------------------------------------------- tokenizer -------- */

/* From text to the tokens a language model takes, and back. Immutable: any number of threads may
 * use one. docs/generation.md says which there are. */
typedef struct tacit_tokenizer tacit_tokenizer;

/* Of a GGUF file; it is not needed afterwards. Of the options the allocator counts. */
TACIT_API TACIT_MUST_USE tacit_status tacit_tokenizer_load(const char *path,
                                                           const tacit_load_options *options,
                                                           tacit_tokenizer **out, tacit_error *err);
TACIT_API void tacit_tokenizer_free(tacit_tokenizer *tokenizer);
TACIT_API uint32_t tacit_tokenizer_size(const tacit_tokenizer *tokenizer); /* tokens it knows */

enum {
    TACIT_ENCODE_BARE = 1,    /* without the tokens that begin and end a text */
    TACIT_ENCODE_SPECIAL = 2, /* names of control tokens in the text stand for them */
    TACIT_ENCODE_OPEN = 4     /* without the token that ends a text: more follows */
};
/* The tokens of `length` bytes of UTF-8. *count receives how many there are, of which `ids`
 * receives the first `capacity` (0 to ask for the count alone). */
TACIT_API TACIT_MUST_USE tacit_status tacit_tokenizer_encode(const tacit_tokenizer *tokenizer,
                                                             const char *text, size_t length,
                                                             int flags, int64_t *ids,
                                                             size_t capacity, size_t *count,
                                                             tacit_error *err);
/* The bytes that a token stands for, which may be a part of a character; not terminated. None for
 * control tokens and for ids that are no token. They belong to the tokenizer. */
TACIT_API const char *tacit_tokenizer_piece(const tacit_tokenizer *tokenizer, int64_t id,
                                            size_t *length);
/* 1: the model says by this token that its text has ended. */
TACIT_API int tacit_tokenizer_ends(const tacit_tokenizer *tokenizer, int64_t id);

/* ------------------------------------------------------------------------------ build -------- */

/* A model under construction: values are numbers, 0 an absent optional input. Not thread-safe. */
TACIT_API TACIT_MUST_USE tacit_status tacit_builder_create(const char *name,
                                                           const tacit_load_options *options,
                                                           tacit_builder **out, tacit_error *err);
TACIT_API void tacit_builder_free(tacit_builder *builder);
/* A dim of -1 takes its symbol's name from dim_names[i] (dim_names may be NULL otherwise). Rank -1
 * with TACIT_DTYPE_NONE: nothing is known, for graphs that become attributes (a Scan tells its
 * body). */
TACIT_API tacit_value tacit_builder_input(tacit_builder *b, const char *name, tacit_dtype dtype,
                                          int32_t rank, const int64_t *dims,
                                          const char *const *dim_names);
/* Copies `data`. */
TACIT_API tacit_value tacit_builder_constant(tacit_builder *b, const char *name, tacit_dtype dtype,
                                             int32_t rank, const int64_t *dims, const void *data);
/* Uses `data` in place: it must outlive the model, and models that have it as a part. */
TACIT_API tacit_value tacit_builder_weight(tacit_builder *b, const char *name, tacit_dtype dtype,
                                           int32_t rank, const int64_t *dims, const void *data);
/* Adds a node; "Softmax" or "com.microsoft.FastGelu". Returns its first output; `outputs` (may be
 * NULL when n_outputs is 1) receives all. A failure is remembered: 0 is returned from then on, and
 * tacit_builder_finish reports the first error. */
TACIT_API tacit_value tacit_builder_node(tacit_builder *b, const char *op, uint32_t n_inputs,
                                         const tacit_value *inputs, uint32_t n_outputs,
                                         tacit_value *outputs);
/* A loop over time. The body, a model with static shapes, takes n_carries carries, a slice of each
 * of n_xs scanned values (their axis 0 is time) and n_shared values that are the same in every
 * step; it gives the next carries and then what is stacked along a new axis 0. `inputs` are the
 * first carries, the scanned and the shared values; outputs the last carries and the stacks
 * (n_outputs in all). The body is copied. Attributes: checkpoints = K and recursive = 1 make
 * gradients keep the carries between K pieces only (see docs/transforms.md). */
TACIT_API tacit_value tacit_builder_scan(tacit_builder *b, const tacit_model *body,
                                         uint32_t n_carries, uint32_t n_xs, uint32_t n_shared,
                                         const tacit_value *inputs, uint32_t n_outputs,
                                         tacit_value *outputs);
/* Attributes of the newest node. */
TACIT_API void tacit_builder_attr_int(tacit_builder *b, const char *name, int64_t value);
TACIT_API void tacit_builder_attr_float(tacit_builder *b, const char *name, double value);
TACIT_API void tacit_builder_attr_string(tacit_builder *b, const char *name, const char *value);
TACIT_API void tacit_builder_attr_ints(tacit_builder *b, const char *name, uint32_t count,
                                       const int64_t *values);
/* A copy of `body` as a graph attribute ("body" of Scan, Loop, tacit.Function; "then_branch" of
 * If). Its last n_outer inputs are no parameters: they stand for these values of the builder. */
TACIT_API void tacit_builder_attr_graph(tacit_builder *b, const char *name, const tacit_model *body,
                                        uint32_t n_outer, const tacit_value *outer);
TACIT_API void tacit_builder_output(tacit_builder *b, const char *name, tacit_value value);
/* Checks the graph and turns the builder into a model; the builder is empty afterwards. */
TACIT_API TACIT_MUST_USE tacit_status tacit_builder_finish(tacit_builder *b, tacit_model **out,
                                                           tacit_error *err);

/* -------------------------------------------------------------------------- transform -------- */

typedef struct tacit_dim {
    const char *name;
    int64_t value;
} tacit_dim;

/* Gradients that compute parts of the forward pass again instead of keeping all of it: by hand, the
 * values to keep (what lies between them is computed again), or by a budget for activations and
 * gradients, the arena of the compiled model: the fewest checkpoints that meet it are chosen, and
 * TACIT_ERR_LIMIT says how far one can get. tacit Checkpoint nodes in the model count too. */
typedef struct tacit_remat {
    const char *const *checkpoints; /* names of values */
    uint32_t n_checkpoints;
    uint64_t memory_budget; /* bytes; 0: none. Not together with checkpoints */
} tacit_remat;

/* Transforms make a new model from a model: an ordinary graph that can be compiled, saved, shown or
 * transformed again. Symbolic dimensions must be bound (`dims`), since rules read shapes. */
typedef struct tacit_grad_options {
    const tacit_dim *dims;
    uint32_t n_dims;
    uint32_t output; /* which output is the loss */
    int with_loss;   /* outputs: loss, gradients; otherwise gradients alone */
    int seed_ones;   /* the loss is one number and seeded with 1; otherwise the new model has an
                        input d_output of the loss's shape */
    const tacit_log *log;
    tacit_remat remat;
} tacit_grad_options;

/* Reverse mode: gradients with respect to the inputs or weights named in `wrt`, in that order. */
TACIT_API TACIT_MUST_USE tacit_status tacit_grad(const tacit_model *model, uint32_t n,
                                                 const char *const *wrt,
                                                 const tacit_grad_options *options,
                                                 tacit_model **out, tacit_error *err);
/* Training: one step as a model. */
typedef enum tacit_optimizer { TACIT_SGD, TACIT_ADAM, TACIT_ADAMW } tacit_optimizer;
typedef struct tacit_train_options {
    const tacit_dim *dims;
    uint32_t n_dims;
    uint32_t output; /* which output is the loss: one number */
    tacit_optimizer optimizer;
    double momentum;              /* SGD (default 0: plain) */
    double beta1, beta2, epsilon; /* Adam and AdamW; 0: 0.9, 0.999, 1e-8 */
    double weight_decay;          /* AdamW: decoupled; otherwise added to the gradients */
    double clip_norm;             /* longest allowed gradient, all parameters together; 0: any */
    double loss_scale;            /* for f16; 0: none. A step that overflows changes nothing */
    const tacit_log *log;
    tacit_remat remat;
} tacit_train_options;

/* Inputs: the model's, the parameters (inputs or weights of the model, by name), learning_rate,
 * step (Adam: 1, 2, …), and the optimiser's state: NAME.momentum, or NAME.mean and NAME.square.
 * Outputs: the loss, NAME.next of every parameter, then of the state in the same order. Parameters
 * are read while others are written: alternate between two sets of buffers. */
TACIT_API TACIT_MUST_USE tacit_status tacit_train_step(const tacit_model *model, uint32_t n,
                                                       const char *const *params,
                                                       const tacit_train_options *options,
                                                       tacit_model **out, tacit_error *err);
/* Forward mode: outputs are the model's, then their tangents; every name in `wrt` gets an input
 * tangent_<name>. */
TACIT_API TACIT_MUST_USE tacit_status tacit_jvp(const tacit_model *model, uint32_t n,
                                                const char *const *wrt, const tacit_dim *dims,
                                                uint32_t n_dims, tacit_model **out,
                                                tacit_error *err);
/* Batching: the named inputs, and all that depends on them, gain a leading axis of `size`. */
TACIT_API TACIT_MUST_USE tacit_status tacit_vmap(const tacit_model *model, uint32_t n,
                                                 const char *const *inputs, int64_t size,
                                                 const tacit_dim *dims, uint32_t n_dims,
                                                 tacit_model **out, tacit_error *err);

/* Weights in fewer bits, in forms every ONNX runtime reads: int8 and int4 as MatMulNBits with one
 * scale for `block` weights, bf16 and f16 with a Cast in front of the product. */
typedef enum tacit_storage {
    TACIT_STORE_INT8,
    TACIT_STORE_INT4,
    TACIT_STORE_BF16,
    TACIT_STORE_F16
} tacit_storage;
typedef struct tacit_range {
    const char *value; /* a value of the model by name */
    double low, high;
} tacit_range;
typedef struct tacit_quantize_options {
    tacit_storage weights;
    int64_t block; /* int8, int4: 16, 32 (0: that), 64, 128 or 256 */
    /* Not NULL: static quantisation. Products whose left side has a range here run on bytes on both
     * sides (QuantizeLinear and DequantizeLinear around them); `weights` must be int8. */
    const tacit_range *ranges;
    uint32_t n_ranges;
} tacit_quantize_options;
typedef struct tacit_quantize_report {
    uint32_t layers;                    /* that were changed */
    uint64_t bytes_before, bytes_after; /* of their weights */
    double weight_error; /* root of the mean squared error over that of the weights */
} tacit_quantize_report;
/* Linear layers (MatMul, Gemm) with constant weights of at least 32 x 16. `report` may be NULL. */
TACIT_API TACIT_MUST_USE tacit_status tacit_quantize(const tacit_model *model,
                                                     const tacit_quantize_options *options,
                                                     tacit_model **out,
                                                     tacit_quantize_report *report,
                                                     tacit_error *err);

/* ---------------------------------------------------------------------------- compile -------- */

typedef enum tacit_executor {
    TACIT_EXEC_SERIAL,    /* kernels, one thread */
    TACIT_EXEC_REFERENCE, /* the slow, obvious evaluators: the oracle */
    TACIT_EXEC_TASKS      /* kernels as tile tasks on every core */
} tacit_executor;

typedef enum tacit_validate {
    TACIT_VALIDATE_NORMAL, /* errors fail */
    TACIT_VALIDATE_STRICT, /* warnings fail too */
    TACIT_VALIDATE_NONE
} tacit_validate;

typedef enum tacit_plan_goal {
    TACIT_PLAN_MIN_MEMORY,
    TACIT_PLAN_MIN_TIME /* leave room for tasks to overlap */
} tacit_plan_goal;

struct tacit_task_runtime;

typedef struct tacit_compile_options {
    const tacit_dim *dims; /* values of symbolic dimensions */
    uint32_t n_dims;
    tacit_executor executor;
    uint32_t threads; /* TACIT_EXEC_TASKS: 0 means all */
    /* TACIT_EXEC_TASKS: workers made by tacit_task_create (tacit/task.h), shared by any number of
     * programs, which they must outlive; their number counts, not `threads`. NULL: workers of the
     * program's own, which all its sessions share. Either way sessions may run at the same time:
     * one has the workers, the others run on their callers' threads. */
    struct tacit_task_runtime *workers;
    tacit_validate validate;
    tacit_plan_goal plan;
    const char *const *disabled_passes; /* by name; "all" switches every optional pass off */
    uint32_t n_disabled_passes;
    const tacit_log *log;
    /* Above 0: past keys and values (inputs P of outputs Concat(P, new)) stay in the session, in
     * place, with room for so many positions. Those inputs and outputs are then no ports of the
     * program, and every run appends. Refused for models that use the past in another way. */
    int64_t cache_capacity;
    /* Training steps: an output NAME.next may be given the buffer of input NAME. It is written when
     * nothing reads the input any more. After a run that failed the contents are undefined. */
    int update_in_place;
    /* 1: results of a row (an image, a sequence) have the same bits whatever else is in the batch.
     * Products of one to three rows are slower then. */
    int batch_invariant;
    /* 1: products and convolutions are summed term by term, as they are written. Otherwise large
     * ones with constant weights, and attention, take ways with fewer multiplications (Winograd's),
     * which round differently; docs/kernels.md says by how much. */
    int plain_sums;
    /* Choices measured on this machine, see below; must outlive the call. NULL: those of the
     * default file, if there is one. */
    tacit_tuning *tuning;
    /* A file for packed weights, NULL: none, "auto": the model's name with .tacit-cache behind it.
     * Weights are mapped from it if it was made for this model (by its times, not its contents),
     * build, processor and these options; otherwise they are packed and the file is made anew.
     * Whoever can write it controls the weights: one that others may write is ignored. Trouble with
     * the file is told to the log and is no error. See docs/embedding.md. */
    const char *packed_file;
    /* Outputs, by name, of which only the last entry along the axis before the last is wanted: of
     * logits [batch, position, vocabulary] those of the last position, [batch, 1, vocabulary]. What
     * is computed for the other positions alone is left out. Not with buckets of a runner. */
    const char *const *last_only;
    uint32_t n_last_only;
    /* 1: tacit_compile returns while threads are still packing weights, and the first run waits,
     * node by node, for what it needs: it takes locks, later ones do not. The process must not fork
     * before that run has ended. Not for weights that are being kept in a file. */
    int start_early;
} tacit_compile_options;

/* --- choices by measurement --------------------------------------------------------------------
 * Some shapes can be computed in several ways. Which is the fastest here is measured once
 * (`tacit tune`) and kept in a text file: TACIT_TUNING, or tacit/tuning in XDG_CACHE_HOME or
 * ~/.cache. Without it compiling chooses by rule. Not for several threads at a time. */

/* Reads the file; one that does not exist is empty. NULL: the default one. */
TACIT_API TACIT_MUST_USE tacit_status tacit_tuning_open(const char *path, tacit_tuning **out,
                                                        tacit_error *err);
TACIT_API void tacit_tuning_free(tacit_tuning *tuning);
TACIT_API const char *tacit_tuning_path(const tacit_tuning *tuning);
/* Way 0 is the rule's own choice. While a way is forced compiling takes it wherever there is one
 * and lists where; -1 ends that. */
TACIT_API void tacit_tuning_force(tacit_tuning *tuning, int way);
typedef struct tacit_tuning_point {
    const char *node, *key;
    uint32_t ways; /* 1 … ways may be forced */
} tacit_tuning_point;
TACIT_API uint32_t tacit_tuning_count(const tacit_tuning *tuning);
TACIT_API TACIT_MUST_USE tacit_status tacit_tuning_point_at(const tacit_tuning *tuning,
                                                            uint32_t index,
                                                            tacit_tuning_point *out);
/* The way kept for a key on this machine, 0 when none is. */
TACIT_API int tacit_tuning_get(const tacit_tuning *tuning, const char *key);
TACIT_API TACIT_MUST_USE tacit_status tacit_tuning_set(tacit_tuning *tuning, const char *key,
                                                       int way, tacit_error *err);
TACIT_API TACIT_MUST_USE tacit_status tacit_tuning_save(const tacit_tuning *tuning,
                                                        tacit_error *err);

TACIT_API TACIT_MUST_USE tacit_status tacit_compile(const tacit_model *model,
                                                    const tacit_compile_options *options,
                                                    tacit_program **out, tacit_error *err);
TACIT_API void tacit_program_free(tacit_program *program);
TACIT_API uint32_t tacit_program_input_count(const tacit_program *program);
TACIT_API uint32_t tacit_program_output_count(const tacit_program *program);
TACIT_API TACIT_MUST_USE tacit_status tacit_program_input(const tacit_program *program,
                                                          uint32_t index, tacit_port *out);
TACIT_API TACIT_MUST_USE tacit_status tacit_program_output(const tacit_program *program,
                                                           uint32_t index, tacit_port *out);

/* Every byte a program needs, known before a session allocates. */
typedef struct tacit_memory_report {
    uint64_t weight_bytes;      /* mapped or caller's, shared by all */
    uint64_t packed_bytes;      /* re-laid-out weights, shared by all sessions */
    uint64_t arena_bytes;       /* activations and scratch, per session */
    uint64_t scratch_bytes;     /* largest scratch of one node, inside the arena */
    uint64_t lower_bound_bytes; /* largest live set: no plan can be smaller */
    uint64_t argument_bytes;    /* resolved thunk arguments, per session */
    uint32_t thunks, nodes;
    int has_dynamic_tail;  /* 1: some shapes depend on data; those nodes allocate while running */
    uint64_t mapped_bytes; /* of packed_bytes: mapped from packed_file, shared by all processes */
} tacit_memory_report;
TACIT_API void tacit_program_memory(const tacit_program *program, tacit_memory_report *out);

typedef enum tacit_view_kind {
    TACIT_VIEW_GRAPH,   /* after the passes, text form */
    TACIT_VIEW_PASSES,  /* what each pass changed */
    TACIT_VIEW_PLAN,    /* the memory map */
    TACIT_VIEW_PROGRAM, /* the thunk list */
    TACIT_VIEW_EXPLAIN  /* per node: origin, rewrites, kernel and why */
} tacit_view_kind;
typedef enum tacit_format { TACIT_FORMAT_TEXT, TACIT_FORMAT_JSON, TACIT_FORMAT_HTML } tacit_format;
/* `node` limits TACIT_VIEW_EXPLAIN to one node (NULL: all). HTML is one self-contained page with
 * all views, whatever `kind` says. */
TACIT_API TACIT_MUST_USE tacit_status tacit_program_view(const tacit_program *program,
                                                         tacit_view_kind kind, tacit_format format,
                                                         const char *node, char **out,
                                                         tacit_error *err);

/* -------------------------------------------------------------------------------- run -------- */

TACIT_API TACIT_MUST_USE tacit_status tacit_session_create(const tacit_program *program,
                                                           tacit_session **out, tacit_error *err);
TACIT_API void tacit_session_free(tacit_session *session);
/* Inputs are read and outputs written in place: no copies, no allocation, no lock, no system call
 * for programs without a dynamic tail (but see start_early, and rows of an embedding table of 32 MB
 * or more are read from the model's file, one call each). Input and output buffers must not
 * overlap, but for tacit_compile_options.update_in_place. */
TACIT_API TACIT_MUST_USE tacit_status tacit_run(tacit_session *session, const tacit_tensor *inputs,
                                                uint32_t n_inputs, tacit_tensor *outputs,
                                                uint32_t n_outputs, tacit_error *err);

/* --- any sizes: a runner compiles once for every set of sizes it meets -------------------------
 * Symbolic dimensions take their sizes from the inputs of each run. The programs of the last
 * `capacity` sets of sizes are kept; the least recently used one leaves. Not thread-safe: one
 * runner per thread, on one model. */
typedef struct tacit_runner tacit_runner;
/* Sizes of symbol `name` are rounded up to a multiple: fewer programs, some wasted work. Inputs are
 * padded with zeros and outputs cut back, so this is for models where padding does not touch the
 * rows that count (a batch dimension; a sequence under a causal or padding mask). */
typedef struct tacit_bucket {
    const char *name;
    int64_t multiple;
} tacit_bucket;
typedef struct tacit_runner_options {
    tacit_compile_options compile; /* dims: symbols with the same size in every run */
    uint32_t capacity;             /* programs kept; 0: 8 */
    const tacit_bucket *buckets;
    uint32_t n_buckets;
} tacit_runner_options;
TACIT_API TACIT_MUST_USE tacit_status tacit_runner_create(const tacit_model *model,
                                                          const tacit_runner_options *options,
                                                          tacit_runner **out, tacit_error *err);
/* As tacit_run; buffers lent for outputs without data live until the next run of the runner. */
TACIT_API TACIT_MUST_USE tacit_status tacit_runner_run(tacit_runner *runner,
                                                       const tacit_tensor *inputs,
                                                       uint32_t n_inputs, tacit_tensor *outputs,
                                                       uint32_t n_outputs, tacit_error *err);
/* The program for the sizes of these inputs (rounded up to their buckets), compiled when they are
 * new: for callers who run it in sessions of their own, in several threads say. Release it with
 * tacit_program_free. */
TACIT_API TACIT_MUST_USE tacit_status tacit_runner_program(tacit_runner *runner,
                                                           const tacit_tensor *inputs,
                                                           uint32_t n_inputs, tacit_program **out,
                                                           tacit_error *err);
/* Programs compiled since the runner was made: it stops growing when every size has been met. */
TACIT_API uint64_t tacit_runner_compiled(const tacit_runner *runner);
TACIT_API void tacit_runner_free(tacit_runner *runner);

/* Programs compiled with a cache: how many positions this session's caches hold; to forget the
 * latest (0: all); and to start from given keys and values [batch, heads, n, depth], by name, in
 * f32 (as sessions keep them) or in half precision. */
TACIT_API int64_t tacit_session_cache_length(const tacit_session *session);
TACIT_API TACIT_MUST_USE tacit_status tacit_session_cache_rewind(tacit_session *session,
                                                                 int64_t length, tacit_error *err);
TACIT_API TACIT_MUST_USE tacit_status tacit_session_cache_fill(tacit_session *session,
                                                               const tacit_tensor *past, uint32_t n,
                                                               tacit_error *err);

/* One row per thunk (or tail node) of the runs since profiling was switched on. */
typedef struct tacit_profile_row {
    const char *node, *op, *kernel;
    uint64_t calls, nanoseconds, bytes;
    double flops;
} tacit_profile_row;
TACIT_API void tacit_session_profile(tacit_session *session, int on);
TACIT_API uint32_t tacit_session_profile_count(const tacit_session *session);
TACIT_API TACIT_MUST_USE tacit_status tacit_session_profile_row(const tacit_session *session,
                                                                uint32_t index,
                                                                tacit_profile_row *out);

/* Looks at every intermediate value: called after the node that made it, on the calling thread.
 * Slows running down; for comparing executors. NULL switches it off. */
typedef void (*tacit_watch)(void *context, const char *node, const char *op, const char *value,
                            const tacit_tensor *tensor);
TACIT_API void tacit_session_watch(tacit_session *session, tacit_watch watch, void *context);

#ifdef __cplusplus
}
#endif
#endif
