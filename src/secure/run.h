/* SPDX-License-Identifier: Apache-2.0
 * What dealer, parties and simulator share while walking a program: vectors by wire, freed when
 * their last reader is done. */
#ifndef SECURE_RUN_H
#define SECURE_RUN_H

#include "secure/program.h"

typedef struct run_state {
    const sec_program *p;
    uint64_t **words;     /* by wire: public words, masks or cleartext */
    uint64_t **share[2];  /* by wire: shares of the mask, of party 0 and 1 (a party has its own) */
    uint64_t **clear;     /* by wire: public weights as they are */
    uint32_t *uses;       /* readers still to come */
    bool borrows_weights; /* words and clear of weights belong to the session */
} run_state;

tacit_status run_init(run_state *s, const sec_program *p, tacit_error *err);
void run_free(run_state *s);                     /* wipes everything it releases */
uint64_t *run_new(size_t count);                 /* NULL: out of memory; at least one word */
void run_release(uint64_t *words, size_t count); /* wiped */
tacit_status run_vector(run_state *s, uint64_t ***where, sec_wire_id w, tacit_error *err);
/* The instruction has read its inputs for the last time. */
void run_done(run_state *s, const sec_instr *in);
/* Words of wire w below 2^bits: the vector itself, or a copy in *copy (to be released). */
const uint64_t *run_narrow(const run_state *s, uint64_t *const *from, sec_wire_id w, unsigned bits,
                           uint64_t **copy);
/* A local instruction on `table` (words or shares). */
tacit_status run_local(run_state *s, const sec_instr *in, uint64_t **table, bool constants,
                       tacit_error *err);
/* The gate of an instruction, with the id it has in this run. */
fss_gate run_gate(const sec_program *p, const sec_instr *in, uint64_t run);
static inline uint64_t run_id(const sec_program *p, const sec_instr *in, uint64_t run)
{
    return in->op == SEC_WEIGHT ? in->id : in->id + run * p->ids;
}
unsigned run_in_bits(const sec_instr *in, unsigned k); /* ring in which a gate reads input k */

/* One instruction of the dealer's walk: masks of its outputs, and its keys to `write`. */
typedef struct deal_state {
    run_state s;
    const fss_dealer *dealer;
    uint64_t run;
    sec_key_write write; /* NULL: masks only */
    void *context;
} deal_state;
tacit_status deal_instr(deal_state *d, const sec_instr *in, tacit_error *err);

#endif
