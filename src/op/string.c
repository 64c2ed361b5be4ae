/* SPDX-License-Identifier: Apache-2.0
 * Strings: StringConcat, StringSplit, StringNormalizer, RegexFullMatch. Results may point into the
 * inputs or into scratch: op_execute gives every string output its own bytes. */
#include <string.h>

#include "base/regex.h"
#include "base/utf8.h"
#include "op/elementwise.h"
#include "op/loop.h"

static const ir_string *strings(const ir_tensor *t)
{
    return t->data;
}

/* --- StringConcat ----------------------------------------------------------------------------- */

static tacit_status concat_infer(op_infer *c)
{
    TRY(op_check_class(c, 0, OP_STRING));
    TRY(op_check_class(c, 1, OP_STRING));
    return op_infer_broadcast(c);
}

static tacit_status concat_eval(op_eval *c)
{
    const ir_tensor *a = op_in(c, 0), *b = op_in(c, 1);
    ir_tensor *y = op_out(c, 0);
    op_loop l;
    op_loop_begin(&l, &y->shape);
    op_loop_broadcast(&l, &a->shape);
    op_loop_broadcast(&l, &b->shape);
    for (; !op_loop_done(&l); op_loop_next(&l)) {
        ir_string s = strings(a)[l.at[0]], t = strings(b)[l.at[1]];
        char *joined = op_eval_scratch(c, s.length + t.length + 1);
        if (!joined)
            return error_memory(c->err, "strings");
        if (s.length)
            memcpy(joined, s.data, s.length);
        if (t.length)
            memcpy(joined + s.length, t.data, t.length);
        ((ir_string *)y->data)[l.linear] = (ir_string){joined, s.length + t.length};
    }
    return TACIT_OK;
}

/* --- StringSplit ------------------------------------------------------------------------------ */

static tacit_status split_infer(op_infer *c)
{
    TRY(op_check_class(c, 0, OP_STRING));
    if (c->in[0]->shape.rank >= IR_MAX_RANK)
        return error_set(c->err, TACIT_ERR_LIMIT, "the rank is too high");
    c->out[0] = *c->in[0];
    c->out[0].shape.dims[c->out[0].shape.rank++] = IR_DIM_UNKNOWN;
    if (c->n_out > 1) {
        c->out[1] = *c->in[0];
        c->out[1].dtype = TACIT_I64;
    }
    return TACIT_OK;
}

typedef struct splitter {
    ir_string delimiter; /* empty: runs of white space */
    int64_t most;        /* splits; -1: no limit */
} splitter;

static uint64_t skip_space(ir_string s, uint64_t at, bool space)
{
    while (at < s.length) {
        uint32_t n;
        if (utf8_is_space(utf8_decode(s.data + at, s.length - at, &n)) != space)
            break;
        at += n;
    }
    return at;
}

/* The pieces of `s` go to `out` where it is not NULL; returns how many there are. */
static int64_t split_string(const splitter *p, ir_string s, ir_string *out)
{
    int64_t n = 0;
    uint64_t at = p->delimiter.length ? 0 : skip_space(s, 0, true);
    if (!p->delimiter.length && at == s.length)
        return 0;
    while (p->most < 0 || n < p->most) {
        uint64_t stop, next;
        if (p->delimiter.length) {
            const char *hit = at < s.length ? memmem(s.data + at, s.length - at, p->delimiter.data,
                                                     p->delimiter.length)
                                            : NULL;
            if (!hit)
                break;
            stop = (uint64_t)(hit - s.data);
            next = stop + p->delimiter.length;
        } else {
            stop = skip_space(s, at, false);
            next = skip_space(s, stop, true);
            if (next == s.length) {
                if (out)
                    out[n] = (ir_string){s.data + at, stop - at};
                return n + 1;
            }
        }
        if (out)
            out[n] = (ir_string){s.data + at, stop - at};
        n++;
        at = next;
    }
    if (out)
        out[n] = (ir_string){s.length ? s.data + at : "", s.length - at};
    return n + 1;
}

static tacit_status split_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0);
    const ir_attr *delimiter = ir_attr_find(c->node, "delimiter");
    splitter p = {.most = ir_attr_int(c->node, "maxsplit", -1)};
    if (delimiter && delimiter->kind == IR_ATTR_STRING)
        p.delimiter = delimiter->s;
    int64_t n = ir_tensor_count(x), most = 0;
    if (op_out(c, 1))
        TRY(op_eval_alloc(c, 1, TACIT_I64, &x->shape));
    for (int64_t i = 0; i < n; i++) {
        int64_t pieces = split_string(&p, strings(x)[i], NULL);
        most = pieces > most ? pieces : most;
        if (op_out(c, 1))
            ((int64_t *)op_out(c, 1)->data)[i] = pieces;
    }
    ir_shape shape = x->shape;
    shape.dims[shape.rank++] = most;
    if (!op_out(c, 0))
        return TACIT_OK;
    TRY(op_eval_alloc(c, 0, TACIT_STRING, &shape)); /* begins as empty strings */
    for (int64_t i = 0; i < n; i++)
        split_string(&p, strings(x)[i], (ir_string *)op_out(c, 0)->data + i * most);
    return TACIT_OK;
}

/* --- StringNormalizer ------------------------------------------------------------------------- */

static tacit_status normalize_infer(op_infer *c)
{
    TRY(op_check_class(c, 0, OP_STRING));
    const ir_shape *x = &c->in[0]->shape;
    if (x->rank != 1 && !(x->rank == 2 && x->dims[0] == 1))
        return error_set(c->err, TACIT_ERR_SHAPE, "the input must be [C] or [1, C]");
    c->out[0] = *c->in[0];
    c->out[0].shape.dims[x->rank - 1] = IR_DIM_UNKNOWN;
    return TACIT_OK;
}

/* Every code point mapped; the result is in scratch. */
static tacit_status change_case(op_eval *c, ir_string s, uint32_t (*f)(uint32_t), ir_string *out)
{
    char *text = op_eval_scratch(c, s.length * 3 + 4);
    if (!text)
        return error_memory(c->err, "strings");
    uint64_t length = 0;
    for (uint64_t at = 0; at < s.length;) {
        uint32_t n, v = utf8_decode(s.data + at, s.length - at, &n), mapped = f(v);
        if (mapped == v) {
            memcpy(text + length, s.data + at, n);
            length += n;
        } else {
            length += utf8_encode(mapped, text + length);
        }
        at += n;
    }
    *out = (ir_string){text, length};
    return TACIT_OK;
}

static bool same(ir_string a, ir_string b)
{
    return a.length == b.length && (!a.length || memcmp(a.data, b.data, a.length) == 0);
}

static tacit_status is_stop_word(op_eval *c, ir_string s, bool *out)
{
    uint32_t n;
    const ir_string *words = ir_attr_strings(c->node, "stopwords", &n);
    bool exact = ir_attr_int(c->node, "is_case_sensitive", 0) != 0;
    ir_string key = s;
    *out = false;
    if (!exact)
        TRY(change_case(c, s, utf8_lower, &key));
    for (uint32_t i = 0; i < n && !*out; i++) {
        ir_string word = words[i];
        if (!exact)
            TRY(change_case(c, words[i], utf8_lower, &word));
        *out = same(key, word);
    }
    return TACIT_OK;
}

static tacit_status normalize_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0);
    const char *action = ir_attr_string(c->node, "case_change_action", "NONE");
    bool lower = strcmp(action, "LOWER") == 0, upper = strcmp(action, "UPPER") == 0;
    if (!lower && !upper && strcmp(action, "NONE") != 0)
        return error_set(c->err, TACIT_ERR_VALUE, "case_change_action '%s' is not known", action);
    int64_t n = ir_tensor_count(x), kept = 0;
    ir_string *out = op_eval_scratch(c, ((size_t)n + 1) * sizeof *out);
    if (!out)
        return error_memory(c->err, "strings");
    for (int64_t i = 0; i < n; i++) {
        bool stop = false;
        TRY(is_stop_word(c, strings(x)[i], &stop));
        if (stop)
            continue;
        out[kept] = strings(x)[i];
        if (lower || upper)
            TRY(change_case(c, strings(x)[i], lower ? utf8_lower : utf8_upper, &out[kept]));
        kept++;
    }
    if (kept == 0)
        out[kept++] = (ir_string){"", 0}; /* nothing left: one empty string */
    ir_shape shape = x->shape;
    shape.dims[shape.rank - 1] = kept;
    TRY(op_eval_alloc(c, 0, TACIT_STRING, &shape));
    memcpy(op_out(c, 0)->data, out, (size_t)kept * sizeof *out);
    return TACIT_OK;
}

/* --- RegexFullMatch --------------------------------------------------------------------------- */

static tacit_status regex_infer(op_infer *c)
{
    TRY(op_check_class(c, 0, OP_STRING));
    c->out[0] = *c->in[0];
    c->out[0].dtype = TACIT_BOOL;
    return TACIT_OK;
}

static tacit_status regex_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0);
    const ir_attr *pattern = ir_attr_find(c->node, "pattern");
    regex *re = NULL;
    if (!pattern || pattern->kind != IR_ATTR_STRING)
        return error_set(c->err, TACIT_ERR_GRAPH, "no pattern");
    TRY(regex_compile(pattern->s.data, pattern->s.length, c->scratch, &re, c->err));
    uint32_t *workspace = regex_workspace(re, c->scratch);
    if (!workspace)
        return error_memory(c->err, "matching");
    for (int64_t i = 0, n = ir_tensor_count(x); i < n; i++)
        ((uint8_t *)op_out(c, 0)->data)[i] =
            regex_full_match(re, strings(x)[i].data, strings(x)[i].length, workspace);
    return TACIT_OK;
}

#define STRING_ROW(NAME, IN, OUT, FLAGS, INFER, EVAL, ...)                                         \
    {                                                                                              \
        .name = NAME, .min_in = IN, .max_in = IN, .min_out = 1, .max_out = OUT,                    \
        .flags = OP_NOT_DIFFERENTIABLE | (FLAGS), .infer = INFER, .eval = EVAL, __VA_ARGS__        \
    }

const op_def op_rows_string[] = {
    STRING_ROW("StringConcat", 2, 1, OP_ELEMENTWISE, concat_infer, concat_eval),
    STRING_ROW("StringSplit", 1, 2, OP_DATA_SHAPE, split_infer, split_eval),
    STRING_ROW("StringNormalizer", 1, 1, OP_DATA_SHAPE, normalize_infer, normalize_eval),
    STRING_ROW("RegexFullMatch", 1, 1, OP_ELEMENTWISE, regex_infer, regex_eval),
    {0},
};
