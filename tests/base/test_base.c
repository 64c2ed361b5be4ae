/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/cpu.h"
#include "base/file.h"
#include "base/map.h"
#include "base/rng.h"
#include "base/sbuf.h"
#include "base/sha256.h"
#include "base/slab.h"
#include "base/vec.h"

static void error_carries_context(void **state)
{
    (void)state;
    tacit_error err;
    assert_int_equal(error_set(&err, TACIT_ERR_SHAPE, "K %d != %d", 3, 4), TACIT_ERR_SHAPE);
    error_context(&err, err.status, "node '%s'", "fc1");
    assert_string_equal(err.message, "node 'fc1': K 3 != 4");
    assert_int_equal(error_set(NULL, TACIT_ERR_IO, "unseen"), TACIT_ERR_IO);
    assert_string_equal(tacit_status_text(TACIT_ERR_SHAPE), "shape mismatch");
}

/* Short texts and such as do not fit where texts are first written. */
static void arena_prints_texts_of_all_lengths(void **state)
{
    (void)state;
    char letters[600];
    memset(letters, 'x', sizeof letters);
    arena a;
    arena_init(&a, NULL);
    for (int n = 0; n < (int)sizeof letters; n++) {
        const char *text = arena_printf(&a, "%.*s|%d", n, letters, n);
        char end[16];
        snprintf(end, sizeof end, "|%d", n);
        assert_int_equal(strlen(text), (size_t)n + strlen(end));
        assert_memory_equal(text, letters, (size_t)n);
        assert_string_equal(text + n, end);
    }
    arena_free(&a);
}

/* Takes and releases huge pages, sometimes two at a time: nobody else has what one has. */
static void *use_huge_pages(void *context)
{
    size_t own = (size_t)context;
    for (size_t i = 0; i < 200; i++) {
        size_t *a = mem_alloc(NULL, MEM_HUGE_PAGE),
               *b = i % 3 ? NULL : mem_alloc(NULL, MEM_HUGE_PAGE);
        if (!a || a == b || (uintptr_t)a % MEM_HUGE_PAGE != 0)
            return (void *)1;
        a[0] = a[MEM_HUGE_PAGE / sizeof *a - 1] = own;
        if (b)
            b[0] = ~own;
        sched_yield();
        if (a[0] != own || a[MEM_HUGE_PAGE / sizeof *a - 1] != own || (b && b[0] != ~own))
            return (void *)1;
        mem_release(NULL, a, MEM_HUGE_PAGE);
        mem_release(NULL, b, MEM_HUGE_PAGE);
    }
    return NULL;
}

static void huge_pages_have_one_owner(void **state)
{
    (void)state;
    pthread_t threads[4];
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use_huge_pages, (void *)(i + 7)), 0);
    for (size_t i = 0; i < 4; i++) {
        void *failed;
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
}

static void *no_memory(void *context, size_t size, size_t align)
{
    (void)context, (void)size, (void)align;
    return NULL;
}
static void nothing_to_release(void *context, void *memory, size_t size)
{
    (void)context, (void)memory, (void)size;
}

/* What is expected but cannot be had is forgotten: who asks for memory hears of it. */
static void arena_expects_in_vain(void **state)
{
    (void)state;
    const tacit_allocator none = {no_memory, nothing_to_release, NULL};
    arena a;
    arena_init(&a, &none);
    arena_expect(&a, 1 << 20);
    assert_int_equal(a.total, 0);
    assert_int_equal(a.shared, 0);
    assert_null(arena_alloc(&a, 10));
    arena_free(&a);
}

/* All blocks of an arena in another are there, large ones too, and one that expects much takes it
 * in one. */
static void arena_lies_in_another(void **state)
{
    (void)state;
    arena outer, inner;
    arena_init(&outer, NULL);
    arena_expect(&outer, 1 << 10); /* too little to prepare for */
    assert_int_equal(outer.total, 0);
    arena_expect(&outer, 1 << 20);
    assert_int_equal(outer.total, MEM_HUGE_PAGE);
    arena_expect(&outer, 1 << 20); /* there is room already */
    assert_int_equal(outer.total, MEM_HUGE_PAGE);
    arena_init_in(&inner, &outer);
    unsigned char *kept[100];
    for (size_t i = 0; i < 100; i++) {
        kept[i] = arena_alloc_aligned(&inner, 64 + i * i * 4, 64);
        assert_non_null(kept[i]);
        assert_int_equal((uintptr_t)kept[i] % 64, 0);
        memset(kept[i], (int)i, 64 + i * i * 4);
        memset(arena_alloc(&outer, 100), 255, 100);
    }
    for (size_t i = 0; i < 100; i++)
        for (size_t k = 0; k < 64 + i * i * 4; k++)
            assert_int_equal(kept[i][k], i);
    assert_true(inner.total <= outer.total);
    assert_int_equal(outer.total, MEM_HUGE_PAGE); /* 1.3 MB of small blocks, and what fills them */
    assert_null(arena_alloc(&inner, SIZE_MAX - 8));
    arena_free(&inner);
    assert_int_equal(inner.total, 0);
    memset(arena_alloc(&inner, 10000), 1, 10000); /* and is usable again */
    arena_free(&outer);
}

static void arena_keeps_alignment_and_contents(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    unsigned char *kept[500];
    for (size_t i = 0; i < 500; i++) {
        size_t align = (size_t)1 << (i % 8);
        kept[i] = arena_alloc_aligned(&a, i * 37 % 5000 + 1, align);
        assert_non_null(kept[i]);
        assert_int_equal((uintptr_t)kept[i] % align, 0);
        memset(kept[i], (int)(i & 255), i * 37 % 5000 + 1);
    }
    for (size_t i = 0; i < 500; i++)
        for (size_t k = 0; k < i * 37 % 5000 + 1; k++)
            assert_int_equal(kept[i][k], i & 255);
    assert_null(arena_array(&a, SIZE_MAX / 2, 3));
    arena_free(&a);
    assert_int_equal(a.total, 0);
}

/* An allocator that counts what is out. */
typedef struct ledger {
    size_t bytes, blocks;
} ledger;

static void *ledger_alloc(void *context, size_t size, size_t align)
{
    ledger *l = context;
    l->bytes += size;
    l->blocks++;
    return aligned_alloc(align, (size + align - 1) / align * align);
}

static void ledger_release(void *context, void *memory, size_t size)
{
    ledger *l = context;
    l->bytes -= size;
    l->blocks--;
    free(memory);
}

static bool is_resident(char *at)
{
    unsigned char there = 0;
    char *page = at - ((uintptr_t)at & 4095);
    assert_int_equal(mincore(page, 1, &there), 0);
    return there & 1;
}

/* Some systems say yes for all. */
static bool residence_is_known(void)
{
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(page != MAP_FAILED);
    bool known = !is_resident(page);
    munmap(page, 4096);
    return known;
}

/* Pages that were found for nobody are given back; what was asked for can be used in any case. */
static void slab_finds_pages(void **state)
{
    (void)state;
    enum { EXPECTED = 64 << 20, ASKED = 5 << 20 };
    slab s;
    slab_init(&s, NULL, EXPECTED);
    slab_find_pages(&s);
    /* If there is another processor, and one block for all. */
    bool finds = s.finder && residence_is_known();
    char *data = slab_alloc(&s, ASKED);
    assert_non_null(data);
    for (int i = 0; finds && i < 10000 && !is_resident(data + EXPECTED - 1); i++)
        usleep(1000);
    if (finds)
        assert_true(is_resident(data) && is_resident(data + EXPECTED - 1));
    slab_settle(&s);
    assert_null(s.finder);
    if (finds)
        assert_true(is_resident(data + ASKED - 1) && !is_resident(data + EXPECTED - 1));
    memset(data, 1, ASKED);
    slab_settle(&s);
    slab_free(&s);
    slab_init(&s, NULL, EXPECTED); /* nothing was asked for */
    slab_find_pages(&s);
    slab_settle(&s);
    assert_null(s.blocks);
    assert_non_null(slab_alloc(&s, 1));
    slab_free(&s);
    slab_init(&s, NULL, EXPECTED); /* released while pages are being found */
    slab_find_pages(&s);
    slab_back(&s, (slab_mark){0});
    assert_null(s.finder);
    slab_free(&s);
}

static void *all_but_the_third(void *context, size_t size, size_t align)
{
    return ++*(int *)context == 3 ? NULL : aligned_alloc(align, (size + align - 1) / align * align);
}

static void release_it(void *context, void *memory, size_t size)
{
    (void)context, (void)size;
    free(memory);
}

/* A block, its memory, and then nothing for whoever finds pages: they are found when written. */
static void slab_does_without_finding_pages(void **state)
{
    (void)state;
    int count = 0;
    tacit_allocator short_of = {all_but_the_third, release_it, &count};
    slab s;
    slab_init(&s, &short_of, 8 << 20);
    slab_find_pages(&s);
    assert_null(s.finder);
    char *data = slab_alloc(&s, 1 << 20);
    assert_non_null(data);
    memset(data, 1, 1 << 20);
    slab_settle(&s);
    slab_free(&s);
}

static void slab_gives_back_to_a_mark(void **state)
{
    (void)state;
    ledger l = {0};
    tacit_allocator counting = {ledger_alloc, ledger_release, &l};
    slab s;
    slab_init(&s, &counting, 5000);
    slab_mark empty = slab_here(&s);
    unsigned char *kept[40];
    for (size_t i = 0; i < 40; i++) {
        size_t bytes = i == 20 ? 3 << 20 : i * 37;
        kept[i] = slab_alloc(&s, bytes);
        assert_non_null(kept[i]);
        assert_int_equal((uintptr_t)kept[i] % MEM_ALIGN, 0);
        memset(kept[i], (int)i, bytes);
        slab_mark here = slab_here(&s);
        size_t before = l.bytes;
        unsigned char *again = slab_alloc(&s, 100), *large = slab_alloc(&s, 1 << 20);
        assert_non_null(large);
        memset(again, 255, 100); /* must not touch what was kept */
        memset(large, 255, 1 << 20);
        slab_back(&s, here);
        assert_int_equal(l.bytes, before);
    }
    for (size_t i = 0; i < 40; i++)
        for (size_t k = 0; k < (i == 20 ? 3 << 20 : i * 37); k++)
            assert_int_equal(kept[i][k], i);
    assert_null(slab_alloc(&s, SIZE_MAX - 100));
    slab_back(&s, empty);
    assert_int_equal(l.blocks, 0);
    assert_non_null(slab_alloc(&s, 10));
    slab_free(&s);
    assert_int_equal(l.bytes, 0);
}

static void map_finds_what_was_put(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    map m;
    map_init(&m, &a);
    assert_null(map_get(&m, "absent"));
    for (intptr_t i = 1; i <= 3000; i++)
        assert_true(map_put(&m, arena_printf(&a, "key%d", (int)i), (void *)i));
    assert_true(map_put(&m, "key7", (void *)99));
    assert_int_equal(m.count, 3000);
    assert_ptr_equal(map_get(&m, "key7"), (void *)99);
    assert_ptr_equal(map_get(&m, "key2999"), (void *)2999);
    assert_null(map_get(&m, "key3001"));
    assert_true(map_reserve(&m, 1000)); /* has more already */
    assert_int_equal(m.capacity, 8192);
    assert_true(map_reserve(&m, 4097));
    assert_int_equal(m.capacity, 16384);
    assert_int_equal(m.count, 3000);
    assert_ptr_equal(map_get(&m, "key2999"), (void *)2999);
    map empty;
    map_init(&empty, &a);
    assert_true(map_reserve(&empty, 100));
    const map_slot *slots = empty.slots;
    for (intptr_t i = 1; i <= 100; i++)
        assert_true(map_put(&empty, arena_printf(&a, "key%d", (int)i), (void *)i));
    assert_ptr_equal(empty.slots, slots); /* there was room */
    assert_ptr_equal(map_get(&empty, "key100"), (void *)100);
    arena_free(&a);
}

static void vec_grows(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    VEC(int) v = {0};
    for (int i = 0; i < 1000; i++)
        assert_true(vec_push(&a, &v, i * i));
    assert_int_equal(v.count, 1000);
    assert_int_equal(v.data[999], 998001);
    arena_free(&a);
}

static void sbuf_escapes_json(void **state)
{
    (void)state;
    sbuf b;
    sbuf_init(&b, NULL);
    sbuf_json(&b, "a\"b\\\n\xff\xc3\xa9");
    assert_string_equal(sbuf_str(&b), "\"a\\\"b\\\\\\u000a\xEF\xBF\xBD\xc3\xa9\"");
    sbuf_free(&b);
}

static void file_write_is_whole_or_absent(void **state)
{
    (void)state;
    char dir[] = "/tmp/tacit-test-XXXXXX";
    assert_non_null(mkdtemp(dir));
    char path[64];
    snprintf(path, sizeof path, "%s/f", dir);
    tacit_error err;
    assert_int_equal(file_write_all(path, "hello", 5, &err), TACIT_OK);
    file_writer w;
    assert_int_equal(file_writer_open(&w, path, &err), TACIT_OK);
    assert_int_equal(file_writer_write(&w, "xx", 2, &err), TACIT_OK);
    file_writer_abort(&w);
    file_map m;
    assert_int_equal(file_map_open(&m, path, &err), TACIT_OK);
    assert_int_equal(m.size, 5);
    assert_memory_equal(m.data, "hello", 5);
    file_map_close(&m);
    assert_int_equal(file_map_open(&m, "/nonexistent/x", &err), TACIT_ERR_IO);
    assert_non_null(strstr(err.message, "/nonexistent/x"));
    unlink(path);
    assert_int_equal(rmdir(dir), 0); /* no temporary file was left behind */
}

/* Pieces that do not fit the writer's own come out in order, the rest at the end with them. */
static void file_of_many_pieces(void **state)
{
    (void)state;
    enum { COUNT = 2 << 20 }; /* numbers */
    static const size_t sizes[] = {1, 4099, (1 << 20) - 3, (5 << 20) + 7, 64};
    char path[] = "/tmp/tacit-test-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    uint32_t *numbers = malloc(COUNT * sizeof *numbers);
    assert_non_null(numbers);
    for (uint32_t i = 0; i < COUNT; i++)
        numbers[i] = i * 2654435761u;
    size_t bytes = COUNT * sizeof *numbers - 5, at = 0;
    tacit_error err;
    file_writer w;
    assert_int_equal(file_writer_open(&w, path, &err), TACIT_OK);
    for (uint32_t i = 0; at < bytes; i++) {
        size_t size = sizes[i % 5] < bytes - at ? sizes[i % 5] : bytes - at;
        assert_int_equal(file_writer_write(&w, (char *)numbers + at, size, &err), TACIT_OK);
        at += size;
    }
    assert_int_equal(file_writer_commit(&w, &err), TACIT_OK);
    file_map m;
    assert_int_equal(file_map_open(&m, path, &err), TACIT_OK);
    assert_int_equal(m.size, bytes);
    assert_memory_equal(m.data, numbers, bytes);
    file_map_close(&m);
    free(numbers);
    unlink(path);
}

static void rng_is_reproducible_and_plausible(void **state)
{
    (void)state;
    rng a = rng_seed(1), b = rng_seed(1);
    double sum = 0, squares = 0;
    for (int i = 0; i < 10000; i++) {
        double x = rng_normal(&a);
        assert_true(x == rng_normal(&b));
        sum += x;
        squares += x * x;
    }
    assert_true(sum / 1e4 > -0.05 && sum / 1e4 < 0.05);
    assert_true(squares / 1e4 > 0.95 && squares / 1e4 < 1.05);
}

/* The answers that FIPS 180 gives, however the message comes in. */
static bool hashes_right(void)
{
    static const struct {
        const char *piece;
        size_t times;
        uint8_t begin[4], end[4];
    } known[] = {
        {"", 1, {0xe3, 0xb0, 0xc4, 0x42}, {0x78, 0x52, 0xb8, 0x55}},
        {"abc", 1, {0xba, 0x78, 0x16, 0xbf}, {0xf2, 0x00, 0x15, 0xad}},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         1,
         {0x24, 0x8d, 0x6a, 0x61},
         {0x19, 0xdb, 0x06, 0xc1}},
        {"a", 1000000, {0xcd, 0xc7, 0x6e, 0x5c}, {0xc7, 0x11, 0x2c, 0xd0}},
    };
    static const size_t steps[] = {1, 7, 63, 64, 65, 1000, 100000};
    static uint8_t message[1000000];
    bool right = true;
    for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
        size_t each = strlen(known[k].piece), size = each * known[k].times;
        for (size_t i = 0; i < size; i++)
            message[i] = (uint8_t)known[k].piece[i % each];
        for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
            uint8_t sum[32];
            sha256 s;
            sha256_init(&s);
            for (size_t at = 0; at < size; at += steps[i])
                sha256_add(&s, message + at, size - at < steps[i] ? size - at : steps[i]);
            sha256_end(&s, sum);
            right &= memcmp(sum, known[k].begin, 4) == 0 && memcmp(sum + 28, known[k].end, 4) == 0;
        }
    }
    return right;
}

/* By the processor's own instructions, where it has them, and without; a process asks once. */
static void sha256_is_that_of_the_standard(void **state)
{
    (void)state;
    static const char *const limits[] = {"portable", "avx512"};
    for (int i = 0; i < 2; i++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            setenv("TACIT_ISA", limits[i], 1);
            _exit(hashes_right() ? 0 : 1);
        }
        int how = -1;
        assert_int_equal(waitpid(child, &how, 0), child);
        assert_int_equal(how, 0);
    }
}

static void isa_can_be_limited(void **state)
{
    (void)state;
    setenv("TACIT_ISA", "portable", 1);
    assert_int_equal(cpu_detect().isa, CPU_PORTABLE);
    assert_false(cpu_detect().vaes512);
    unsetenv("TACIT_ISA");
    assert_true(cpu_count() >= 1);
}

/* A largest cache is larger than a first-level one and smaller than memory. */
static void caches_have_a_size(void **state)
{
    (void)state;
    uint64_t bytes = cpu_cache_bytes();
    assert_true(bytes >= 64 << 10);
    assert_true(bytes <= UINT64_C(4) << 30);
    assert_true(cpu_core_bytes() >= 64 << 10);
    assert_true(cpu_core_bytes() <= bytes || bytes == CPU_CACHE_DEFAULT);
    FILE *f = fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "r");
    unsigned long long kilobytes = 0;
    if (f && fscanf(f, "%lluK", &kilobytes) == 1) /* about: valgrind tells of its own processor */
        assert_in_range(bytes >> 10, kilobytes / 16, 16 * kilobytes);
    if (f)
        fclose(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(error_carries_context),
        cmocka_unit_test(arena_keeps_alignment_and_contents),
        cmocka_unit_test(arena_prints_texts_of_all_lengths),
        cmocka_unit_test(arena_lies_in_another),
        cmocka_unit_test(arena_expects_in_vain),
        cmocka_unit_test(huge_pages_have_one_owner),
        cmocka_unit_test(slab_finds_pages),
        cmocka_unit_test(slab_does_without_finding_pages),
        cmocka_unit_test(slab_gives_back_to_a_mark),
        cmocka_unit_test(map_finds_what_was_put),
        cmocka_unit_test(vec_grows),
        cmocka_unit_test(sbuf_escapes_json),
        cmocka_unit_test(file_write_is_whole_or_absent),
        cmocka_unit_test(file_of_many_pieces),
        cmocka_unit_test(rng_is_reproducible_and_plausible),
        cmocka_unit_test(sha256_is_that_of_the_standard),
        cmocka_unit_test(isa_can_be_limited),
        cmocka_unit_test(caches_have_a_size),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
