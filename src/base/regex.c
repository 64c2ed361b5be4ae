/* SPDX-License-Identifier: Apache-2.0
 * Patterns compile to a small program whose jumps are relative, so that a piece of it can be
 * moved and repeated as a block. */
#include "base/regex.h"

#include <string.h>

#include "base/utf8.h"
#include "base/vec.h"

enum { MOST_INSTRUCTIONS = 100000, MOST_DEPTH = 200, MOST_REPEAT = 1000 };

typedef enum regex_code {
    RE_SET,   /* consume one code point of set `a` */
    RE_SPLIT, /* go on at +a and at +b */
    RE_JUMP,  /* go on at +a */
    RE_BEGIN, /* start of text (or line) */
    RE_END,
    RE_WORD,     /* word boundary */
    RE_NOT_WORD, /* anything else */
    RE_MATCH,
} regex_code;

typedef struct regex_step {
    regex_code code;
    int32_t a, b;
} regex_step;

typedef struct regex_range {
    uint32_t first, last;
} regex_range;

typedef struct regex_set {
    uint32_t start, count; /* in ranges */
    bool negated, fold;
} regex_set;

struct regex {
    VEC(regex_step) steps;
    VEC(regex_range) ranges;
    VEC(regex_set) sets;
};

typedef struct parser {
    const char *at, *end, *start;
    arena *memory;
    regex *re;
    bool fold, dot_all, multi_line;
    uint32_t depth;
    tacit_error *err;
} parser;

static tacit_status bad(parser *p, const char *why)
{
    return error_set(p->err, TACIT_ERR_VALUE, "regular expression, byte %zu: %s",
                     (size_t)(p->at - p->start), why);
}

static bool more(const parser *p)
{
    return p->at < p->end;
}

static uint32_t take(parser *p)
{
    uint32_t n, v = utf8_decode(p->at, (uint64_t)(p->end - p->at), &n);
    p->at += n;
    return v;
}

static bool eat(parser *p, const char *text)
{
    size_t n = strlen(text);
    if ((size_t)(p->end - p->at) < n || memcmp(p->at, text, n) != 0)
        return false;
    p->at += n;
    return true;
}

static tacit_status emit(parser *p, regex_code code, int32_t a, int32_t b)
{
    if (p->re->steps.count >= MOST_INSTRUCTIONS)
        return bad(p, "the pattern is too large");
    if (!vec_push(p->memory, &p->re->steps, (regex_step){code, a, b}))
        return error_memory(p->err, "a regular expression");
    return TACIT_OK;
}

/* Makes room for one step at `at`; the block behind it moves whole. */
static tacit_status insert(parser *p, uint32_t at, regex_code code, int32_t a, int32_t b)
{
    TRY(emit(p, code, a, b));
    regex_step *s = p->re->steps.data;
    uint32_t n = p->re->steps.count;
    memmove(s + at + 1, s + at, (n - 1 - at) * sizeof *s);
    s[at] = (regex_step){code, a, b};
    return TACIT_OK;
}

static tacit_status add_range(parser *p, uint32_t first, uint32_t last)
{
    if (!vec_push(p->memory, &p->re->ranges, (regex_range){first, last}))
        return error_memory(p->err, "a regular expression");
    return TACIT_OK;
}

/* The ranges since `start` become a set, and a step that consumes it. */
static tacit_status emit_set(parser *p, uint32_t start, bool negated)
{
    regex_set set = {start, p->re->ranges.count - start, negated, p->fold};
    if (!vec_push(p->memory, &p->re->sets, set))
        return error_memory(p->err, "a regular expression");
    return emit(p, RE_SET, (int32_t)p->re->sets.count - 1, 0);
}

/* Code points that are not in the sorted ranges since `start` take their place. */
static tacit_status complement(parser *p, uint32_t start)
{
    regex_range copy[32];
    uint32_t n = p->re->ranges.count - start, next = 0;
    memcpy(copy, p->re->ranges.data + start, n * sizeof *copy);
    p->re->ranges.count = start;
    for (uint32_t i = 0; i < n; i++) {
        if (copy[i].first > next)
            TRY(add_range(p, next, copy[i].first - 1));
        next = copy[i].last + 1;
    }
    return add_range(p, next, 0x10ffff);
}

typedef struct named_class {
    const char *name;
    regex_range ranges[5];
} named_class;

static const named_class classes[] = {
    {"digit", {{'0', '9'}}},
    {"space", {{9, 13}, {' ', ' '}}},
    {"word", {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}},
    {"alnum", {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}}},
    {"alpha", {{'A', 'Z'}, {'a', 'z'}}},
    {"ascii", {{0, 0x7f}}},
    {"blank", {{9, 9}, {' ', ' '}}},
    {"cntrl", {{0, 31}, {127, 127}}},
    {"graph", {{'!', '~'}}},
    {"lower", {{'a', 'z'}}},
    {"print", {{' ', '~'}}},
    {"punct", {{'!', '/'}, {':', '@'}, {'[', '`'}, {'{', '~'}}},
    {"upper", {{'A', 'Z'}}},
    {"xdigit", {{'0', '9'}, {'A', 'F'}, {'a', 'f'}}},
};

static tacit_status add_class(parser *p, const char *name, size_t length, bool negated)
{
    uint32_t start = p->re->ranges.count;
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        if (strlen(classes[i].name) != length || memcmp(classes[i].name, name, length) != 0)
            continue;
        for (const regex_range *r = classes[i].ranges; r->last; r++)
            TRY(add_range(p, r->first, r->last));
        return negated ? complement(p, start) : TACIT_OK;
    }
    return bad(p, "no such character class");
}

/* \d and the like; false when `c` names no class. */
static bool perl_class(parser *p, uint32_t c, tacit_status *status)
{
    const char *name = c == 'd' || c == 'D'   ? "digit"
                       : c == 's' || c == 'S' ? "space"
                       : c == 'w' || c == 'W' ? "word"
                                              : NULL;
    if (name)
        *status = add_class(p, name, strlen(name), c < 'a');
    return name != NULL;
}

static int hex_digit(uint32_t c)
{
    return c >= '0' && c <= '9'   ? (int)c - '0'
           : c >= 'a' && c <= 'f' ? (int)c - 'a' + 10
           : c >= 'A' && c <= 'F' ? (int)c - 'A' + 10
                                  : -1;
}

static tacit_status hex_escape(parser *p, uint32_t *out)
{
    bool braces = eat(p, "{");
    *out = 0;
    for (int i = 0; more(p) && (braces ? *p->at != '}' : i < 2); i++) {
        int digit = hex_digit(take(p));
        if (digit < 0 || *out > 0x10ffff)
            return bad(p, "bad hexadecimal escape");
        *out = *out * 16 + (uint32_t)digit;
    }
    return braces && !eat(p, "}") ? bad(p, "missing }") : TACIT_OK;
}

/* The code point a backslash escape stands for, after the backslash. */
static tacit_status escape(parser *p, uint32_t *out)
{
    if (!more(p))
        return bad(p, "trailing backslash");
    uint32_t c = take(p);
    static const char from[] = "tnrfva", to[] = "\t\n\r\f\v\a";
    const char *simple = c < 128 && c ? strchr(from, (int)c) : NULL;
    *out = simple ? (uint32_t)to[simple - from] : c;
    if (c == 'x')
        return hex_escape(p, out);
    if (c >= '0' && c <= '7') {
        *out = c - '0';
        for (int i = 0; i < 2 && more(p) && *p->at >= '0' && *p->at <= '7'; i++)
            *out = *out * 8 + (take(p) - '0');
        return TACIT_OK;
    }
    bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    return letter && !simple ? bad(p, "this escape is not supported") : TACIT_OK;
}

/* [...], after the bracket. */
static tacit_status parse_brackets(parser *p)
{
    uint32_t start = p->re->ranges.count;
    bool negated = eat(p, "^"), first = true;
    for (; more(p) && (first || *p->at != ']'); first = false) {
        uint32_t low = 0, high;
        tacit_status status = TACIT_OK;
        if (eat(p, "[:")) {
            bool inverse = eat(p, "^");
            const char *name = p->at;
            while (more(p) && *p->at != ':')
                p->at++;
            TRY(add_class(p, name, (size_t)(p->at - name), inverse));
            if (!eat(p, ":]"))
                return bad(p, "missing :]");
            continue;
        }
        if (eat(p, "\\")) {
            const char *back = p->at;
            if (more(p) && perl_class(p, take(p), &status)) {
                TRY(status);
                continue;
            }
            p->at = back;
            TRY(escape(p, &low));
        } else {
            low = take(p);
        }
        high = low;
        if (p->end - p->at > 1 && p->at[0] == '-' && p->at[1] != ']') {
            p->at++;
            if (eat(p, "\\"))
                TRY(escape(p, &high));
            else
                high = take(p);
        }
        if (high < low)
            return bad(p, "the range runs backwards");
        TRY(add_range(p, low, high));
    }
    if (!eat(p, "]"))
        return bad(p, "missing ]");
    return emit_set(p, start, negated);
}

static tacit_status parse_alternatives(parser *p);

/* (...), after the parenthesis. Flags set inside last until it closes. */
static tacit_status parse_group(parser *p)
{
    bool fold = p->fold, dot_all = p->dot_all, multi_line = p->multi_line;
    if (eat(p, "?")) {
        bool value = true, named = false;
        if (eat(p, "P<") || eat(p, "<")) {
            named = true;
            while (more(p) && *p->at != '>')
                p->at++;
            if (!eat(p, ">"))
                return bad(p, "missing >");
        }
        while (!named && more(p) && *p->at != ':' && *p->at != ')') {
            char c = *p->at++;
            if (c == '-')
                value = false;
            else if (c == 'i')
                p->fold = value;
            else if (c == 's')
                p->dot_all = value;
            else if (c == 'm')
                p->multi_line = value;
            else if (c != 'U') /* greediness does not matter to a full match */
                return bad(p, "unknown group flag");
        }
        if (!named && eat(p, ")"))
            return TACIT_OK; /* (?i): until the enclosing group ends */
        if (!named && !eat(p, ":"))
            return bad(p, "missing )");
    }
    if (++p->depth > MOST_DEPTH)
        return bad(p, "groups are nested too deep");
    TRY(parse_alternatives(p));
    p->depth--;
    p->fold = fold;
    p->dot_all = dot_all;
    p->multi_line = multi_line;
    return eat(p, ")") ? TACIT_OK : bad(p, "missing )");
}

static tacit_status emit_literal(parser *p, uint32_t c)
{
    uint32_t start = p->re->ranges.count;
    TRY(add_range(p, c, c));
    return emit_set(p, start, false);
}

static tacit_status parse_escape(parser *p)
{
    uint32_t start = p->re->ranges.count, c;
    tacit_status status = TACIT_OK;
    const char *back = p->at;
    if (eat(p, "b"))
        return emit(p, RE_WORD, 0, 0);
    if (eat(p, "B"))
        return emit(p, RE_NOT_WORD, 0, 0);
    if (eat(p, "A"))
        return emit(p, RE_BEGIN, 0, 0);
    if (eat(p, "z"))
        return emit(p, RE_END, 0, 0);
    if (eat(p, "Q")) {
        while (more(p) && !eat(p, "\\E"))
            TRY(emit_literal(p, take(p)));
        return TACIT_OK;
    }
    if (more(p) && perl_class(p, take(p), &status)) {
        TRY(status);
        return emit_set(p, start, false);
    }
    p->at = back;
    TRY(escape(p, &c));
    return emit_literal(p, c);
}

static tacit_status parse_atom(parser *p)
{
    uint32_t start = p->re->ranges.count;
    if (eat(p, "("))
        return parse_group(p);
    if (eat(p, "["))
        return parse_brackets(p);
    if (eat(p, "\\"))
        return parse_escape(p);
    if (eat(p, "^"))
        return emit(p, RE_BEGIN, p->multi_line, 0);
    if (eat(p, "$"))
        return emit(p, RE_END, p->multi_line, 0);
    if (eat(p, ".")) {
        if (!p->dot_all)
            TRY(add_range(p, '\n', '\n'));
        return emit_set(p, start, true);
    }
    if (*p->at == '*' || *p->at == '+' || *p->at == '?')
        return bad(p, "nothing to repeat");
    return emit_literal(p, take(p));
}

/* {n}, {n,} or {n,m}; false (and nothing consumed) when it is not one of them. */
static bool parse_counts(parser *p, int64_t *least, int64_t *most)
{
    const char *back = p->at;
    int64_t value[2] = {-1, -1};
    bool comma = false;
    p->at++;
    for (int i = 0; i < 2; i++) {
        while (more(p) && *p->at >= '0' && *p->at <= '9') {
            value[i] = (value[i] < 0 ? 0 : value[i]) * 10 + (*p->at++ - '0');
            value[i] = value[i] > 100000 ? 100000 : value[i];
        }
        if (i == 0)
            comma = eat(p, ",");
        if (!comma)
            break;
    }
    if (value[0] < 0 || !eat(p, "}")) {
        p->at = back;
        return false;
    }
    *least = value[0];
    *most = comma ? value[1] : value[0];
    return true;
}

static tacit_status copy_block(parser *p, const regex_step *block, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        TRY(emit(p, block[i].code, block[i].a, block[i].b));
    return TACIT_OK;
}

/* The steps from `start` on become `least` to `most` (-1: any number of) copies of themselves. */
static tacit_status repeat(parser *p, uint32_t start, int64_t least, int64_t most)
{
    uint32_t n = p->re->steps.count - start;
    int32_t len = (int32_t)n;
    if (least > MOST_REPEAT || most > MOST_REPEAT || (most >= 0 && most < least))
        return bad(p, "bad repetition count");
    if (n == 0)
        return TACIT_OK; /* nothing, however often */
    regex_step *block = arena_copy(p->memory, p->re->steps.data + start, n * sizeof *block);
    if (!block)
        return error_memory(p->err, "a regular expression");
    p->re->steps.count = start;
    for (int64_t i = 0; i < least; i++)
        TRY(copy_block(p, block, n));
    if (most < 0 && least > 0)
        return emit(p, RE_SPLIT, -len, 1); /* once more the last copy */
    if (most < 0) {
        TRY(emit(p, RE_SPLIT, 1, len + 2));
        TRY(copy_block(p, block, n));
        return emit(p, RE_JUMP, -len - 1, 0);
    }
    for (int64_t i = least; i < most; i++) {
        TRY(emit(p, RE_SPLIT, 1, len + 1));
        TRY(copy_block(p, block, n));
    }
    return TACIT_OK;
}

static tacit_status parse_repeated(parser *p)
{
    uint32_t start = p->re->steps.count;
    TRY(parse_atom(p));
    while (more(p)) {
        int64_t least = 0, most = -1;
        if (eat(p, "*"))
            most = -1;
        else if (eat(p, "+"))
            least = 1;
        else if (eat(p, "?"))
            most = 1;
        else if (*p->at != '{' || !parse_counts(p, &least, &most))
            break;
        (void)eat(p, "?"); /* lazy: the same set of full matches */
        TRY(repeat(p, start, least, most));
    }
    return TACIT_OK;
}

static tacit_status parse_alternatives(parser *p)
{
    int32_t last_jump = -1; /* the jumps to the end, chained through `a` until it is known */
    for (;;) {
        uint32_t start = p->re->steps.count;
        while (more(p) && *p->at != '|' && *p->at != ')')
            TRY(parse_repeated(p));
        if (!eat(p, "|"))
            break;
        int32_t len = (int32_t)(p->re->steps.count - start);
        TRY(insert(p, start, RE_SPLIT, 1, len + 2));
        TRY(emit(p, RE_JUMP, last_jump, 0));
        last_jump = (int32_t)p->re->steps.count - 1;
    }
    while (last_jump >= 0) {
        regex_step *s = &p->re->steps.data[last_jump];
        int32_t before = s->a;
        s->a = (int32_t)p->re->steps.count - last_jump;
        last_jump = before;
    }
    return TACIT_OK;
}

tacit_status regex_compile(const char *pattern, size_t length, arena *memory, regex **out,
                           tacit_error *err)
{
    parser p = {.at = pattern, .start = pattern, .end = pattern + length};
    p.memory = memory;
    p.err = err;
    p.re = ARENA_NEW(memory, regex);
    if (!p.re)
        return error_memory(err, "a regular expression");
    TRY(parse_alternatives(&p));
    if (more(&p))
        return bad(&p, "unmatched )");
    TRY(emit(&p, RE_MATCH, 0, 0));
    *out = p.re;
    return TACIT_OK;
}

/* --- matching --------------------------------------------------------------------------------- */

typedef struct threads {
    uint32_t *at, count; /* steps to go on from, each once */
    uint32_t *mark;      /* generation in which a step was added */
    uint32_t generation;
} threads;

typedef struct position {
    uint32_t before, after; /* code points around it; UINT32_MAX: none */
} position;

static bool is_word(uint32_t c)
{
    return c != UINT32_MAX &&
           ((c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || c == '_' || (c >= 'a' && c <= 'z'));
}

static bool holds(const regex_step *s, const position *at)
{
    switch (s->code) {
    case RE_BEGIN:
        return at->before == UINT32_MAX || (s->a && at->before == '\n');
    case RE_END:
        return at->after == UINT32_MAX || (s->a && at->after == '\n');
    case RE_WORD:
        return is_word(at->before) != is_word(at->after);
    default:
        return is_word(at->before) == is_word(at->after);
    }
}

/* Adds a step and all that follow it without consuming. */
static void follow(const regex *re, threads *t, uint32_t step, const position *at, uint32_t *stack)
{
    uint32_t top = 0;
    stack[top++] = step;
    while (top) {
        uint32_t pc = stack[--top];
        if (t->mark[pc] == t->generation)
            continue;
        t->mark[pc] = t->generation;
        const regex_step *s = &re->steps.data[pc];
        if (s->code == RE_SET || s->code == RE_MATCH) {
            t->at[t->count++] = pc;
        } else if (s->code == RE_SPLIT) {
            stack[top++] = pc + (uint32_t)s->a;
            stack[top++] = pc + (uint32_t)s->b;
        } else if (s->code == RE_JUMP) {
            stack[top++] = pc + (uint32_t)s->a;
        } else if (holds(s, at)) {
            stack[top++] = pc + 1;
        }
    }
}

static bool in_ranges(const regex *re, const regex_set *set, uint32_t c)
{
    for (uint32_t i = 0; i < set->count; i++) {
        const regex_range *r = &re->ranges.data[set->start + i];
        if (c >= r->first && c <= r->last)
            return true;
    }
    return false;
}

static bool in_set(const regex *re, const regex_set *set, uint32_t c)
{
    bool in = in_ranges(re, set, c);
    if (!in && set->fold)
        in = in_ranges(re, set, utf8_lower(c)) || in_ranges(re, set, utf8_upper(c));
    return in != set->negated;
}

uint32_t *regex_workspace(const regex *re, arena *memory)
{
    return ARENA_ARRAY(memory, (size_t)re->steps.count * 6 + 4, uint32_t);
}

bool regex_full_match(const regex *re, const char *text, size_t length, uint32_t *workspace)
{
    uint32_t n = re->steps.count, consumed = 0, *stack = workspace + 3 * n;
    threads now = {.at = workspace, .mark = workspace + n, .generation = 1};
    threads next = {.at = workspace + 2 * n, .mark = now.mark}; /* generations keep them apart */
    position p = {.before = UINT32_MAX};
    memset(now.mark, 0, n * sizeof *now.mark);
    p.after = length ? utf8_decode(text, length, &consumed) : UINT32_MAX;
    follow(re, &now, 0, &p, stack);
    size_t at = 0;
    while (at < length && now.count) {
        uint32_t c = p.after;
        at += consumed;
        p.before = c;
        p.after = at < length ? utf8_decode(text + at, length - at, &consumed) : UINT32_MAX;
        next.count = 0;
        next.generation = now.generation + 1;
        for (uint32_t i = 0; i < now.count; i++) {
            const regex_step *s = &re->steps.data[now.at[i]];
            if (s->code == RE_SET && in_set(re, &re->sets.data[s->a], c))
                follow(re, &next, now.at[i] + 1, &p, stack);
        }
        threads swap = now;
        now = next;
        next = swap;
    }
    bool match = false;
    for (uint32_t i = 0; at >= length && i < now.count; i++)
        match |= re->steps.data[now.at[i]].code == RE_MATCH;
    return match;
}
