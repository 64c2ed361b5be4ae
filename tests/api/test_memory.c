/* SPDX-License-Identifier: Apache-2.0
 * Out of memory, everywhere: the k-th allocation of load + compile + run fails, for every k. Each
 * time the answer is a status with a message or a right result, and nothing leaks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "tacit/tacit.h"

/* The allocator hook: all memory of models, programs and sessions comes from here. */
typedef struct scarce {
    uint64_t calls, fail_at; /* 1: the first; 0: never */
    int64_t held;
} scarce;

static void *scarce_alloc(void *context, size_t size, size_t align)
{
    scarce *s = context;
    if (++s->calls == s->fail_at)
        return NULL;
    s->held++;
    return aligned_alloc(align, (size + align - 1) / align * align);
}

static void scarce_release(void *context, void *memory, size_t size)
{
    scarce *s = context;
    (void)size;
    s->held--;
    free(memory);
}

typedef struct subject {
    const void *data;
    size_t size;
    tacit_compile_options options;
    float expected[64];
    bool known; /* expected has been filled */
} subject;

static tacit_status attempt(subject *x, scarce *memory, tacit_error *err)
{
    tacit_allocator hook = {scarce_alloc, scarce_release, memory};
    tacit_model *m = NULL;
    tacit_program *p = NULL;
    tacit_session *s = NULL;
    tacit_status status = tacit_model_load_memory(
        x->data, x->size, &(tacit_load_options){.allocator = &hook}, &m, err);
    if (status == TACIT_OK)
        status = tacit_compile(m, &x->options, &p, err);
    if (status == TACIT_OK)
        status = tacit_session_create(p, &s, err);
    if (status == TACIT_OK) {
        static float input[1 << 14];
        tacit_port port;
        assert_int_equal(tacit_program_input(p, 0, &port), TACIT_OK);
        assert_true(port.bytes <= sizeof input);
        for (size_t i = 0; i < port.bytes / 4; i++)
            input[i] = (float)((int)(i % 7) - 3) * 0.25f;
        tacit_tensor in = {.dtype = port.dtype, .rank = port.rank, .data = input};
        memcpy(in.dims, port.dims, sizeof in.dims);
        in.bytes = port.bytes;
        tacit_tensor out = {0}; /* lent: the session allocates it */
        status = tacit_run(s, &in, 1, &out, 1, err);
        size_t n = out.bytes < sizeof x->expected ? out.bytes : sizeof x->expected;
        if (status == TACIT_OK && !x->known)
            memcpy(x->expected, out.data, n);
        else if (status == TACIT_OK)
            assert_memory_equal(out.data, x->expected, n);
        x->known |= status == TACIT_OK;
    }
    tacit_session_free(s);
    tacit_program_free(p);
    tacit_model_free(m);
    return status;
}

static void starve(subject *x)
{
    tacit_error err = {0};
    scarce plenty = {0};
    if (attempt(x, &plenty, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    assert_int_equal(plenty.held, 0);
    uint64_t refused = 0;
    for (uint64_t k = 1; k <= plenty.calls; k++) {
        scarce memory = {.fail_at = k};
        err = (tacit_error){0};
        tacit_status status = attempt(x, &memory, &err);
        assert_int_equal(memory.held, 0);
        if (status != TACIT_OK && status != TACIT_ERR_MEMORY)
            fail_msg("allocation %llu of %llu: %s: %s", (unsigned long long)k,
                     (unsigned long long)plenty.calls, tacit_status_text(status), err.message);
        if (status != TACIT_OK)
            assert_true(err.status == status && err.message[0]);
        refused += status != TACIT_OK;
    }
    assert_true(refused * 2 > plenty.calls);
}

static void starve_example(const char *arguments)
{
    char path[64], command[600];
    snprintf(path, sizeof path, "/tmp/tacit-memory-%ld.onnx", (long)getpid());
    snprintf(command, sizeof command, "'%s/tacit' example %s --out %s >/dev/null", TACIT_BINARY_DIR,
             arguments, path);
    assert_int_equal(system(command), 0);
    file_map map;
    assert_int_equal(file_map_open(&map, path, NULL), TACIT_OK);
    unlink(path);
    for (int executor = TACIT_EXEC_SERIAL; executor <= TACIT_EXEC_TASKS; executor++) {
        subject x = {.data = map.data, .size = map.size};
        x.options.executor = (tacit_executor)executor;
        x.options.threads = 2;
        starve(&x);
    }
    file_map_close(&map);
}

static void a_perceptron(void **state)
{
    (void)state;
    starve_example("mlp --width 16");
}

/* With packed weights in a file, which the first attempt makes and the others map. */
static void mapped_weights(void **state)
{
    (void)state;
    char model[64], packed[80], command[600];
    snprintf(model, sizeof model, "/tmp/tacit-memory-%ld.onnx", (long)getpid());
    snprintf(packed, sizeof packed, "%s.packed", model);
    snprintf(command, sizeof command,
             "'%s/tacit' example squeezenet --image 32 --out %s >/dev/null", TACIT_BINARY_DIR,
             model);
    assert_int_equal(system(command), 0);
    file_map map;
    assert_int_equal(file_map_open(&map, model, NULL), TACIT_OK);
    unlink(model);
    subject x = {.data = map.data, .size = map.size};
    x.options.packed_file = packed;
    starve(&x);
    assert_int_equal(unlink(packed), 0);
    file_map_close(&map);
}

static void a_transformer_block(void **state)
{
    (void)state;
    starve_example("block --hidden 16 --heads 2 --ffn 32 --seq 4");
}

static void shapes_from_data(void **state)
{
    (void)state;
    tacit_error err = {0};
    tacit_builder *b = NULL;
    tacit_model *m = NULL;
    int64_t eight = 8;
    char *printed = NULL;
    assert_int_equal(tacit_builder_create("tail", NULL, &b, &err), TACIT_OK);
    tacit_value v = tacit_builder_input(b, "x", TACIT_F32, 1, &eight, NULL);
    v = tacit_builder_node(b, "Abs", 1, &v, 1, NULL);
    v = tacit_builder_node(b, "NonZero", 1, &v, 1, NULL);
    v = tacit_builder_node(b, "Cast", 1, &v, 1, NULL);
    tacit_builder_attr_int(b, "to", 1);
    tacit_builder_output(b, "y", v);
    assert_int_equal(tacit_builder_finish(b, &m, &err), TACIT_OK);
    assert_int_equal(tacit_model_text(m, 1, &printed, &err), TACIT_OK);
    subject x = {.data = printed, .size = strlen(printed)};
    starve(&x);
    tacit_text_free(printed);
    tacit_model_free(m);
    tacit_builder_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_perceptron),
        cmocka_unit_test(mapped_weights),
        cmocka_unit_test(a_transformer_block),
        cmocka_unit_test(shapes_from_data),
    };
    return cmocka_run_group_tests_name("out of memory", tests, NULL, NULL);
}
