/* SPDX-License-Identifier: Apache-2.0
 *
 * Packing weights beside everything else: threads work through the jobs that lowering has left, in
 * the order of the nodes, while the program is planned and a session made. The first run starts at
 * once; before a node it sees to it that the node's weights are there, by packing with the others
 * what comes next. Nothing is waited for in later runs.
 */
#ifndef PROG_PACKING_H
#define PROG_PACKING_H

#include <stdatomic.h>

#include "op/lower.h"

typedef struct prog_packing prog_packing;

/* Starts on `jobs`, which stay as they are until the end; first_job[i] is the first of node i,
 * first_job[n_nodes] their number. Little work, or one processor: all is done when this returns,
 * and *out is NULL. */
tacit_status prog_packing_start(const op_lower *c, const op_jobs *jobs, const uint32_t *first_job,
                                uint32_t n_nodes, bool wait, prog_packing **out, tacit_error *err);
/* Nothing is to be packed, but `memory`, from the beginning of a page on, is mapped from a file:
 * prog_packing_touch starts a thread that sees to that one's pages and then to these, in their
 * order, until prog_packing_finish. *out is NULL where that is not worth it. */
tacit_status prog_packing_fetch(const op_lower *c, void *memory, size_t bytes, uint32_t n_nodes,
                                prog_packing **out, tacit_error *err);
/* Has it not been finished yet? NULL: it has. */
bool prog_packing_goes_on(const prog_packing *k);
/* Returns when the weights of node i are packed, having helped. */
void prog_packing_need(prog_packing *k, uint32_t node);
/* Memory that a run will write: the threads see to its pages, and to those of the caller's stack,
 * so that the run need not wait for them. To be forgotten before it is released. */
void prog_packing_touch(prog_packing *k, void *memory, size_t bytes);
void prog_packing_forget(prog_packing *k);
/* prog_packing_need of all nodes; threads and memory are given back. */
void prog_packing_finish(prog_packing *k);
/* What is not packed yet stays so. */
void prog_packing_free(prog_packing *k);

#endif
