/* SPDX-License-Identifier: Apache-2.0
 * Models of `tacit example`, loaded. */
#ifndef SUPPORT_EXAMPLE_H
#define SUPPORT_EXAMPLE_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tacit/tacit.h"

/* `arguments`: as the command takes them. The file is gone when this returns, its mapping is not.
 */
static inline tacit_model *example_model(const char *arguments)
{
    char path[64], command[600];
    tacit_error err = {0};
    tacit_model *m = NULL;
    snprintf(path, sizeof path, "/tmp/tacit-example-%ld.onnx", (long)getpid());
    snprintf(command, sizeof command, "'%s/tacit' example %s --out %s >/dev/null", TACIT_BINARY_DIR,
             arguments, path);
    assert_int_equal(system(command), 0);
    if (tacit_model_load(path, NULL, &m, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    unlink(path);
    return m;
}

#endif
