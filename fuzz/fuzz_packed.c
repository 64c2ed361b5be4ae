/* SPDX-License-Identifier: Apache-2.0
 * A file of packed weights: its head is read as it would be written, and a model compiled with any
 * file in that place gives the result it gives without. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "prog/packed.h"
#include "tacit/tacit.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char text[] = "tacit 1\n"
                           "graph \"main\" {\n"
                           "  in %x : f32[1,4]\n"
                           "  const %w : f32[4,2] = [1.0, 0.0, 0.5, 0.0, 0.0, 1.0, 0.0, 0.5]\n"
                           "  %y : f32[1,2] = MatMul(%x, %w) @fc\n"
                           "  out %y\n"
                           "}\n";

static void compile_with(const char *path)
{
    tacit_error err;
    tacit_model *m = NULL;
    tacit_program *p = NULL;
    tacit_session *s = NULL;
    float x[4] = {1, 2, 3, 4};
    tacit_tensor in = {.dtype = TACIT_F32, .rank = 2, .dims = {1, 4}, .data = x, .bytes = sizeof x};
    tacit_tensor out = {0};
    tacit_compile_options o = {.packed_file = path};
    if (tacit_model_load_memory(text, sizeof text - 1, NULL, &m, &err) != TACIT_OK ||
        tacit_compile(m, &o, &p, &err) != TACIT_OK ||
        tacit_session_create(p, &s, &err) != TACIT_OK ||
        tacit_run(s, &in, 1, &out, 1, &err) != TACIT_OK)
        abort();
    const float *y = out.data;
    if (y[0] != 2.0f || y[1] != 5.0f)
        abort();
    tacit_session_free(s);
    tacit_program_free(p);
    tacit_model_free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char head[PACKED_HEAD] = {0}, again[PACKED_HEAD];
    packed_head h;
    memcpy(head, data, size < sizeof head ? size : sizeof head);
    if (packed_head_read(head, size, &h, NULL) == TACIT_OK) {
        packed_head_write(&h, again);
        if (h.bytes != size - PACKED_HEAD || memcmp(again, head, 96) != 0)
            abort();
    }
    char path[40];
    int fd = memfd_create("packed", MFD_CLOEXEC);
    if (fd < 0 || fchmod(fd, 0600) != 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    compile_with(path);
    close(fd);
    return 0;
}
