/* SPDX-License-Identifier: Apache-2.0
 * `tacit conformance` itself: its verdicts, exit codes and ratchet on a suite of one case. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "load/load.h"
#include "load/wire_write.h"

static const char tool[] = TACIT_BINARY_DIR "/tacit";

static int run(const char *arguments)
{
    char line[9000];
    snprintf(line, sizeof line, "%s conformance %s", tool, arguments);
    int status = system(line);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void put_port(sbuf *b, uint32_t field, const char *name)
{
    size_t info = wire_begin(b, field);
    wire_put_text(b, 1, name);
    size_t type = wire_begin(b, 2), tensor = wire_begin(b, 1);
    wire_put_int(b, 1, 6); /* i32 */
    wire_end(b, tensor);
    wire_end(b, type);
    wire_end(b, info);
}

/* y = Abs(x) */
static void put_model(sbuf *b)
{
    wire_put_int(b, 1, 8);
    size_t opset = wire_begin(b, 8);
    wire_put_int(b, 2, 17);
    wire_end(b, opset);
    size_t graph = wire_begin(b, 7), node = wire_begin(b, 1);
    wire_put_text(b, 1, "x");
    wire_put_text(b, 2, "y");
    wire_put_text(b, 4, "Abs");
    wire_end(b, node);
    put_port(b, 11, "x");
    put_port(b, 12, "y");
    wire_end(b, graph);
}

static void put_file(const char *folder, const char *name, sbuf *b)
{
    char path[512];
    snprintf(path, sizeof path, "%s/one/%s", folder, name);
    assert_false(b->failed);
    assert_int_equal(file_write_all(path, b->data, b->length, NULL), TACIT_OK);
    sbuf_free(b);
}

static void put_tensor(const char *folder, const char *name, int32_t value)
{
    sbuf b;
    sbuf_init(&b, NULL);
    ir_tensor t = ir_tensor_view(TACIT_I32, &(ir_shape){1, {1}}, &value);
    assert_int_equal(load_onnx_encode_value(&t, &b, NULL), TACIT_OK);
    put_file(folder, name, &b);
}

static void verdicts_tell_right_from_wrong(void **state)
{
    (void)state;
    if (access(tool, X_OK) != 0)
        skip();
    char folder[] = "/tmp/tacit_conf_XXXXXX", line[512];
    sbuf b;
    assert_non_null(mkdtemp(folder));
    snprintf(line, sizeof line, "mkdir -p %s/one/test_data_set_0", folder);
    assert_int_equal(system(line), 0);
    sbuf_init(&b, NULL);
    put_model(&b);
    put_file(folder, "model.onnx", &b);
    put_tensor(folder, "test_data_set_0/input_0.pb", -5);
    put_tensor(folder, "test_data_set_0/output_0.pb", 5);
    snprintf(line, sizeof line, "%s --save %s/list >%s/out", folder, folder, folder);
    assert_int_equal(run(line), 0);
    snprintf(line, sizeof line,
             "test \"$(tail -1 %s/out)\" = "
             "'conformance: 1 passed, 0 failed, 0 unsupported, 0 random of 1'",
             folder);
    assert_int_equal(system(line), 0);
    /* A wrong result. */
    put_tensor(folder, "test_data_set_0/output_0.pb", 6);
    snprintf(line, sizeof line, "%s >/dev/null", folder);
    assert_int_equal(run(line), 1);
    snprintf(line, sizeof line, "%s --list %s/list >/dev/null 2>&1", folder, folder);
    assert_int_equal(run(line), 1);
    /* A model that is none. */
    sbuf_init(&b, NULL);
    sbuf_text(&b, "garbage");
    put_file(folder, "model.onnx", &b);
    snprintf(line, sizeof line, "%s >/dev/null", folder);
    assert_int_equal(run(line), 1);
    snprintf(line, sizeof line, "%s/nowhere 2>/dev/null", folder);
    assert_int_equal(run(line), 1);
    snprintf(line, sizeof line, "rm -r %s", folder);
    assert_int_equal(system(line), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(verdicts_tell_right_from_wrong),
    };
    return cmocka_run_group_tests_name("load conformance", tests, NULL, NULL);
}
