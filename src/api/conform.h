/* SPDX-License-Identifier: Apache-2.0
 * One conformance case: load the model, compile and run it by the ordinary path, compare. */
#ifndef API_CONFORM_H
#define API_CONFORM_H

#include "tacit/tacit.h"

typedef enum conform_verdict {
    CONFORM_PASSED,
    CONFORM_FAILED,
    CONFORM_UNSUPPORTED, /* refused with TACIT_ERR_UNSUPPORTED */
    CONFORM_RANDOM,      /* random outputs of the right type and distribution */
} conform_verdict;

typedef struct conform_result {
    conform_verdict verdict;
    char op[64];       /* what the case is about: its first node */
    char reason[1024]; /* of anything but a pass */
} conform_result;

/* `data` is the folder with test_data_set_N; NULL for a light model, whose inputs are generated
 * and whose outputs lie beside it. */
void conform_run(const char *model, const char *data, const tacit_compile_options *options,
                 conform_result *out);

#endif
