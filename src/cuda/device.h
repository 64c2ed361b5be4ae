/* SPDX-License-Identifier: Apache-2.0
 * What a device does for private inference, as a table of functions: the CUDA one is behind
 * cuda_open, the tests have one that runs on the host. Pointers named `void *` or `uint64_t *` in
 * the descriptions below are device memory. Work is queued in order and may be recorded as a graph;
 * errors of queued work come out of `wait`. One thread at a time uses a device object. */
#ifndef CUDA_DEVICE_H
#define CUDA_DEVICE_H

#include <stdbool.h>

#include "cuda/gate.h"

#ifdef __cplusplus
extern "C" {
#endif

#include "base/status.h"

/* Linear maps; every result is reduced by `mask`. */
enum { CUDA_GATHER, CUDA_SUM, CUDA_LINEAR, CUDA_SCALE, CUDA_COPY };

typedef struct cuda_part {
    const uint64_t *words;
    uint64_t count;
} cuda_part;

typedef struct cuda_local {
    unsigned op, n_in;
    uint64_t count, mask;
    const uint64_t *in[CUDA_MAX_IN];
    const cuda_part *parts; /* GATHER of more than one vector: [n_in] */
    const int32_t *index;   /* GATHER; -1 reads zero */
    const uint32_t *offset; /* SUM */
    const uint64_t *values; /* SCALE */
    uint64_t coef[CUDA_MAX_IN], add;
    uint64_t *out;
} cuda_local;

/* Pseudo-random words of one slot; rows apart by `stride` words of the stream. */
typedef struct cuda_words {
    uint64_t id;
    const uint64_t *run;
    uint32_t slot, seed, bits;
    uint64_t rows, width, stride;
    bool add; /* to what is there */
    uint64_t *out;
} cuda_words;

/* out[i] += (cx x[i] + cr r[i]) w[i % period], mod 2^bits */
typedef struct cuda_product {
    uint64_t count, period, cx, cr;
    const uint64_t *x, *r, *w;
    unsigned bits;
    uint64_t *out;
} cuda_product;

/* Balanced limbs of cx x + cr r: `batch` matrices of rows x k (or k x rows, `transposed`). */
typedef struct cuda_split {
    uint64_t rows, k, batch, cx, cr;
    const uint64_t *x, *r;
    unsigned limbs;
    bool transposed;
    int8_t *out; /* cuda_split_bytes */
} cuda_split;

/* z[t] += a[a_at[t]] b[b_at[t]], by limbs; not reduced. */
typedef struct cuda_gemm {
    uint64_t m, n, k, batch;
    unsigned limbs;
    const int8_t *a, *b;
    const uint32_t *a_at, *b_at; /* NULL: t */
    uint64_t *z;
} cuda_gemm;

enum { CUDA_BLOCK_K = 32 };
static inline unsigned cuda_limbs(unsigned bits)
{
    return bits < 1 ? 1 : (bits + 7) / 8;
}
/* Rows are padded so that every tile reads inside the buffer. */
static inline uint64_t cuda_split_rows(uint64_t rows)
{
    return (rows + 63) / 64 * 64;
}
static inline uint64_t cuda_split_bytes(uint64_t rows, uint64_t k, uint64_t batch, unsigned limbs)
{
    return batch * cuda_split_rows(rows) * ((k + CUDA_BLOCK_K - 1) / CUDA_BLOCK_K) * CUDA_BLOCK_K *
           limbs;
}

/* Rows of zeros with a one: out[r * width + k] = (index[r] == k). */
typedef struct cuda_one_hot {
    const uint64_t *index;
    uint64_t rows, width;
    uint64_t *out;
} cuda_one_hot;

/* What the client reads at the end: words less a packed string of masks, as numbers of the ring
 * (`out`) or, where `plain` is given, signed, times `unit` and rounded. */
typedef struct cuda_result {
    const uint64_t *words;
    const uint8_t *mask; /* eight bytes behind it may be read */
    uint64_t count;
    uint32_t bits;
    double unit; /* a power of two */
    uint64_t *out;
    float *plain;
} cuda_result;

/* Strings of a message: words of `bits` from byte `at` on. */
typedef struct cuda_string {
    uint64_t *words;
    uint64_t count, at;
    uint32_t bits;
} cuda_string;

/* FETCH: by the device's processors, so that it does not queue behind copies aside; from pinned
 * memory, both aligned to 8. ASIDE: beside the work queued after it (and, to the device, beside
 * the work before it too); marks tell when it is done, and until then its memory must stay as it
 * is. */
typedef enum cuda_direction {
    CUDA_TO_DEVICE,
    CUDA_TO_HOST,
    CUDA_TO_HOST_ASIDE,
    CUDA_TO_DEVICE_ASIDE,
    CUDA_FETCH
} cuda_direction;

typedef struct cuda_ops {
    tacit_status (*alloc)(void *self, size_t bytes, void **out, tacit_error *err); /* zeroed */
    uint64_t (*room)(void *self);              /* bytes that may still be allocated in one piece */
    void (*release)(void *self, void *memory); /* waits for queued work */
    /* Host memory that copies at full speed. */
    tacit_status (*alloc_host)(void *self, size_t bytes, void **out, tacit_error *err);
    void (*release_host)(void *self, void *memory);
    tacit_status (*copy)(void *self, cuda_direction way, void *to, const void *from, size_t bytes,
                         tacit_error *err);
    tacit_status (*clear)(void *self, void *memory, size_t bytes, tacit_error *err);
    /* Round keys for all further work: CUDA_KEY_WORDS words. */
    tacit_status (*keys)(void *self, const uint32_t *words, tacit_error *err);
    tacit_status (*step)(void *self, const cuda_gate *g, const cuda_io *io, unsigned step,
                         tacit_error *err);
    tacit_status (*deal)(void *self, const cuda_gate *g, const cuda_io *io, tacit_error *err);
    tacit_status (*local)(void *self, const cuda_local *l, tacit_error *err);
    tacit_status (*words)(void *self, const cuda_words *w, tacit_error *err);
    tacit_status (*product)(void *self, const cuda_product *p, tacit_error *err);
    tacit_status (*one_hot)(void *self, const cuda_one_hot *o, tacit_error *err);
    tacit_status (*result)(void *self, const cuda_result *r, tacit_error *err);
    tacit_status (*split)(void *self, const cuda_split *s, tacit_error *err);
    tacit_status (*gemm)(void *self, const cuda_gemm *g, tacit_error *err);
    /* `strings` is device memory, `most` the longest of them in words. */
    tacit_status (*pack)(void *self, const cuda_string *strings, uint32_t n, uint64_t most,
                         void *message, tacit_error *err);
    tacit_status (*unpack)(void *self, const cuda_string *strings, uint32_t n, uint64_t most,
                           const void *message, bool add, tacit_error *err);
    tacit_status (*graph_begin)(void *self, tacit_error *err);
    tacit_status (*graph_end)(void *self, void **graph, tacit_error *err);
    tacit_status (*graph_run)(void *self, void *graph, tacit_error *err);
    void (*graph_free)(void *self, void *graph);
    tacit_status (*wait)(void *self, tacit_error *err);
    /* Places to wait for, `which` below CUDA_MARKS: among the copies aside, or among the work. The
     * host waits for one, or the work queued from now on does. */
    tacit_status (*mark)(void *self, unsigned which, tacit_error *err);
    tacit_status (*mark_work)(void *self, unsigned which, tacit_error *err);
    tacit_status (*wait_mark)(void *self, unsigned which, tacit_error *err);
    tacit_status (*after_mark)(void *self, unsigned which, tacit_error *err);
    /* Between fork and join, work goes to the branch chosen last (below CUDA_BRANCHES); branches
     * run beside one another, after what was queued before and before what comes after. */
    tacit_status (*fork)(void *self, tacit_error *err);
    tacit_status (*branch)(void *self, unsigned which, tacit_error *err);
    tacit_status (*join)(void *self, tacit_error *err);
    /* Calls `tell` on a thread of the driver when everything queued so far is done; it must not use
     * the device. This is how ACCELERATOR tasks are completed. */
    tacit_status (*notify)(void *self, void (*tell)(void *context), void *context,
                           tacit_error *err);
} cuda_ops;
enum { CUDA_MARKS = 160, CUDA_BRANCHES = 4 };

typedef struct cuda_device {
    const cuda_ops *ops;
    void *self;
    char name[128];
    uint64_t memory; /* bytes that may be used */
    unsigned ordinal;
} cuda_device;

/* `rows` tables of 2^bits words, bits > 7, as the operands of the look-up's products: 8 bytes a
 * word, in the order in which the threads of a warp hold them. */
void cuda_fragments(const uint64_t *table, unsigned rows, unsigned bits, uint32_t *out);

/* Is there a driver and a device? `why` (may be NULL) says what is missing. */
bool cuda_present(char *why, size_t size);
/* The n-th device. `budget`: most bytes to allocate; 0: what is free. */
tacit_status cuda_open(unsigned n, uint64_t budget, cuda_device *out, tacit_error *err);
void cuda_close(cuda_device *device);
/* Free memory of the card, whoever uses it. */
uint64_t cuda_free_bytes(const cuda_device *device);

#ifdef __cplusplus
}
#endif
#endif
