/* SPDX-License-Identifier: Apache-2.0
 * Vocabularies in GGUF files: what the keys mean, and files that do not fit together. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "load/gguf.h"
#include "support/gguf_writer.h"

#define COUNT(array) ((uint32_t)(sizeof(array) / sizeof *(array)))
#define KEY "tokenizer.ggml."

/* What is written; an absent part is NULL or -1. */
typedef struct parts {
    const char *model, *pre, *tokens_as_text;
    const char *const *tokens;
    uint32_t n_tokens;
    const float *scores;
    uint32_t n_scores;
    const int32_t *kinds;
    uint32_t n_kinds;
    const char *const *merges;
    uint32_t n_merges;
    int64_t first, last, eot, unknown, add_first, add_last, space;
    const char *architecture;
    const char *text_key; /* written as a string, which it should not be */
} parts;

static const char *const scored[] = {"<unk>", "<s>",     "</s>",      "\u2581",
                                     "a",     "\u2581a", "<|eot_id|>"};
static const float scores[] = {0, 0, 0, -3, -4, -1, 0};
static const int32_t kinds[] = {2, 3, 3, 1, 1, 1, 3};
static const char *const bytes[] = {"\u0120", "a", "b", "ab", "<|im_end|>", "<|endoftext|>"};
static const int32_t byte_kinds[] = {1, 1, 1, 1, 3, 3};
static const char *const merges[] = {"a b"};
#define NUMBERS                                                                                    \
    .first = -1, .last = -1, .eot = -1, .unknown = -1, .add_first = -1, .add_last = -1, .space = -1
#define SCORED                                                                                     \
    {                                                                                              \
        .model = "llama", .tokens = scored, .n_tokens = COUNT(scored), .scores = scores,           \
        .n_scores = COUNT(scores), .kinds = kinds, .n_kinds = COUNT(kinds), NUMBERS                \
    }
#define BYTES                                                                                      \
    {                                                                                              \
        .model = "gpt2", .pre = "gpt-2", .tokens = bytes, .n_tokens = COUNT(bytes),                \
        .kinds = byte_kinds, .n_kinds = COUNT(byte_kinds), .merges = merges,                       \
        .n_merges = COUNT(merges), NUMBERS                                                         \
    }

static void put_number(sbuf *b, const char *name, int64_t v)
{
    if (v >= 0)
        gguf_number(b, name, (uint32_t)v);
}

static void write_file(const parts *p, sbuf *b)
{
    gguf_begin(b);
    if (p->architecture)
        gguf_string(b, "general.architecture", p->architecture);
    if (p->model)
        gguf_string(b, KEY "model", p->model);
    if (p->pre)
        gguf_string(b, KEY "pre", p->pre);
    if (p->tokens_as_text)
        gguf_string(b, KEY "tokens", p->tokens_as_text);
    if (p->tokens)
        gguf_strings(b, KEY "tokens", p->tokens, p->n_tokens);
    if (p->scores)
        gguf_floats(b, KEY "scores", p->scores, p->n_scores);
    if (p->kinds)
        gguf_ints(b, KEY "token_type", p->kinds, p->n_kinds);
    if (p->merges)
        gguf_strings(b, KEY "merges", p->merges, p->n_merges);
    put_number(b, KEY "bos_token_id", p->first);
    put_number(b, KEY "eos_token_id", p->last);
    put_number(b, KEY "eot_token_id", p->eot);
    put_number(b, KEY "unknown_token_id", p->unknown);
    put_number(b, KEY "add_bos_token", p->add_first);
    put_number(b, KEY "add_eos_token", p->add_last);
    if (p->space >= 0)
        gguf_flag(b, KEY "add_space_prefix", p->space != 0);
    if (p->text_key)
        gguf_string(b, p->text_key, "seven");
}

static tacit_status make(const parts *p, arena *memory, token_tokenizer **out, tacit_error *err)
{
    sbuf b;
    arena file;
    load_gguf_file f;
    write_file(p, &b);
    arena_init(&file, NULL);
    arena_init(memory, NULL);
    tacit_status status = load_gguf(b.data, b.length, &file, &f, err);
    if (status == TACIT_OK)
        status = load_gguf_tokenizer(&f, memory, out, err);
    arena_free(&file); /* a tokenizer needs neither the file… */
    sbuf_free(&b);     /* … nor its bytes */
    return status;
}

static void expect_tokens(const parts *p, const char *text, int flags, uint32_t n,
                          const int64_t *want)
{
    arena memory;
    token_tokenizer *t;
    token_ids ids = {0};
    tacit_error err = {TACIT_OK, ""};
    if (make(p, &memory, &t, &err) != TACIT_OK ||
        token_encode(t, text, strlen(text), flags, &memory, &ids, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    for (uint32_t i = 0; i < n && i < ids.count; i++)
        if (ids.data[i] != want[i])
            fail_msg("%s: '%s': token %u is %lld, expected %lld", p->pre ? p->pre : "", text, i,
                     (long long)ids.data[i], (long long)want[i]);
    assert_int_equal(ids.count, n);
    arena_free(&memory);
}
#define EXPECT(p, text, ...)                                                                       \
    expect_tokens(p, text, 0, COUNT(((int64_t[]){__VA_ARGS__})), (int64_t[]){__VA_ARGS__})
#define EXPECT_SPECIAL(p, text, ...)                                                               \
    expect_tokens(p, text, TACIT_ENCODE_SPECIAL, COUNT(((int64_t[]){__VA_ARGS__})),                \
                  (int64_t[]){__VA_ARGS__})

static void what_keys_mean(void **state)
{
    (void)state;
    parts p = SCORED; /* a first token (1) and a leading space go without saying */
    EXPECT(&p, "a", 1, 5);
    EXPECT(&p, "aq", 1, 5, 0);
    p.add_first = 0;
    p.add_last = 1;
    EXPECT(&p, "a", 5, 2);
    p.space = 0;
    p.last = 4;
    EXPECT(&p, "a", 4, 4);
    p.add_first = 1;
    p.first = 3;
    EXPECT(&p, "a", 3, 4, 4);
    parts q = BYTES;
    q.unknown = 99; /* nothing asks for it */
    EXPECT(&q, "ab a", 3, 0, 1);
    q.first = 5; /* GPT-2 has such a token, but does not put it before a text… */
    EXPECT(&q, "ab", 3);
    q.pre = "llama-bpe"; /* … and llama 3 does */
    EXPECT(&q, "ab", 5, 3);
    q.add_first = 0;
    EXPECT(&q, "ab", 3);
    q.kinds = NULL; /* then all are text */
    EXPECT(&q, "ab", 3);
}

/* Phi-3 by scores: names of special tokens but three take the white space behind them. */
static void white_space_behind_names(void **state)
{
    (void)state;
    static const char *const names[] = {"<unk>", "<s>",     "<|endoftext|>", "\u2581",
                                        "a",     "<|end|>", "</s>",          "<|user|>"};
    static const int32_t types[] = {2, 3, 3, 1, 1, 3, 4, 3};
    static const float zeros[COUNT(names)];
    parts p = SCORED;
    p.tokens = names;
    p.kinds = types;
    p.scores = zeros;
    p.n_tokens = p.n_kinds = p.n_scores = COUNT(names);
    p.space = p.add_first = 0;
    EXPECT_SPECIAL(&p, "<|user|> a", 7, 3, 4);
    p.architecture = "phi3";
    EXPECT_SPECIAL(&p, "<|user|> a<|end|>  a</s> a", 7, 4, 5, 4, 6, 4);
    EXPECT_SPECIAL(&p, "<s> a<unk> a<|endoftext|> a", 1, 3, 4, 0, 3, 4, 2, 3, 4);
    parts q = BYTES; /* Phi-4, by merges: not */
    q.architecture = "phi3";
    EXPECT_SPECIAL(&q, "<|im_end|> a", 4, 0, 1);
}

static void what_ends_a_text(void **state)
{
    (void)state;
    arena memory;
    token_tokenizer *t;
    tacit_error err = {TACIT_OK, ""};
    parts p = SCORED, q = BYTES;
    p.eot = 4;
    assert_int_equal(make(&p, &memory, &t, &err), TACIT_OK);
    assert_true(token_is_end(t, 2) && token_is_end(t, 4) && token_is_end(t, 6));
    assert_false(token_is_end(t, 1) || token_is_end(t, 3));
    arena_free(&memory);
    assert_int_equal(make(&q, &memory, &t, &err), TACIT_OK);
    assert_true(token_is_end(t, 4) && token_is_end(t, 5));
    assert_false(token_is_end(t, 0));
    arena_free(&memory);
    /* by name control and user-defined tokens, but no others */
    static const char *const names[] = {"<|im_end|>", "<end_of_utterance>", "<eos>", "[EOT]",
                                        "_<EOT>",     "<|im_start|>",       "</s>",  "<EOT>"};
    q = (parts)BYTES;
    q.tokens = names;
    q.kinds = (const int32_t[]){4, 3, 4, 3, 3, 4, 1, 5};
    q.n_tokens = q.n_kinds = COUNT(names);
    assert_int_equal(make(&q, &memory, &t, &err), TACIT_OK);
    for (uint32_t i = 0; i < COUNT(names); i++)
        assert_int_equal(token_is_end(t, i), i < 5);
    arena_free(&memory);
}

/* All names that are known, in the order of docs/generation.md. */
static const struct {
    const char *name;
    token_split way;
    bool first, whole; /* a token is put before a text; a whole word may be a token */
} known_ways[] = {
    {"gpt-2", TOKEN_GPT2, false, false},         {"gpt2", TOKEN_GPT2, false, false},
    {"mpt", TOKEN_GPT2, false, false},           {"olmo", TOKEN_GPT2, false, false},
    {"jais", TOKEN_GPT2, false, false},          {"phi-2", TOKEN_GPT2, false, false},
    {"jina-es", TOKEN_GPT2, false, false},       {"jina-de", TOKEN_GPT2, false, false},
    {"roberta-bpe", TOKEN_GPT2, false, false},   {"starcoder", TOKEN_DIGITS, false, false},
    {"refact", TOKEN_DIGITS, false, false},      {"command-r", TOKEN_DIGITS, false, false},
    {"smollm", TOKEN_DIGITS, false, false},      {"codeshell", TOKEN_DIGITS, false, false},
    {"exaone", TOKEN_DIGITS, false, false},      {"minerva-7b", TOKEN_DIGITS, false, false},
    {"llama3", TOKEN_LLAMA3, true, true},        {"llama-v3", TOKEN_LLAMA3, true, true},
    {"llama-bpe", TOKEN_LLAMA3, true, true},     {"falcon3", TOKEN_LLAMA3, true, true},
    {"dbrx", TOKEN_LLAMA3, false, false},        {"smaug-bpe", TOKEN_LLAMA3, false, false},
    {"chatglm-bpe", TOKEN_LLAMA3, false, false}, {"glm4", TOKEN_LLAMA3, false, false},
    {"qwen2", TOKEN_QWEN2, false, false},        {"deepseek-r1-qwen", TOKEN_QWEN2, false, false},
    {"stablelm2", TOKEN_QWEN2, false, false},    {"megrez", TOKEN_QWEN2, false, false},
};

static void every_way_of_cutting(void **state)
{
    (void)state;
    enum { A, B, DOT, ONE, TWO, THREE, FOUR, UP_TO_2, UP_TO_3, UP_TO_4, DOT_B, WHOLE, FIRST };
    static const char *const names[] = {"a",  "b",   ".",    "1",  "2",  "3",  "4",
                                        "12", "123", "1234", ".b", "ab", "<f>"};
    static const int32_t types[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3};
    static const char *const steps[] = {"1 2", "12 3", "123 4", ". b"};
    /* "1234.b", by the patterns of token/split.h */
    static const struct {
        uint32_t count;
        int64_t ids[6];
    } want[] = {
        [TOKEN_GPT2] = {3, {UP_TO_4, DOT, B}},
        [TOKEN_DIGITS] = {6, {ONE, TWO, THREE, FOUR, DOT, B}},
        [TOKEN_LLAMA3] = {3, {UP_TO_3, FOUR, DOT_B}},
        [TOKEN_QWEN2] = {5, {ONE, TWO, THREE, FOUR, DOT_B}},
    };
    for (uint32_t i = 0; i < COUNT(known_ways); i++) {
        parts p = BYTES;
        int64_t ids[7] = {FIRST};
        uint32_t first = known_ways[i].first, n = want[known_ways[i].way].count;
        p.pre = known_ways[i].name;
        p.tokens = names;
        p.kinds = types;
        p.n_tokens = p.n_kinds = COUNT(names);
        p.merges = steps;
        p.n_merges = COUNT(steps);
        p.first = FIRST;
        memcpy(ids + first, want[known_ways[i].way].ids, n * sizeof *ids);
        expect_tokens(&p, "1234.b", 0, first + n, ids);
        p.add_first = 0;
        if (known_ways[i].whole)
            EXPECT(&p, "ab", WHOLE);
        else
            EXPECT(&p, "ab", A, B);
    }
}

static void expect_refused(const parts *p, tacit_status status, const char *message)
{
    arena memory;
    token_tokenizer *t = NULL;
    tacit_error err = {TACIT_OK, ""};
    tacit_status got = make(p, &memory, &t, &err);
    if (got != status || !strstr(err.message, message))
        fail_msg("%s: '%s', expected '%s'", tacit_status_text(got), err.message, message);
    assert_null(t);
    arena_free(&memory);
}

static void what_does_not_fit(void **state)
{
    (void)state;
    parts none = {NUMBERS}, p = SCORED, q = BYTES;
    expect_refused(&none, TACIT_ERR_UNSUPPORTED, "no tokenizer (tokenizer.ggml.model)");
#define REFUSED(from, status, message, ...)                                                        \
    do {                                                                                           \
        parts x = from;                                                                            \
        __VA_ARGS__;                                                                               \
        expect_refused(&x, status, message);                                                       \
    } while (0)
    REFUSED(p, TACIT_ERR_UNSUPPORTED, "a tokenizer 'bert'", x.model = "bert");
    REFUSED(p, TACIT_ERR_UNSUPPORTED, "no vocabulary", x.tokens = NULL);
    REFUSED(p, TACIT_ERR_UNSUPPORTED, "no vocabulary", x.tokens = NULL; x.tokens_as_text = "a");
    REFUSED(p, TACIT_ERR_LIMIT, "a vocabulary of 0 tokens (tokenizer.ggml.tokens)", x.n_tokens = 0);
    REFUSED(p, TACIT_ERR_FORMAT, "no scores", x.scores = NULL);
    REFUSED(p, TACIT_ERR_FORMAT, "tokenizer.ggml.scores is not 7 numbers", x.n_scores = 6);
    REFUSED(p, TACIT_ERR_FORMAT, "tokenizer.ggml.token_type is not 7 numbers", x.n_kinds = 3);
    REFUSED(p, TACIT_ERR_FORMAT, "tokenizer.ggml.token_type is not 7 numbers", x.kinds = NULL;
            x.text_key = KEY "token_type");
    REFUSED(p, TACIT_ERR_VALUE, "tokenizer.ggml.token_type of token 0 is 7, not 1 to 6",
            x.kinds = ((const int32_t[]){7, 1, 1, 1, 1, 1, 1}));
    REFUSED(p, TACIT_ERR_VALUE, "tokenizer.ggml.token_type of token 1 is 0",
            x.kinds = ((const int32_t[]){1, 0, 1, 1, 1, 1, 1}));
    REFUSED(p, TACIT_ERR_VALUE, "tokenizer.ggml.scores of token 2 is no number",
            x.scores = ((const float[]){0, 0, NAN, 0, 0, 0, 0}));
    REFUSED(p, TACIT_ERR_VALUE, "tokenizer.ggml.bos_token_id is 7, but the vocabulary has 7 tokens",
            x.first = 7);
    REFUSED(p, TACIT_ERR_VALUE, "tokenizer.ggml.eos_token_id is 4294967295", x.last = UINT32_MAX);
    REFUSED(p, TACIT_ERR_VALUE, "tokenizer.ggml.eot_token_id is 100", x.eot = 100);
    REFUSED(p, TACIT_ERR_VALUE, "tokenizer.ggml.unknown_token_id is 9", x.unknown = 9);
    REFUSED(p, TACIT_ERR_FORMAT, "bos_token_id is not a number", x.text_key = KEY "bos_token_id");
    REFUSED(p, TACIT_ERR_FORMAT, "add_bos_token is not a number", x.text_key = KEY "add_bos_token");
    REFUSED(q, TACIT_ERR_FORMAT, "no list of merges", x.merges = NULL);
    REFUSED(q, TACIT_ERR_FORMAT, "no list of merges", x.merges = NULL; x.text_key = KEY "merges");
    REFUSED(q, TACIT_ERR_FORMAT, "tokenizer.ggml.merges: merge 0 is not two texts",
            x.merges = ((const char *const[]){"ab"}));
    REFUSED(q, TACIT_ERR_FORMAT, "tokenizer.ggml.merges: merge 1 is not two texts",
            x.merges = ((const char *const[]){"a b", ""});
            x.n_merges = 2);
    REFUSED(q, TACIT_ERR_FORMAT,
            "tokenizer.ggml.add_bos_token is set, but there is no tokenizer.ggml.bos_token_id",
            x.add_first = 1);
    REFUSED(q, TACIT_ERR_FORMAT,
            "tokenizer.ggml.add_eos_token is set, but there is no tokenizer.ggml.eos_token_id",
            x.add_last = 1);
    REFUSED(q, TACIT_ERR_UNSUPPORTED, "does not say how words are cut", x.pre = NULL);
    REFUSED(q, TACIT_ERR_UNSUPPORTED, "words cut as 'tekken' does", x.pre = "tekken");
#undef REFUSED
}

/* Names of bytes are bytes where the file does not say what its tokens are. */
static void bytes_without_kinds(void **state)
{
    (void)state;
    static const char *const names[] = {"\u2581", "a", "<0x0A>", "<0xg0>"};
    static const float zeros[COUNT(names)];
    parts p = SCORED;
    p.tokens = names;
    p.scores = zeros;
    p.kinds = NULL;
    p.n_tokens = p.n_scores = COUNT(names);
    p.space = p.add_first = 0;
    EXPECT(&p, "a\na", 1, 2, 1);
}

/* What a file does not say is only taken for granted where the vocabulary has such tokens. */
static void small_vocabularies(void **state)
{
    (void)state;
    parts p = SCORED;
    p.tokens = scored + 3; /* "▁", "a", "▁a": no <s> at 1, no </s> at 2 */
    p.scores = scores + 3;
    p.n_tokens = p.n_scores = 1;
    p.kinds = NULL;
    EXPECT(&p, " ", 0, 0);
    p.add_first = 1; /* then it has to say which */
    expect_refused(&p, TACIT_ERR_FORMAT, "there is no tokenizer.ggml.bos_token_id");
    parts q = BYTES; /* llama 3's way of cutting alone does not mean that there is one */
    q.pre = "llama-bpe";
    EXPECT(&q, "ab", 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_keys_mean),     cmocka_unit_test(white_space_behind_names),
        cmocka_unit_test(what_ends_a_text),   cmocka_unit_test(every_way_of_cutting),
        cmocka_unit_test(what_does_not_fit),  cmocka_unit_test(bytes_without_kinds),
        cmocka_unit_test(small_vocabularies),
    };
    return cmocka_run_group_tests_name("GGUF vocabularies", tests, NULL, NULL);
}
