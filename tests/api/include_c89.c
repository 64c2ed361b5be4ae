/* SPDX-License-Identifier: Apache-2.0
 * A caller from another time: compiled as strict C89. */
#include <stdio.h>
#include <string.h>

#include <tacit/tacit.h>

int main(int argc, char **argv)
{
    tacit_error err;
    tacit_model *model;
    tacit_load_options options;
    tacit_tensor tensor;
    memset(&options, 0, sizeof options);
    memset(&tensor, 0, sizeof tensor);
    tensor.dtype = TACIT_F32;
    if (argc < 2 || tacit_model_load(argv[1], &options, &model, &err) != TACIT_OK) {
        printf("%s\n", err.message);
        return 1;
    }
    tacit_model_free(model);
    return 0;
}
