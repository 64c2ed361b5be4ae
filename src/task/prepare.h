/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TASK_PREPARE_H
#define TASK_PREPARE_H

/* Asks the system for what all runtimes of the process need. That takes nothing while the process
 * has one thread, and milliseconds once it has more: before threads are started for other work it
 * is done early. */
void task_prepare(void);

#endif
