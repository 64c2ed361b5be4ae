/* SPDX-License-Identifier: Apache-2.0
 * Inside the device's party and dealer: memory given out by offset while a program is walked,
 * twice: first to learn how much is needed, then with real addresses, queueing work. */
#ifndef SECURE_DEVICE_PLAN_H
#define SECURE_DEVICE_PLAN_H

#include "secure/device.h"
#include "secure/run.h"

/* ---- offsets in one block of memory ---- */

typedef struct plan_gap {
    uint64_t at, size;
} plan_gap;
typedef struct plan_pool {
    plan_gap *gaps; /* free, by address */
    size_t count, capacity;
    uint64_t end, most;
} plan_pool;
enum { PLAN_ALIGN = 256 };

bool plan_take(plan_pool *pool, uint64_t size, uint64_t *at);
bool plan_give(plan_pool *pool, uint64_t at, uint64_t size);
void plan_free(plan_pool *pool);

/* ---- one walk ---- */

typedef struct plan_vector {
    uint64_t *words; /* device */
    uint64_t count;
    bool pooled; /* goes back to the pool */
} plan_vector;

typedef struct plan_walk {
    const sec_program *p;
    const cuda_ops *ops;
    void *self;
    bool live; /* addresses are real and work is queued */
    bool fill; /* addresses are real and constants go to `image` */
    uint8_t *memory, *constants, *image;
    plan_pool pool;
    uint64_t constants_at;
    plan_vector *words, *share[2]; /* by wire */
    uint32_t *uses;
    plan_vector *later; /* to be given back when the round is over */
    size_t n_later, later_capacity;
    const uint64_t *run; /* device: what this run adds to ids, and a zero behind it */
    tacit_status status;
    tacit_error *err;
} plan_walk;

tacit_status plan_begin(plan_walk *w, const sec_program *p, const cuda_device *device,
                        tacit_error *err);
void plan_end(plan_walk *w);
plan_vector plan_new(plan_walk *w, uint64_t count); /* words */
void plan_drop(plan_walk *w, plan_vector *v);       /* at the end of the round */
void plan_round(plan_walk *w);                      /* the round is over */
void plan_done(plan_walk *w, const sec_instr *in);  /* as run_done */
/* Constants: the device address of a copy of `size` bytes (zeros where data is NULL). */
void *plan_constant(plan_walk *w, const void *data, uint64_t size);

/* A linear map of the walk's words or shares into a new vector of the output wire. */
void plan_local(plan_walk *w, const sec_instr *in, plan_vector *table, bool constants);
cuda_gate plan_gate(plan_walk *w, const sec_instr *in, unsigned party);
/* z += (cx x + cr r) w for every batch; `limbs` of w or NULL to split (bx w + br rw) here. */
typedef struct plan_term {
    uint64_t cx, cr, bx, br;
    const uint64_t *x, *r, *w, *rw;
    const int8_t *limbs;
} plan_term;
void plan_multiply(plan_walk *w, const sec_instr *in, const plan_term *t, uint64_t *z);
uint32_t plan_matrices(const uint32_t *at, uint32_t batch);
/* What is opened of a step's output. */
void plan_keep(plan_walk *w, const sec_instr *in, unsigned bits, const uint64_t *from,
               uint64_t *to);
static inline uint64_t plan_mask(unsigned bits)
{
    return fss_low(~(uint64_t)0, bits);
}
#define PLAN_CALL(w, name, ...)                                                                    \
    do {                                                                                           \
        if ((w)->live && (w)->status == TACIT_OK)                                                  \
            (w)->status = (w)->ops->name((w)->self, __VA_ARGS__, (w)->err);                        \
    } while (0)

#endif
