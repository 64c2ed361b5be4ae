/* SPDX-License-Identifier: Apache-2.0
 * The secure program: a graph as a static list of instructions on vectors of ring words, put into
 * rounds. Dealer, both parties, simulator and planner all walk this one list; nothing about the
 * order of keys or of openings is decided anywhere else.
 *
 * A wire is a vector of words of one ring. Parties know its public words x^ = x + r, the dealer
 * its masks r (one per element, always), the simulator x itself. Three sorts of instruction:
 *   local  the same linear map on x^, r and x (constants go to x^ and x only); no key, no message
 *   joint  a gate or a product: one to three steps, each followed by an opening
 *   ends   inputs of the client, weights of the server, outputs to the client */
#ifndef SECURE_PROGRAM_H
#define SECURE_PROGRAM_H

#include "base/arena.h"
#include "base/sbuf.h"
#include "base/vec.h"
#include "fss/func.h"
#include "fss/linear.h"
#include "fss/suite.h"
#include "ir/graph.h"

enum { SEC_SERVER = 0, SEC_CLIENT = 1, SEC_SHARED = -1, SEC_PUBLIC = -2 };
enum { SEC_MAX_IN = 4, SEC_NONE = UINT32_MAX };
/* What one gate may have: key bytes of either party, and elements. Larger ones are split. */
enum { SEC_BATCH_BYTES = 32 << 20, SEC_BATCH_JOBS = 1 << 18 };

typedef uint32_t sec_wire_id;

typedef enum sec_op {
    SEC_INPUT,  /* the client's */
    SEC_WEIGHT, /* the server's, or everybody's */
    SEC_CONST,  /* public numbers; their masks are zero */
    SEC_GATHER, /* out[i] = concatenation of the inputs [index[i]]; -1 reads zero */
    SEC_SUM,    /* out[i] = sum of in[offset[i] .. offset[i+1]) */
    SEC_LINEAR, /* out[i] = sum_j coef[j] in_j[i] + add */
    SEC_SCALE,  /* out[i] = in[i] * values[i] */
    SEC_LOCALS = SEC_SCALE,
    SEC_GATE,    /* any fss gate */
    SEC_MATMUL,  /* batches of (m x k)(k x n) */
    SEC_PRODUCT, /* out[i] = x[i] * w[i % period], w a weight of one owner */
    SEC_OUTPUT,  /* to the client; of the guard: its verdict, to both */
    SEC_OPS
} sec_op;

typedef struct sec_wire {
    uint32_t producer, count;
    uint8_t bits;       /* ring */
    uint8_t share_bits; /* not 0: products need shares of the mask, in this ring */
    bool share_derived; /* the shares follow from the producer's inputs */
    double limit;       /* not 0: calibrated; the guard ends a run unless |x| <= limit */
    uint32_t ready;     /* round in which the public words are there */
    uint32_t last;      /* position of the last instruction that reads it */
} sec_wire;

typedef struct sec_instr {
    sec_op op;
    uint32_t node;  /* of the graph; SEC_NONE: none */
    uint32_t start; /* round of the first step */
    uint64_t id;    /* first of the ids it uses */
    bool guard;     /* checks ranges; no output depends on it */
    uint32_t n_in, n_out;
    sec_wire_id *in; /* MATMUL, PRODUCT: x, w */
    sec_wire_id out[2];
    /* local */
    const int32_t *index;   /* GATHER */
    const uint32_t *offset; /* SUM: count + 1 */
    const int64_t *values;  /* SCALE, CONST */
    int64_t coef[SEC_MAX_IN], add;
    /* joint */
    fss_gate gate;
    fss_info info;
    uint8_t min_in; /* bits that the gate's first input needs whatever the output's ring */
    size_t m, n, k;
    uint32_t batch, period;
    const uint32_t *x_at, *w_at; /* MATMUL: which matrix of x and of w batch i multiplies */
    int owner;
    uint8_t bits; /* ring the product is computed in */
    /* What is opened of the last step's output: these elements only, or these sums. */
    const int32_t *keep;
    const uint32_t *keep_sum;
    uint32_t keep_count; /* elements of the output wire */
    /* weight, input, output */
    const ir_value *value;
    const uint32_t *layout; /* WEIGHT: element i is element layout[i] of the tensor; NULL: i */
    double factor;
    int frac;
    uint32_t port;
} sec_instr;

/* How comparisons are made: trees (one opening less), digits (smaller keys), or trees only where
 * they are short, few, or one after the other. */
typedef enum sec_compare { SEC_AUTO, SEC_TREES, SEC_DIGITS, SEC_DIRECT, SEC_COMPARES } sec_compare;

typedef struct sec_mode {
    int weights;     /* SEC_PUBLIC, SEC_SERVER, SEC_SHARED */
    bool dither;     /* rescale by public dither */
    uint8_t compare; /* sec_compare */
    bool calibrated; /* ranges are recorded, not proven */
    uint8_t frac;    /* fraction bits of activations */
    uint8_t weight_frac;
    double input_bound; /* |x| of float inputs */
} sec_mode;

/* A port of the program: what the client gives or gets. */
typedef struct sec_port {
    const char *name;
    tacit_dtype dtype;
    ir_shape shape;
    sec_wire_id wire;
    int frac;
    double bound;
    uint32_t one_hot;      /* not 0: an index below this, given as a row of that many words */
    const ir_value *table; /* public table looked up by the client; then one_hot is its rows */
    uint32_t input;        /* which input of the graph */
} sec_port;

/* What interval arithmetic says of a node's first output, as real numbers; frac < 0: nothing. */
typedef struct sec_range {
    double lo, hi;
    int frac;
} sec_range;

typedef struct sec_program {
    arena memory;
    fss_suite suite;
    fss_gemm_set gemm;
    sec_mode mode;
    uint8_t hash[32]; /* of everything public: graph, facts, mode */
    VEC(sec_wire) wires;
    VEC(sec_instr) instrs; /* in execution order once finished */
    VEC(sec_port) inputs, outputs;
    sec_range *ranges;  /* by node of the graph */
    VEC(int32_t) facts; /* sizes of weights, in quarters of a power of two */
    uint64_t ids;       /* used by one run */
    uint64_t weight_ids;
    uint32_t rounds, blocks;
    uint64_t batch_bytes, batch_jobs; /* of the largest batch */
    uint64_t round_bytes;             /* key bytes of the fullest round, of either party */
    uint64_t key_bytes[2];            /* of one run */
    uint64_t wire_bytes[2];           /* sent by each party in one run */
    uint64_t weight_bytes;            /* sent by the server once per session */
    uint64_t guarded;                 /* elements whose calibrated ranges are checked */
    const ir_graph *graph;
} sec_program;

enum { SEC_WEIGHT_ID = 62 }; /* ids of weights have this bit: the same in every run */

static inline const sec_wire *sec_wire_at(const sec_program *p, sec_wire_id w)
{
    return &p->wires.data[w];
}
static inline bool sec_is_local(const sec_instr *in)
{
    return (in->op >= SEC_GATHER && in->op <= SEC_LOCALS) ||
           ((in->op == SEC_MATMUL || in->op == SEC_PRODUCT) && in->owner == SEC_PUBLIC);
}
/* Does this party learn what the wire of an OUTPUT holds? */
static inline bool sec_learns(const sec_instr *in, unsigned party)
{
    return in->op == SEC_OUTPUT && (in->guard || party == SEC_CLIENT);
}
/* Steps with an opening after each; 0 for everything that is not joint. */
unsigned sec_steps(const sec_instr *in);
/* Words and ring of what step `step` opens, vector v. Returns the number of vectors. */
typedef struct sec_opening {
    size_t count;
    unsigned bits;
} sec_opening;
unsigned sec_openings(const sec_program *p, const sec_instr *in, unsigned step, sec_opening o[2]);
/* Key bytes of an instruction, of either party. */
size_t sec_key_bytes(const sec_program *p, const sec_instr *in, unsigned party);

/* A local instruction on cleartext or public words (`constants`), or on masks and shares. Inputs
 * may be wider than the output: everything is reduced. */
void sec_local(const sec_program *p, const sec_instr *in, const uint64_t *const *x, uint64_t *out,
               bool constants);
/* The words of a weight in a ring, as its owner multiplies with them. */
tacit_status sec_weight_words(const sec_program *p, const sec_instr *in, uint64_t *out,
                              tacit_error *err);
/* SHA-256 over the words of all weights. */
tacit_status sec_weights_hash(const sec_program *p, uint8_t hash[32], tacit_error *err);
/* The guard's verdict as a word: 1, or an error that says what happened and nothing more. */
tacit_status sec_verdict_check(const sec_program *p, uint64_t word, tacit_error *err);
/* Applies `keep`: from what a step produced to what is opened. */
void sec_keep(const sec_instr *in, unsigned bits, const uint64_t *from, uint64_t *to);
/* Multiply as the simulator does: z = x w. */
void sec_multiply(const sec_program *p, const sec_instr *in, const uint64_t *x, const uint64_t *w,
                  uint64_t *z);

/* The graph as a program. `graph` is inferred and passed; `facts` (may be NULL) replaces what the
 * weights would tell. */
typedef struct sec_options {
    sec_mode mode;
    const int32_t *facts;
    uint32_t n_facts;
    const double *calibration; /* by value id: largest |x| seen; 0: unknown */
    uint32_t n_calibration;
    uint64_t batch_bytes, batch_jobs; /* 0: the usual budget; other ones are for tests */
} sec_options;
tacit_status sec_compile(const ir_graph *graph, const sec_options *options,
                         const tacit_allocator *allocator, sec_program **out, tacit_error *err);
void sec_program_free(sec_program *p);

/* Does the operator of this row have a rule here? */
bool sec_has_rule(const struct op_def *row);

/* Inputs and outputs of a run: words of the ports' wires from and to tensors. */
tacit_status sec_encode(const sec_program *p, uint32_t port, const ir_tensor *t, uint64_t *words,
                        tacit_error *err);
/* Of a port with one_hot and no table: the indices only, as words. */
tacit_status sec_encode_index(const sec_program *p, uint32_t port, const ir_tensor *t,
                              uint64_t *words, tacit_error *err);
void sec_decode(const sec_program *p, uint32_t port, const uint64_t *words, ir_tensor *t);

/* The cleartext twin. `dealer` is needed with dither only: its masks decide the rounding. */
tacit_status sec_simulate(const sec_program *p, const fss_dealer *dealer, uint64_t run,
                          const ir_tensor *const *inputs, ir_tensor *const *outputs,
                          tacit_error *err);

/* Where the dealer's bytes go: called in order with whole keys. */
typedef tacit_status (*sec_key_write)(void *context, unsigned party, const void *data, size_t size,
                                      tacit_error *err);
tacit_status sec_deal(const sec_program *p, const fss_dealer *dealer, uint64_t run,
                      sec_key_write write, void *context, tacit_error *err);

/* How a party gets its key and talks; all functions block. */
typedef struct sec_link {
    tacit_status (*key_read)(void *context, void *data, size_t size, tacit_error *err);
    void *key_context;
    /* Send `out` and receive exactly in_size bytes. */
    tacit_status (*exchange)(void *context, const void *out, size_t out_size, void *in,
                             size_t in_size, tacit_error *err);
    void *context;
    /* The same in parts, or NULL: `begin` one, `push` whenever more of `out` is final, `end` it. */
    tacit_status (*begin)(void *context, const void *out, size_t out_size, void *in, size_t in_size,
                          tacit_error *err);
    tacit_status (*push)(void *context, size_t ready, tacit_error *err);
    tacit_status (*end)(void *context, tacit_error *err);
    /* This party's part of a shared weight; NULL: the server has all of it, the client nothing. */
    tacit_status (*own_weight)(void *own_context, const struct sec_program *p,
                               const struct sec_instr *in, uint64_t *words, tacit_error *err);
    void *own_context;
} sec_link;
/* One party's weights: W for the server, W^ for the client; made once per session. */
typedef struct sec_weights {
    uint64_t **words; /* by position of the WEIGHT instruction: W^ (or W where public) */
    uint64_t **own;   /* the server's W */
    unsigned threads; /* to make them with; 0: as many as are worth having */
} sec_weights;
tacit_status sec_weights_exchange(const sec_program *p, const fss_party *party,
                                  const sec_link *link, sec_weights *w, tacit_error *err);
void sec_weights_free(const sec_program *p, sec_weights *w);
tacit_status sec_party_run(const sec_program *p, const fss_party *party, uint64_t run,
                           const sec_link *link, const sec_weights *weights,
                           const ir_tensor *const *inputs, ir_tensor *const *outputs,
                           tacit_error *err);

uint32_t sec_rounds_per_block(const sec_program *p);
/* Text of the plan; JSON when asked. */
void sec_plan_print(const sec_program *p, bool json, sbuf *out);
void sec_mode_text(const sec_mode *mode, char *out, size_t size);

#endif
