/* SPDX-License-Identifier: Apache-2.0
 * ONNX Runtime as a peer: a Python child process spoken to in lines. Optional at run time. */
#ifndef CLI_ORT_H
#define CLI_ORT_H

#include <stdio.h>
#include <sys/types.h>

#include "cli/inputs.h"

typedef struct ort_peer {
    pid_t child;
    FILE *to, *from;
    char dir[64];     /* temporary folder for tensors */
    char version[64]; /* of ONNX Runtime */
} ort_peer;

/* Starts the child: $TACIT_PYTHON, .venv/bin/python, or python3. false (with a sentence in `why`,
 * 256 bytes) when there is no Python with onnxruntime. */
bool ort_start(ort_peer *p, char *why);
extern const char ort_needs[]; /* what to do then */
/* Opens a model (`all_values`: every intermediate becomes an output; this needs the onnx package)
 * and gives it the inputs. `seconds` and `rss` (may be NULL) tell what opening cost. */
bool ort_open(ort_peer *p, const char *path, int threads, bool all_values,
              const tacit_tensor *inputs, uint32_t n_inputs, double *seconds, char *why);
/* One timed run. */
bool ort_run(ort_peer *p, uint64_t *nanoseconds, char *why);
/* Output number `i` of the last run: its name (kept in `memory`) and tensor. false past the last.
 */
bool ort_output(ort_peer *p, uint32_t i, arena *memory, tacit_tensor *out, char *why);
uint32_t ort_output_count(ort_peer *p, char *why);
void ort_stop(ort_peer *p); /* safe on a zeroed peer */

#endif
