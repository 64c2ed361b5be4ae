/* SPDX-License-Identifier: Apache-2.0
 * The program as a recorded task graph: tiles are tasks, dependences come from the bytes they
 * touch, so tile t of one op may start while the op before it still works on other tiles. */
#ifndef PROG_TASKS_H
#define PROG_TASKS_H

#include "prog/program.h"
#include "tacit/task.h"

/* Cuts the thunks into tasks, finds their dependences, and starts the workers that all sessions
 * share, unless the options name some. */
tacit_status prog_tasks_build(prog_program *p, tacit_error *err);
void prog_tasks_free(prog_program *p);
/* The session's copy of the graph. */
tacit_status prog_tasks_open(prog_session *s, tacit_error *err);
void prog_tasks_close(prog_session *s);
tacit_status prog_tasks_run(prog_session *s, tacit_error *err);
/* Tasks and joins; 0 when the program is too small and runs serially. */
uint32_t prog_tasks_count(const prog_program *p);
/* Estimated nanoseconds of all tasks, and of the longest chain of them that must run one after the
 * other: what no number of threads can go below. False: no memory. */
bool prog_tasks_path(const prog_program *p, double *work, double *path);
/* The workers, for traces; NULL when the session runs serially. */
tacit_task_runtime *prog_tasks_runtime(const prog_session *s);

#endif
