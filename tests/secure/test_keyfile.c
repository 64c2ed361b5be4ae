/* SPDX-License-Identifier: Apache-2.0
 * Key files of many chunks: written and read by one thread or by several they are the same bytes,
 * a changed byte is noticed in its chunk, and a disk that is full leaves nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/rng.h"
#include "secure/keyfile.h"

enum { CHUNKS = 21, RUNS = 3, REST = 777 };
static const size_t run_bytes = (size_t)CHUNKS * KEY_CHUNK + REST;
static char folder[64], path[96];
static uint8_t *text; /* what the runs hold */

static int make_folder(void **state)
{
    (void)state;
    rng r = rng_seed(3);
    snprintf(folder, sizeof folder, "/tmp/tacit-keyfile-XXXXXX");
    if (!mkdtemp(folder) || setenv("TACIT_STATE_HOME", folder, 1) != 0)
        return -1;
    snprintf(path, sizeof path, "%s/a.key", folder);
    if (!(text = malloc(RUNS * run_bytes)))
        return -1;
    for (size_t i = 0; i < RUNS * run_bytes; i++)
        text[i] = (uint8_t)rng_u64(&r);
    return 0;
}
static int drop_folder(void **state)
{
    (void)state;
    char command[128];
    free(text);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

static tacit_status write_file(unsigned threads, uint64_t session, tacit_error *err)
{
    key_header h = {.party = 1, .prg = 1, .tree = 1, .runs = RUNS, .run_bytes = run_bytes};
    uint8_t secret[KEY_SECRET] = {0}, seed[16] = {9};
    key_writer w;
#ifdef TACIT_HAVE_OPENSSL
    h.flags |= KEY_ENCRYPTED;
#endif
    memcpy(h.session, &session, sizeof session);
    TRY(key_secret(path, NULL, true, secret, err));
    tacit_status status = key_writer_open(&w, path, &h, secret, seed, err);
    w.threads = threads;
    rng r = rng_seed(threads);
    for (size_t run = 0; run < RUNS && status == TACIT_OK; run++) {
        for (size_t at = 0; at < run_bytes && status == TACIT_OK;) { /* pieces of all sizes */
            size_t n = rng_below(&r, 3) ? rng_below(&r, 5000) : rng_below(&r, 3 * KEY_CHUNK);
            n = n < run_bytes - at ? n : run_bytes - at;
            status = key_writer_add(&w, text + run * run_bytes + at, n, err);
            at += n;
        }
        if (status == TACIT_OK)
            status = key_writer_end_run(&w, err);
    }
    if (status == TACIT_OK)
        return key_writer_commit(&w, err);
    key_writer_abort(&w);
    return status;
}

/* Reads run `run`; how many bytes came before the first that did not. */
static size_t read_run(unsigned threads, uint32_t run, tacit_status *status)
{
    key_reader k;
    tacit_error err = {0};
    if (key_reader_open(&k, path, NULL, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    k.threads = threads;
    if (key_take_run(&k, run, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    uint8_t *got = malloc(run_bytes + 1);
    rng r = rng_seed(run);
    size_t at = 0;
    *status = TACIT_OK;
    while (at < run_bytes) {
        size_t n = rng_below(&r, 3) ? 1 + rng_below(&r, 4000) : 1 + rng_below(&r, 3 * KEY_CHUNK);
        n = n < run_bytes - at ? n : run_bytes - at;
        if ((*status = key_reader_read(&k, got + at, n, &err)) != TACIT_OK)
            break;
        at += n;
    }
    assert_memory_equal(got, text + run * run_bytes, at);
    if (*status == TACIT_OK)
        assert_int_equal(key_reader_read(&k, got, 1, &err), TACIT_ERR_FORMAT);
    free(got);
    key_reader_close(&k);
    return at;
}

static void threads_do_not_matter(void **state)
{
    (void)state;
    static const unsigned counts[] = {1, 3, 8};
    tacit_error err = {0};
    tacit_status status;
    for (uint64_t w = 0; w < 3; w++) {
        assert_int_equal(write_file(counts[w], 1 + w, &err), TACIT_OK);
        for (uint32_t run = 0; run < RUNS; run++)
            assert_int_equal(read_run(counts[run], RUNS - 1 - run, &status), run_bytes);
    }
}

static void a_changed_byte_is_noticed_in_its_chunk(void **state)
{
    (void)state;
    tacit_error err = {0};
    for (uint64_t k = 0; k < 4; k++) {
        size_t chunk = k * 7; /* the last one is the short one */
        off_t at = KEY_HEADER + 16 + KEY_TAG + (off_t)(chunk * (KEY_CHUNK + KEY_TAG) + 99);
        assert_int_equal(write_file(4, 10 + k, &err), TACIT_OK);
        int fd = open(path, O_RDWR);
        uint8_t byte;
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= 4;
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        close(fd);
        tacit_status status;
        size_t good = read_run(4, 0, &status);
        assert_int_equal(status, TACIT_ERR_SECURITY);
        assert_true(good <= chunk * KEY_CHUNK);
        assert_int_equal(read_run(4, 1, &status), run_bytes);
    }
}

static void a_full_disk_leaves_nothing(void **state)
{
    (void)state;
    struct rlimit usual, low;
    struct stat st;
    tacit_error err = {0};
    unlink(path);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &usual), 0);
    signal(SIGXFSZ, SIG_IGN);
    low = usual;
    low.rlim_cur = 5 * KEY_CHUNK;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    tacit_status status = write_file(4, 20, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &usual), 0);
    assert_int_equal(status, TACIT_ERR_IO);
    assert_non_null(strstr(err.message, "a.key"));
    assert_int_not_equal(stat(path, &st), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_do_not_matter),
        cmocka_unit_test(a_changed_byte_is_noticed_in_its_chunk),
        cmocka_unit_test(a_full_disk_leaves_nothing),
    };
    return cmocka_run_group_tests_name("secure.keyfile", tests, make_folder, drop_folder);
}
