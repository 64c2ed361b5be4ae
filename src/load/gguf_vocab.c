/* SPDX-License-Identifier: Apache-2.0
 * The tokenizer of a GGUF file, from its metadata. */
#include <stdio.h>
#include <string.h>

#include "load/gguf.h"

/* How the words of a vocabulary were cut, by the name the file has for it. */
static const struct way {
    const char *name;
    token_split split;
    bool whole_words, first; /* a whole word may be a token; a token is put before each text */
} ways[] = {
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

/* Special tokens that end a text, whatever else the file says of them. */
static const char *const end_names[] = {
    "<|eot_id|>",         "<|eom_id|>",    "<|im_end|>", "<|end|>", "<end_of_turn>",
    "<|end_of_text|>",    "<|endoftext|>", "<EOT>",      "</s>",    "<|END_OF_TURN_TOKEN|>",
    "<end_of_utterance>", "<eos>",         "[EOT]",      "_<EOT>",
};

typedef struct vocab {
    const load_gguf_file *f;
    arena *memory;
    token_entry *entries; /* of: */
    token_vocabulary v;
    tacit_error *err;
} vocab;

static const load_gguf_pair *pair(const vocab *k, const char *name)
{
    char key[64];
    snprintf(key, sizeof key, "tokenizer.ggml.%s", name);
    return load_gguf_find(k->f, key);
}

static bool is_one_of(const token_entry *e, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strlen(names[i]) == e->length && memcmp(names[i], e->text, e->length) == 0)
            return true;
    return false;
}

/* A number of the file, or *out as it was where there is none. */
static tacit_status take_number(const vocab *k, const char *name, double *out)
{
    const load_gguf_pair *p = pair(k, name);
    if (p && p->kind != LOAD_GGUF_NUMBER)
        return error_set(k->err, TACIT_ERR_FORMAT, "tokenizer.ggml.%s is not a number", name);
    *out = p ? p->number : *out;
    return TACIT_OK;
}

static tacit_status take_flag(const vocab *k, const char *name, bool fallback, bool *out)
{
    double v = fallback;
    TRY(take_number(k, name, &v));
    *out = v != 0;
    return TACIT_OK;
}

/* The token that a number of the file names; where there is none `fallback`, if the vocabulary
 * has it; else -1. */
static tacit_status take_token(const vocab *k, const char *name, int64_t fallback, int64_t *out)
{
    double v = fallback < k->v.count ? (double)fallback : -1;
    TRY(take_number(k, name, &v));
    if (pair(k, name) && !(v >= 0 && v < k->v.count && v == (double)(int64_t)v))
        return error_set(k->err, TACIT_ERR_VALUE,
                         "tokenizer.ggml.%s is %.17g, but the vocabulary has %u tokens", name, v,
                         (unsigned)k->v.count);
    *out = (int64_t)v;
    return TACIT_OK;
}

/* An array by tokens: of `count` elements, or absent. */
static tacit_status by_token(const vocab *k, const char *name, uint64_t count,
                             const load_gguf_pair **out)
{
    *out = pair(k, name);
    if (!*out || (load_gguf_numbers(*out) && (*out)->count == count))
        return TACIT_OK;
    return error_set(k->err, TACIT_ERR_FORMAT, "tokenizer.ggml.%s is not %llu numbers", name,
                     (unsigned long long)count);
}

static tacit_status read_entries(vocab *k)
{
    const load_gguf_pair *tokens = pair(k, "tokens"), *scores, *kinds;
    if (!tokens || !load_gguf_strings(tokens))
        return error_set(k->err, TACIT_ERR_UNSUPPORTED,
                         "the file has no vocabulary (tokenizer.ggml.tokens)");
    if (tokens->count == 0 || tokens->count > TOKEN_MOST)
        return error_set(k->err, TACIT_ERR_LIMIT,
                         "a vocabulary of %llu tokens (tokenizer.ggml.tokens)",
                         (unsigned long long)tokens->count);
    TRY(by_token(k, "scores", tokens->count, &scores));
    TRY(by_token(k, "token_type", tokens->count, &kinds));
    if (k->v.by_score && !scores)
        return error_set(k->err, TACIT_ERR_FORMAT,
                         "the vocabulary has no scores (tokenizer.ggml.scores)");
    token_entry *entries = ARENA_ARRAY(k->memory, tokens->count, token_entry);
    if (!entries)
        return error_memory(k->err, "a vocabulary");
    const uint8_t *at = tokens->items;
    for (uint64_t i = 0; i < tokens->count; i++) {
        token_entry *e = &entries[i];
        unsigned char byte;
        e->text = load_gguf_next(&at, &e->length);
        e->score = scores ? (float)load_gguf_number(scores, i) : 0;
        bool is_byte = k->v.by_score && token_byte_name(e->text, e->length, &byte);
        double kind = kinds     ? load_gguf_number(kinds, i)
                      : is_byte ? TOKEN_BYTE /* files without kinds have bytes all the same */
                                : TOKEN_NORMAL;
        if (!(kind >= TOKEN_NORMAL && kind <= TOKEN_BYTE))
            return error_set(k->err, TACIT_ERR_VALUE,
                             "tokenizer.ggml.token_type of token %llu is %g, not 1 to 6",
                             (unsigned long long)i, kind);
        if (e->score != e->score)
            return error_set(k->err, TACIT_ERR_VALUE,
                             "tokenizer.ggml.scores of token %llu is no number",
                             (unsigned long long)i);
        e->kind = (token_kind)kind;
    }
    k->v.entries = k->entries = entries;
    k->v.count = (uint32_t)tokens->count;
    return TACIT_OK;
}

/* White space behind names belongs to them in Phi-3's texts. Files do not say so: by the model, and
 * with the exceptions that it was trained with. */
static void strip_after_names(vocab *k)
{
    static const char *const others[] = {"<unk>", "<s>", "<|endoftext|>"};
    const load_gguf_pair *model = load_gguf_find(k->f, "general.architecture");
    if (!k->v.by_score || !model || model->kind != LOAD_GGUF_STRING ||
        strcmp(model->text, "phi3") != 0)
        return;
    for (uint32_t i = 0; i < k->v.count; i++) {
        token_entry *e = &k->entries[i];
        e->strip_after = (e->kind == TOKEN_CONTROL || e->kind == TOKEN_USER) &&
                         !is_one_of(e, others, sizeof others / sizeof *others);
    }
}

static tacit_status read_rules(vocab *k)
{
    const load_gguf_pair *merges = pair(k, "merges");
    if (!merges || !load_gguf_strings(merges))
        return error_set(k->err, TACIT_ERR_FORMAT,
                         "the vocabulary has no list of merges (tokenizer.ggml.merges)");
    if (merges->count > TOKEN_MOST)
        return error_set(k->err, TACIT_ERR_LIMIT,
                         "a vocabulary of %llu merges (tokenizer.ggml.merges)",
                         (unsigned long long)merges->count);
    token_rule *rules = ARENA_ARRAY(k->memory, merges->count, token_rule);
    if (!rules)
        return error_memory(k->err, "a vocabulary");
    const uint8_t *at = merges->items;
    for (uint64_t i = 0; i < merges->count; i++) {
        size_t length;
        const char *text = load_gguf_next(&at, &length);
        const char *cut = length > 1 ? memchr(text + 1, ' ', length - 1) : NULL;
        if (!cut)
            return error_set(k->err, TACIT_ERR_FORMAT,
                             "tokenizer.ggml.merges: merge %llu is not two texts with a space "
                             "between",
                             (unsigned long long)i);
        size_t left = (size_t)(cut - text);
        rules[i] = (token_rule){text, cut + 1, left, length - left - 1};
    }
    k->v.rules = rules;
    k->v.n_rules = (uint32_t)merges->count;
    return TACIT_OK;
}

static tacit_status read_ends(vocab *k, int64_t last)
{
    enum { KEYS = 3 };
    VEC(int64_t) ends = {0};
    int64_t named[KEYS] = {last};
    bool ok = true;
    TRY(take_token(k, "eot_token_id", -1, &named[1]));
    TRY(take_token(k, "eom_token_id", -1, &named[2]));
    for (int i = 0; i < KEYS; i++)
        ok = ok && (named[i] < 0 || vec_push(k->memory, &ends, named[i]));
    for (uint32_t i = 0; i < k->v.count; i++)
        /* user-defined ones, too: so older files have what they were tuned with */
        if ((k->entries[i].kind == TOKEN_CONTROL || k->entries[i].kind == TOKEN_USER) &&
            is_one_of(&k->entries[i], end_names, sizeof end_names / sizeof *end_names))
            ok = ok && vec_push(k->memory, &ends, i);
    k->v.ends = ends.data;
    k->v.n_ends = ends.count;
    return ok ? TACIT_OK : error_memory(k->err, "a vocabulary");
}

/* How words are cut; an unknown way would give other tokens than the model knows. */
static tacit_status read_way(vocab *k, bool *first)
{
    const load_gguf_pair *pre = pair(k, "pre");
    const char *name = pre && pre->kind == LOAD_GGUF_STRING ? pre->text : "";
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (strcmp(ways[i].name, name) == 0) {
            k->v.split = ways[i].split;
            k->v.whole_words = ways[i].whole_words;
            *first = ways[i].first;
            return TACIT_OK;
        }
    if (!*name)
        return error_set(k->err, TACIT_ERR_UNSUPPORTED,
                         "the file does not say how words are cut (tokenizer.ggml.pre)");
    return error_set(
        k->err, TACIT_ERR_UNSUPPORTED,
        "words cut as '%s' does (tokenizer.ggml.pre) are not supported: give the model "
        "tokens instead of text",
        name);
}

/* The token put before or behind a text. A file that asks for it has to say which it is; where only
 * the way of cutting asks, and there is none, none is put there. */
static tacit_status take_added(const vocab *k, const char *flag, bool asked, const char *name,
                               int64_t token, int64_t *out)
{
    TRY(take_flag(k, flag, asked, &asked));
    if (asked && token < 0 && pair(k, flag))
        return error_set(k->err, TACIT_ERR_FORMAT,
                         "tokenizer.ggml.%s is set, but there is no tokenizer.ggml.%s", flag, name);
    *out = asked ? token : -1;
    return TACIT_OK;
}

/* Tokens put before and behind a text, and the others that have a meaning. */
static tacit_status read_roles(vocab *k, bool first)
{
    int64_t begins, ends;
    TRY(take_token(k, "bos_token_id", k->v.by_score ? 1 : -1, &begins));
    TRY(take_token(k, "eos_token_id", k->v.by_score ? 2 : -1, &ends));
    TRY(take_added(k, "add_bos_token", first, "bos_token_id", begins, &k->v.first));
    TRY(take_added(k, "add_eos_token", false, "eos_token_id", ends, &k->v.last));
    TRY(take_flag(k, "add_space_prefix", k->v.by_score, &k->v.leading_space));
    k->v.unknown = -1;
    if (k->v.by_score) /* in others every byte is a token, and nothing asks for it */
        TRY(take_token(k, "unknown_token_id", 0, &k->v.unknown));
    return read_ends(k, ends);
}

static tacit_status read_vocabulary(vocab *k)
{
    const load_gguf_pair *model = pair(k, "model");
    const char *name = model && model->kind == LOAD_GGUF_STRING ? model->text : "";
    bool first = true;
    k->v.by_score = strcmp(name, "llama") == 0;
    if (!*name)
        return error_set(k->err, TACIT_ERR_UNSUPPORTED,
                         "the file has no tokenizer (tokenizer.ggml.model)");
    if (!k->v.by_score && strcmp(name, "gpt2") != 0)
        return error_set(k->err, TACIT_ERR_UNSUPPORTED,
                         "a tokenizer '%s' (tokenizer.ggml.model) is not supported: gpt2 and llama "
                         "are",
                         name);
    TRY(read_entries(k));
    strip_after_names(k);
    if (!k->v.by_score) {
        TRY(read_rules(k));
        TRY(read_way(k, &first));
    }
    return read_roles(k, first);
}

tacit_status load_gguf_tokenizer(const load_gguf_file *f, arena *memory, token_tokenizer **out,
                                 tacit_error *err)
{
    arena local; /* for what only making it needs */
    arena_init(&local, memory->allocator);
    vocab k = {.f = f, .memory = &local, .err = err};
    tacit_status status = read_vocabulary(&k);
    if (status == TACIT_OK)
        status = token_tokenizer_new(&k.v, memory, out, err);
    arena_free(&local);
    return status;
}
