/* SPDX-License-Identifier: Apache-2.0
 * Packed weights kept in a file: mapped when everything is as it was, otherwise packed again; never
 * an error, never another result. */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/sbuf.h"
#include "prog/packed.h"
#include "tacit/tacit.h"

enum { OUTPUTS = 4096 };

static char folder[64], model_path[128], packed_path[160];

/* What one compilation and run gave. */
typedef struct outcome {
    uint64_t mapped, packed;
    size_t bytes;
    unsigned char data[OUTPUTS];
    char log[2000];
} outcome;

static void collect(void *context, tacit_log_level level, const char *line)
{
    outcome *o = context;
    size_t used = strlen(o->log);
    if (level <= TACIT_LOG_INFO && strstr(line, "packed weights"))
        snprintf(o->log + used, sizeof o->log - used, "%d %s\n", (int)level, line);
}

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

static void example(const char *arguments)
{
    char command[600];
    snprintf(command, sizeof command, "'%s/tacit' example %s --out %s >/dev/null", TACIT_BINARY_DIR,
             arguments, model_path);
    assert_int_equal(system(command), 0);
    pause_ms(40); /* until another change would be seen */
}

/* All weights lie across their own size, as other writers of such files put them: a field that says
 * who made the model comes before everything else, too. */
static void shift_model(void)
{
    static const char field[] = {0x1a, 1, 'x'};
    struct stat st;
    FILE *f = fopen(model_path, "r+b");
    assert_non_null(f);
    assert_int_equal(fstat(fileno(f), &st), 0);
    char *data = malloc((size_t)st.st_size);
    assert_true(data && fread(data, 1, (size_t)st.st_size, f) == (size_t)st.st_size);
    rewind(f);
    assert_int_equal(fwrite(field, 1, sizeof field, f), sizeof field);
    assert_int_equal(fwrite(data, 1, (size_t)st.st_size, f), st.st_size);
    fclose(f);
    free(data);
    pause_ms(40);
}

/* The model with its weights in another type. */
static void quantise(const char *how)
{
    char command[600], from[200];
    snprintf(from, sizeof from, "%s.f32", model_path);
    assert_int_equal(rename(model_path, from), 0);
    snprintf(command, sizeof command, "'%s/tacit' quantize %s --out %s %s >/dev/null",
             TACIT_BINARY_DIR, from, model_path, how);
    assert_int_equal(system(command), 0);
    pause_ms(40);
}

/* On failure the status; `o` is then unspecified. */
static tacit_status run_model(tacit_model *m, tacit_compile_options options, outcome *o,
                              tacit_error *err)
{
    *o = (outcome){0};
    tacit_log log = {.write = collect, .context = o, .level = TACIT_LOG_INFO};
    options.log = &log;
    tacit_program *p = NULL;
    tacit_session *s = NULL;
    tacit_status status = tacit_compile(m, &options, &p, err);
    if (status == TACIT_OK)
        status = tacit_session_create(p, &s, err);
    tacit_port port;
    if (status == TACIT_OK)
        status = tacit_program_input(p, 0, &port);
    if (status == TACIT_OK) {
        tacit_tensor in = {.dtype = port.dtype, .rank = port.rank, .bytes = port.bytes}, out = {0};
        memcpy(in.dims, port.dims, sizeof in.dims);
        in.data = calloc(1, port.bytes);
        assert_non_null(in.data);
        for (size_t i = 0; port.dtype == TACIT_F32 && i < port.bytes / 4; i++)
            ((float *)in.data)[i] = (float)((int)(i * 37 % 19) - 9) / 8;
        status = tacit_run(s, &in, 1, &out, 1, err);
        o->bytes = out.bytes < OUTPUTS ? out.bytes : OUTPUTS;
        if (status == TACIT_OK)
            memcpy(o->data, out.data, o->bytes);
        tacit_memory_report r;
        tacit_program_memory(p, &r);
        o->mapped = r.mapped_bytes;
        o->packed = r.packed_bytes;
        free(in.data);
    }
    tacit_session_free(s);
    tacit_program_free(p);
    return status;
}

static outcome run_with(tacit_compile_options options)
{
    outcome o;
    tacit_error err = {0};
    tacit_model *m = NULL;
    if (tacit_model_load(model_path, NULL, &m, &err) != TACIT_OK ||
        run_model(m, options, &o, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    tacit_model_free(m);
    return o;
}

static outcome run_packed(void)
{
    return run_with((tacit_compile_options){.packed_file = packed_path});
}

static void expect(const outcome *o, bool mapped, const outcome *same, const char *said)
{
    if (mapped ? o->mapped == 0 || o->mapped > o->packed + 64 * 1024 : o->mapped != 0)
        fail_msg("%llu of %llu bytes are mapped; log: %s", (unsigned long long)o->mapped,
                 (unsigned long long)o->packed, o->log);
    if (same) {
        assert_int_equal(o->bytes, same->bytes);
        assert_memory_equal(o->data, same->data, o->bytes);
    }
    if (said && !strstr(o->log, said))
        fail_msg("the log does not say '%s' but: %s", said, o->log);
}

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

/* Nothing but the model and the packed weights lies in the folder. */
static void expect_no_rest(void)
{
    char command[200];
    snprintf(command, sizeof command, "test \"$(ls -A %s | grep -cv '^model.onnx')\" = 0", folder);
    assert_int_equal(system(command), 0);
}

static int set_up(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/tacit-packed-XXXXXX");
    if (!mkdtemp(folder))
        return 1;
    snprintf(model_path, sizeof model_path, "%s/model.onnx", folder);
    snprintf(packed_path, sizeof packed_path, "%s.tacit-cache", model_path);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) != 0;
}

static void mapped_the_second_time(void **state)
{
    (void)state;
    static const char *const models[] = {"mlp --width 96 --batch 3", "mlp --width 160 --batch 40",
                                         "block --hidden 64 --heads 4 --seq 16 --ffn 128",
                                         "squeezenet --image 64", "mobilenetv2 --image 64"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        example(models[i]);
        unlink(packed_path);
        outcome plain = run_with((tacit_compile_options){0});
        outcome first = run_packed(), second = run_packed();
        assert_string_equal(plain.log, "");
        expect(&first, false, &plain, "kept in");
        expect(&second, true, &plain, "mapped from");
        outcome named = run_with((tacit_compile_options){.packed_file = "auto"});
        expect(&named, true, &plain, "mapped from");
        expect_no_rest();
    }
    struct stat st;
    assert_int_equal(stat(packed_path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0644);
}

/* What was quantised, and weights that are widened when they are packed. */
static void quantised_models(void **state)
{
    (void)state;
    static const char *const models[] = {"--weights int4", "--weights int8",
                                         "--weights int8 --static"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        example("block --hidden 64 --heads 4 --seq 16 --ffn 128");
        quantise(models[i]);
        unlink(packed_path);
        outcome plain = run_with((tacit_compile_options){0}), first = run_packed();
        outcome second = run_packed();
        expect(&first, false, &plain, "kept in");
        expect(&second, true, &plain, "mapped from");
        assert_true(second.mapped > second.packed / 2);
    }
}

/* A product of [3, 64] with a weight in few bits. Constants: the weight, its scales, zero points;
 * NULL: none. They are lists of numbers from `low` on, which are not the same everywhere. */
typedef struct few_bits {
    const char *node;
    struct {
        const char *type;
        int count, low, span;
        double unit;
    } constants[3];
} few_bits;

static const few_bits narrow_models[] = {
    {"com.microsoft.MatMulNBits(%x, %c0, %c1, %c2) K=64 N=40 bits=4 block_size=32 accuracy_level=4",
     {{"u8[40,2,16]", 1280, 0, 256, 1}, {"f32[80]", 80, 1, 90, 0.001}, {"u8[40]", 40, 0, 256, 1}}},
    {"com.microsoft.MatMulNBits(%x, %c0, %c1) K=64 N=40 bits=8 block_size=32 accuracy_level=4",
     {{"u8[40,2,32]", 2560, 0, 256, 1}, {"f32[80]", 80, 1, 90, 0.0078125}}},
    {"com.microsoft.MatMulNBits(%x, %c0, %c1) K=64 N=40 bits=4 block_size=32",
     {{"u8[40,2,16]", 1280, 0, 256, 1}, {"f32[80]", 80, 1, 90, 0.001}}},
    {"tacit.DequantMatMul(%x, %c0, %c1, %c2) scheme=\"int8\" n=40 block=32 int8_activations=1",
     {{"i8[64,40]", 2560, -128, 256, 1},
      {"f32[2,40]", 80, 1, 90, 0.001},
      {"i8[2,40]", 80, -9, 20, 1}}},
    {"tacit.DequantMatMul(%x, %c0, %c1) scheme=\"int4\" n=40 block=32 int8_activations=1",
     {{"u8[1280]", 1280, 0, 256, 1}, {"f32[2,40]", 80, 1, 90, 0.001}}},
    {"tacit.DequantMatMul(%x, %c0) scheme=\"gguf\" type=\"Q4_0\" n=40 int8_activations=1",
     {{"u8[1440]", 1440, 0, 48, 1}}},
    {"tacit.DequantMatMul(%x, %c0) scheme=\"gguf\" type=\"Q8_0\" n=40",
     {{"u8[2720]", 2720, 0, 48, 1}}},
    {"tacit.DequantMatMul(%x, %c0, %c1) scheme=\"fp8\" n=40",
     {{"u8[64,40]", 2560, 0, 120, 1}, {"f32[40]", 40, 1, 90, 0.001}}},
    {"MatMulInteger(%q, %c0, %z)", {{"i8[64,40]", 2560, -128, 256, 1}}},
};
enum { NARROW_MODELS = sizeof narrow_models / sizeof *narrow_models };

/* One number of constant `changed` (-1: none) is another. */
static void write_narrow(const few_bits *m, int changed)
{
    FILE *f = fopen(model_path, "w");
    assert_non_null(f);
    fprintf(f, "tacit 1\ngraph \"g\" {\nin %%x : f32[3,64]\n");
    for (int c = 0; c < 3 && m->constants[c].type; c++) {
        fprintf(f, "const %%c%d : %s = [", c, m->constants[c].type);
        for (int i = 0; i < m->constants[c].count; i++) {
            int at = i * 37 + (i / 50) * 11 + (c == changed && i == 17 ? 7 : 0);
            double value = (m->constants[c].low + at % m->constants[c].span) * m->constants[c].unit;
            fprintf(f, "%s%.9g", i ? ", " : "", value);
        }
        fprintf(f, "]\n");
    }
    if (strstr(m->node, "%q"))
        fprintf(f, "%%q, %%s, %%z = DynamicQuantizeLinear(%%x) @quantise\n");
    fprintf(f, "%%y = %s @product\nout %%y\n}\n", m->node);
    fclose(f);
}

/* The weight, but also what it is unpacked by, decides what is packed. */
static void scales_are_part_of_the_key(void **state)
{
    (void)state;
    for (int i = 0; i < NARROW_MODELS; i++) {
        const few_bits *m = &narrow_models[i];
        unlink(packed_path);
        write_narrow(m, -1);
        outcome plain = run_with((tacit_compile_options){0}), first = run_packed();
        outcome second = run_packed();
        expect(&first, false, &plain, "kept in");
        expect(&second, true, &plain, "mapped from");
        for (int c = 0; c < 3 && m->constants[c].type; c++) {
            write_narrow(m, c);
            plain = run_with((tacit_compile_options){0});
            outcome changed = run_packed(), again = run_packed();
            expect(&changed, false, &plain, "packed again");
            expect(&again, true, &plain, "mapped from");
            assert_memory_not_equal(changed.data, first.data, first.bytes);
        }
    }
}

static void another_executor_may_have_it(void **state)
{
    (void)state;
    example("mlp --width 96 --batch 3");
    outcome first = run_packed();
    outcome tasks = run_with((tacit_compile_options){
        .packed_file = packed_path, .executor = TACIT_EXEC_TASKS, .threads = 2});
    expect(&tasks, true, &first, NULL);
    outcome oracle = run_with(
        (tacit_compile_options){.packed_file = packed_path, .executor = TACIT_EXEC_REFERENCE});
    expect(&oracle, false, NULL, NULL);
    outcome again = run_packed();
    expect(&again, true, &first, NULL);
}

static void other_options_pack_again(void **state)
{
    (void)state;
    example("mlp --width 160 --batch 40");
    outcome first = run_packed();
    tacit_compile_options plain = {.packed_file = packed_path, .plain_sums = 1};
    outcome other = run_with(plain);
    /* Where no product takes another way they are the same, and so is the file. */
    if (memcmp(other.data, first.data, first.bytes) != 0)
        expect(&other, false, NULL, "packed again");
    outcome again = run_with(plain);
    expect(&again, true, &other, NULL);
}

static void another_instruction_set_packs_again(void **state)
{
    (void)state;
    example("mlp --width 96 --batch 3");
    outcome first = run_packed();
    setenv("TACIT_ISA", "portable", 1);
    outcome portable = run_packed(), again = run_packed();
    unsetenv("TACIT_ISA");
    if (memcmp(portable.data, first.data, first.bytes) != 0)
        expect(&portable, false, NULL, "packed again");
    expect(&again, true, &portable, NULL);
    outcome back = run_packed();
    expect(&back, back.mapped != 0, &first, NULL);
}

static void expect_change_seen(void)
{
    unlink(packed_path);
    outcome first = run_packed(), second = run_packed();
    expect(&second, true, &first, NULL);
    /* One weight is another, size and modification time are as before. */
    struct stat st;
    assert_int_equal(stat(model_path, &st), 0);
    int fd = open(model_path, O_RDWR);
    float x[8];
    off_t at = st.st_size / 2 & ~(off_t)3;
    assert_int_equal(pread(fd, x, sizeof x, at), sizeof x);
    for (int i = 0; i < 8; i++)
        x[i] = 3.0f;
    assert_int_equal(pwrite(fd, x, sizeof x, at), sizeof x);
    struct timespec times[2] = {st.st_atim, st.st_mtim};
    assert_int_equal(futimens(fd, times), 0);
    close(fd);
    pause_ms(40);
    outcome changed = run_packed(), plain = run_with((tacit_compile_options){0});
    expect(&changed, false, &plain, "packed again");
    assert_memory_not_equal(changed.data, first.data, first.bytes);
    outcome again = run_packed();
    expect(&again, true, &plain, NULL);
}

static void a_changed_model_packs_again(void **state)
{
    (void)state;
    static const char *const weights[] = {NULL, "--weights f16", "--weights bf16"};
    for (size_t i = 0; i < 2 * sizeof weights / sizeof *weights; i++) {
        example("mlp --width 96 --batch 3");
        if (weights[i / 2])
            quantise(weights[i / 2]);
        if (i % 2)
            shift_model(); /* weights are copied, or read across their size */
        expect_change_seen();
    }
}

/* Whoever wrote the file: copies of weights are known by where they lay. */
static void weights_across_their_size(void **state)
{
    (void)state;
    static const char *const models[] = {"mlp --width 96 --batch 3", "mlp --width 160 --batch 1",
                                         "block --hidden 64 --heads 4 --seq 16 --ffn 128",
                                         "mobilenetv2 --image 64"};
    for (size_t i = 0; i < 2 * sizeof models / sizeof *models; i++) {
        example(models[i / 2]);
        if (i % 2)
            quantise("--weights f16");
        outcome straight = run_with((tacit_compile_options){0});
        shift_model();
        unlink(packed_path);
        outcome plain = run_with((tacit_compile_options){0}), first = run_packed();
        outcome second = run_packed();
        expect(&plain, false, &straight, NULL);
        expect(&first, false, &straight, "kept in");
        expect(&second, true, &straight, "mapped from");
    }
}

static void a_model_just_written_is_not_kept(void **state)
{
    (void)state;
    example("mlp --width 96 --batch 3");
    int fd = open(model_path, O_RDWR);
    assert_int_equal(fchmod(fd, 0600), 0); /* changed now */
    close(fd);
    outcome o = run_packed();
    /* A slow machine may take longer than that. */
    if (strstr(o.log, "just been written"))
        assert_false(exists(packed_path));
}

/* Whatever lies there: packed as ever, and the file made anew. */
static void expect_ignored(const outcome *first, const char *why)
{
    outcome o = run_packed();
    expect(&o, false, first, why);
    outcome again = run_packed();
    expect(&again, true, first, NULL);
}

static void overwrite(size_t at, const void *data, size_t size)
{
    int fd = open(packed_path, O_WRONLY);
    assert_int_equal(pwrite(fd, data, size, (off_t)at), size);
    close(fd);
}

static void damaged_files_are_ignored(void **state)
{
    (void)state;
    example("mlp --width 96 --batch 3");
    outcome first = run_packed();
    struct stat st;
    assert_int_equal(stat(packed_path, &st), 0);
    overwrite(0, "GARBAGE", 8);
    expect_ignored(&first, "no file of packed weights");
    overwrite(8, "\2", 1);
    expect_ignored(&first, "format is 2");
    overwrite(60, "\1", 1);
    expect_ignored(&first, "head is damaged");
    const off_t sizes[] = {0, 1, 4095, 4096, st.st_size - 1, st.st_size + 1};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        assert_int_equal(truncate(packed_path, sizes[i]), 0);
        expect_ignored(&first, "not used");
    }
    /* A well-formed file of something else, larger and smaller than what is needed. */
    const uint64_t others[] = {64, (uint64_t)st.st_size, 1 << 22};
    for (size_t i = 0; i < 3; i++) {
        packed_head h = {.bytes = others[i]};
        unsigned char head[PACKED_HEAD];
        packed_head_write(&h, head);
        overwrite(0, head, sizeof head);
        assert_int_equal(truncate(packed_path, (off_t)(PACKED_HEAD + others[i])), 0);
        expect_ignored(&first, "packed again");
    }
    expect_no_rest();
}

static void files_that_others_write_are_ignored(void **state)
{
    (void)state;
    example("mlp --width 96 --batch 3");
    outcome first = run_packed();
    assert_int_equal(chmod(packed_path, 0664), 0);
    expect_ignored(&first, "others may write it");
    assert_int_equal(chmod(packed_path, 0646), 0);
    expect_ignored(&first, "others may write it");
    if (geteuid() == 0) {
        assert_int_equal(chown(packed_path, 12345, 0), 0);
        expect_ignored(&first, "others may write it");
    }
    mode_t before = umask(0);
    unlink(packed_path);
    outcome o = run_packed();
    umask(before);
    expect(&o, false, &first, "kept in");
    outcome again = run_packed();
    expect(&again, true, &first, NULL);
}

static void what_cannot_be_written_is_a_warning(void **state)
{
    (void)state;
    example("mlp --width 96 --batch 3");
    outcome plain = run_with((tacit_compile_options){0});
    char missing[200];
    snprintf(missing, sizeof missing, "%s/nowhere/file", folder);
    outcome o = run_with((tacit_compile_options){.packed_file = missing});
    expect(&o, false, &plain, "not kept in");
    o = run_with((tacit_compile_options){.packed_file = folder});
    expect(&o, false, &plain, "not kept in");
    o = run_with((tacit_compile_options){.packed_file = "/dev/null"});
    expect(&o, false, &plain, "not kept in");
    /* No room: a limit stands for a full disk. */
    struct rlimit all, few;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &all), 0);
    few = (struct rlimit){.rlim_cur = 20000, .rlim_max = all.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &few), 0);
    o = run_packed();
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &all), 0);
    signal(SIGXFSZ, SIG_DFL);
    expect(&o, false, &plain, "not kept in");
    assert_false(exists(packed_path));
    expect_no_rest();
}

/* A model without a file is known by its contents. */
static void models_in_memory(void **state)
{
    (void)state;
    example("mlp --width 96 --batch 3");
    file_map file;
    tacit_error err = {0};
    assert_int_equal(file_map_open(&file, model_path, &err), TACIT_OK);
    unsigned char *copy = malloc(file.size);
    assert_non_null(copy);
    memcpy(copy, file.data, file.size);
    outcome seen[4];
    for (int i = 0; i < 4; i++) {
        tacit_model *m = NULL;
        if (i == 2)
            memset(copy + file.size / 2, 0x3d, 64);
        assert_int_equal(tacit_model_load_memory(copy, file.size, NULL, &m, &err), TACIT_OK);
        assert_int_equal(
            run_model(m, (tacit_compile_options){.packed_file = packed_path}, &seen[i], &err),
            TACIT_OK);
        outcome none;
        assert_int_equal(run_model(m, (tacit_compile_options){.packed_file = "auto"}, &none, &err),
                         TACIT_ERR_ARGUMENT);
        tacit_model_free(m);
    }
    expect(&seen[0], false, NULL, "kept in");
    expect(&seen[1], true, &seen[0], NULL);
    expect(&seen[2], false, NULL, "packed again");
    assert_memory_not_equal(seen[2].data, seen[0].data, seen[0].bytes);
    expect(&seen[3], true, &seen[2], NULL);
    free(copy);
    file_map_close(&file);
}

typedef struct contender {
    pthread_t thread;
    const outcome *same;
    uint32_t mapped, wrong;
} contender;

static void *contend(void *context)
{
    contender *c = context;
    for (int i = 0; i < 6; i++) {
        tacit_error err = {0};
        tacit_model *m = NULL;
        outcome o;
        bool right = tacit_model_load(model_path, NULL, &m, &err) == TACIT_OK &&
                     run_model(m, (tacit_compile_options){.packed_file = packed_path}, &o, &err) ==
                         TACIT_OK &&
                     o.bytes == c->same->bytes && memcmp(o.data, c->same->data, o.bytes) == 0;
        c->wrong += !right;
        c->mapped += right && o.mapped;
        tacit_model_free(m);
        if (i == 2)
            unlink(packed_path);
    }
    return NULL;
}

static void many_at_a_time(void **state)
{
    (void)state;
    enum { MANY = 4 };
    example("mlp --width 96 --batch 3");
    outcome plain = run_with((tacit_compile_options){0});
    contender all[MANY] = {0};
    for (int i = 0; i < MANY; i++) {
        all[i].same = &plain;
        assert_int_equal(pthread_create(&all[i].thread, NULL, contend, &all[i]), 0);
    }
    uint32_t mapped = 0;
    for (int i = 0; i < MANY; i++) {
        pthread_join(all[i].thread, NULL);
        assert_int_equal(all[i].wrong, 0);
        mapped += all[i].mapped;
    }
    assert_true(mapped > 0);
    expect_no_rest();
}

/* The mapping outlives the file's name. */
static void a_file_may_go_while_it_is_used(void **state)
{
    (void)state;
    example("mlp --width 96 --batch 3");
    outcome first = run_packed();
    tacit_error err = {0};
    tacit_model *m = NULL;
    tacit_program *p = NULL;
    tacit_session *s = NULL;
    tacit_port port;
    tacit_compile_options o = {.packed_file = packed_path};
    assert_int_equal(tacit_model_load(model_path, NULL, &m, &err), TACIT_OK);
    assert_int_equal(tacit_compile(m, &o, &p, &err), TACIT_OK);
    unlink(packed_path);
    assert_int_equal(tacit_session_create(p, &s, &err), TACIT_OK);
    assert_int_equal(tacit_program_input(p, 0, &port), TACIT_OK);
    tacit_tensor in = {.dtype = port.dtype, .rank = port.rank, .bytes = port.bytes}, out = {0};
    memcpy(in.dims, port.dims, sizeof in.dims);
    in.data = calloc(1, port.bytes);
    assert_non_null(in.data);
    for (size_t i = 0; i < port.bytes / 4; i++)
        ((float *)in.data)[i] = (float)((int)(i * 37 % 19) - 9) / 8;
    assert_int_equal(tacit_run(s, &in, 1, &out, 1, &err), TACIT_OK);
    assert_memory_equal(out.data, first.data, first.bytes);
    free(in.data);
    tacit_session_free(s);
    tacit_program_free(p);
    tacit_model_free(m);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(mapped_the_second_time),
        CASE(quantised_models),
        CASE(scales_are_part_of_the_key),
        CASE(another_executor_may_have_it),
        CASE(other_options_pack_again),
        CASE(another_instruction_set_packs_again),
        CASE(a_changed_model_packs_again),
        CASE(weights_across_their_size),
        CASE(a_model_just_written_is_not_kept),
        CASE(damaged_files_are_ignored),
        CASE(files_that_others_write_are_ignored),
        CASE(what_cannot_be_written_is_a_warning),
        CASE(models_in_memory),
        CASE(many_at_a_time),
        CASE(a_file_may_go_while_it_is_used),
    };
    return cmocka_run_group_tests_name("packed weights in a file", tests, NULL, NULL);
}
