/* SPDX-License-Identifier: Apache-2.0
 * tacit ops: the op table. Types and kernels are found by trying specimens of each row. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sbuf.h"
#include "cli/cli.h"
#include "load/contrib.h"
#include "load/onnx_reader.h"
#include "load/upgrade.h"
#include "op/specimen.h"
#include "secure/program.h"

typedef struct rule_column {
    const char *name;
    bool (*present)(const op_def *row);
} rule_column;

#define RULE(field)                                                                                \
    static bool has_##field(const op_def *row)                                                     \
    {                                                                                              \
        return row->field;                                                                         \
    }
RULE(infer)
RULE(eval)
RULE(alias)
RULE(part)
RULE(inplace)
RULE(lower)
RULE(decompose)
RULE(spell)
RULE(vjp)
RULE(jvp)
RULE(batch)
RULE(range)
#undef RULE

static const rule_column columns[] = {
    {"infer", has_infer},
    {"eval", has_eval},
    {"alias", has_alias},
    {"part", has_part},
    {"inplace", has_inplace},
    {"lower", has_lower},
    {"decompose", has_decompose},
    {"spell", has_spell},
    {"vjp", has_vjp},
    {"jvp", has_jvp},
    {"batch", has_batch},
    {"range", has_range},
    {"secure", sec_has_rule},
};

enum { KERNELS = 64, LEVELS = 3 };

/* A kernel's name without its processor level, and the levels it was seen at. */
typedef struct kernel_name {
    char stem[48];
    bool level[LEVELS + 1]; /* the last: one for all */
} kernel_name;

typedef struct op_facts {
    const op_def *row;
    int64_t first, newest_form;
    bool types[TACIT_DTYPE_COUNT];
    kernel_name kernels[KERNELS];
    uint32_t n_kernels;
} op_facts;

static const char *const levels[LEVELS] = {"portable", "avx2", "avx512"};

static void note_kernel(void *context, const char *name)
{
    op_facts *f = context;
    size_t length = strlen(name);
    uint32_t level = LEVELS;
    for (uint32_t i = 0; i < LEVELS; i++) {
        size_t own = strlen(levels[i]);
        if (length > own && name[length - own - 1] == '_' &&
            strcmp(name + length - own, levels[i]) == 0) {
            level = i;
            length -= own + 1;
        }
    }
    uint32_t k = 0;
    while (k < f->n_kernels &&
           (strlen(f->kernels[k].stem) != length || memcmp(f->kernels[k].stem, name, length) != 0))
        k++;
    if (k == KERNELS || length >= sizeof f->kernels[k].stem)
        return;
    memcpy(f->kernels[k].stem, name, length);
    f->kernels[k].level[level] = true;
    f->n_kernels += k == f->n_kernels;
}

static int by_stem(const void *a, const void *b)
{
    return strcmp(((const kernel_name *)a)->stem, ((const kernel_name *)b)->stem);
}

static void find_facts(const op_def *row, op_facts *f)
{
    *f = (op_facts){.row = row};
    load_opsets(row, &f->first, &f->newest_form);
    for (int d = 1; d < TACIT_DTYPE_COUNT; d++) {
        f->types[d] = op_specimen_runs(row, (tacit_dtype)d);
        if (f->types[d])
            op_specimen_kernels(row, (tacit_dtype)d, note_kernel, f);
    }
    qsort(f->kernels, f->n_kernels, sizeof *f->kernels, by_stem);
}

/* --- types ------------------------------------------------------------------------------------ */

/* Types that nearly always come together have a name together. */
static const struct {
    const char *name;
    tacit_dtype first, last;
} groups[] = {
    {"floats", TACIT_F64, TACIT_BF16},    {"integers", TACIT_I8, TACIT_U64},
    {"complex", TACIT_C64, TACIT_C128},   {"f8 and f4", TACIT_F8E4M3FN, TACIT_F4E2M1},
    {"4- and 2-bit", TACIT_U4, TACIT_I2},
};

static void print_types(sbuf *out, const op_facts *f)
{
    const char *comma = "";
    uint32_t have = 0;
    for (int d = 1; d < TACIT_DTYPE_COUNT; d++)
        have += f->types[d];
    if (have == 0 || have == TACIT_DTYPE_COUNT - 1) {
        sbuf_text(out, have ? "all" : "—");
        return;
    }
    for (int d = 1; d < TACIT_DTYPE_COUNT; d++) {
        int last = 0;
        const char *name = tacit_dtype_text((tacit_dtype)d);
        for (uint32_t g = 0; g < CLI_COUNT(groups); g++)
            if ((int)groups[g].first == d) {
                last = (int)groups[g].last;
                name = groups[g].name;
            }
        for (int k = d; k <= last; k++)
            last = f->types[k] ? last : 0;
        if (f->types[d])
            sbuf_printf(out, "%s%s", comma, last ? name : tacit_dtype_text((tacit_dtype)d));
        comma = f->types[d] || *comma ? ", " : "";
        d = last ? last : d;
    }
}

static void print_kernels(sbuf *out, const op_facts *f)
{
    if (!f->n_kernels)
        sbuf_text(out, f->row->eval ? "evaluator" : "—");
    for (uint32_t k = 0; k < f->n_kernels; k++) {
        sbuf_printf(out, "%s%s", k ? ", " : "", f->kernels[k].stem);
        bool any = false;
        for (uint32_t i = 0; i < LEVELS; i++)
            if (f->kernels[k].level[i]) {
                sbuf_printf(out, "%s%s", any ? " " : " (", levels[i]);
                any = true;
            }
        sbuf_text(out, any ? ")" : "");
    }
}

static void print_opsets(sbuf *out, const op_facts *f)
{
    sbuf_printf(out, "%lld", (long long)f->first);
    if (!f->row->domain)
        sbuf_printf(out, "–%d", ONNX_MAX_OPSET);
    if (f->newest_form > f->first && f->newest_form <= ONNX_MAX_OPSET)
        sbuf_printf(out, ", upgraded below %lld", (long long)f->newest_form);
    else if (f->newest_form > ONNX_MAX_OPSET)
        sbuf_text(out, ", upgraded");
}

static void print_rules(sbuf *out, const op_facts *f)
{
    bool any = false;
    for (uint32_t i = 0; i < CLI_COUNT(columns); i++)
        if (columns[i].present(f->row)) {
            sbuf_printf(out, "%s%s", any ? " " : "", columns[i].name);
            any = true;
        }
}

/* --- one row in each format ------------------------------------------------------------------- */

static void print_json(sbuf *out, const op_facts *f)
{
    bool any = false;
    sbuf_printf(out,
                "{\"op\":\"%s\",\"domain\":\"%s\",\"first_opset\":%lld,\"upgraded_below\":%lld,",
                f->row->name, f->row->domain ? f->row->domain : "", (long long)f->first,
                (long long)(f->newest_form > f->first ? f->newest_form : 0));
    sbuf_text(out, "\"types\":[");
    for (int d = 1; d < TACIT_DTYPE_COUNT; d++)
        if (f->types[d]) {
            sbuf_printf(out, "%s\"%s\"", any ? "," : "", tacit_dtype_text((tacit_dtype)d));
            any = true;
        }
    sbuf_text(out, "],\"rules\":[");
    any = false;
    for (uint32_t i = 0; i < CLI_COUNT(columns); i++)
        if (columns[i].present(f->row)) {
            sbuf_printf(out, "%s\"%s\"", any ? "," : "", columns[i].name);
            any = true;
        }
    sbuf_text(out, "],\"kernels\":[");
    any = false;
    for (uint32_t k = 0; k < f->n_kernels; k++)
        for (uint32_t i = 0; i <= LEVELS; i++)
            if (f->kernels[k].level[i]) {
                sbuf_printf(out, "%s\"%s%s%s\"", any ? "," : "", f->kernels[k].stem,
                            i < LEVELS ? "_" : "", i < LEVELS ? levels[i] : "");
                any = true;
            }
    sbuf_text(out, "]}");
}

static void print_row(sbuf *out, const op_facts *f, bool markdown)
{
    static void (*const parts[])(sbuf *, const op_facts *) = {print_opsets, print_types,
                                                              print_rules, print_kernels};
    static const char *const names[] = {"opsets", "types", "rules", "kernels"};
    const char *domain = f->row->domain ? f->row->domain : "";
    if (markdown)
        sbuf_printf(out, "| %s%s%s |", domain, *domain ? "." : "", f->row->name);
    else
        sbuf_printf(out, "%s (%s)\n", f->row->name, *domain ? domain : "ai.onnx");
    for (uint32_t i = 0; i < CLI_COUNT(parts); i++) {
        if (markdown)
            sbuf_char(out, ' ');
        else
            sbuf_printf(out, "  %-8s ", names[i]);
        parts[i](out, f);
        sbuf_text(out, markdown ? " |" : "\n");
    }
    if (markdown)
        sbuf_char(out, '\n');
}

/* Operators without a row: loading spells them out. */
static uint32_t print_spelled(sbuf *out, const char *only, bool json, bool markdown, uint32_t shown)
{
    uint32_t count = 0;
    const char *name;
    if (markdown)
        sbuf_text(out, "\nSpelled out in operators of ONNX while loading (com.microsoft): ");
    for (size_t i = 0; (name = load_contrib_name(i)) != NULL; i++) {
        if (only && strcmp(name, only) != 0)
            continue;
        if (json)
            sbuf_printf(out, "%s{\"op\":\"%s\",\"domain\":\"com.microsoft\",\"spelled_out\":true}",
                        shown + count ? ",\n" : "", name);
        else if (markdown)
            sbuf_printf(out, "%s%s", count ? ", " : "", name);
        else
            sbuf_printf(out, "%s (com.microsoft)\n  spelled out in operators of ONNX\n", name);
        count++;
    }
    if (markdown)
        sbuf_text(out, ".\n");
    return count;
}

int cmd_ops(int argc, char **argv)
{
    bool json = false, markdown = false;
    const char *only = NULL;
    const cli_option options[] = {
        {"--json", CLI_FLAG, &json, NULL, "machine-readable"},
        {"--markdown", CLI_FLAG, &markdown, NULL, "the table of docs/operators.md"},
    };
    const cli_usage usage = {"ops",
                             "[NAME] [options]",
                             "Prints the op table: every operator, its domain and opsets, the "
                             "element types it\ntakes, the rules its row has and its kernels. "
                             "Types and kernels are found by trying.",
                             options,
                             CLI_COUNT(options),
                             0,
                             1};
    int code = cli_parse(&usage, argc, argv, &only, NULL);
    if (code >= 0)
        return code;
    sbuf out;
    sbuf_init(&out, NULL);
    if (markdown)
        sbuf_text(&out, "| operator | opsets | types | rules | kernels |\n|---|---|---|---|---|\n");
    else if (json)
        sbuf_char(&out, '[');
    uint32_t shown = 0;
    const op_def *row;
    op_facts facts;
    for (uint32_t i = 0; (row = op_at(i)) != NULL; i++) {
        if (only && strcmp(row->name, only) != 0)
            continue;
        find_facts(row, &facts);
        if (json && shown)
            sbuf_text(&out, ",\n");
        if (json)
            print_json(&out, &facts);
        else
            print_row(&out, &facts, markdown);
        shown++;
    }
    shown += print_spelled(&out, only, json, markdown, shown);
    if (json)
        sbuf_text(&out, "]\n");
    fputs(sbuf_str(&out) ? sbuf_str(&out) : "", stdout);
    sbuf_free(&out);
    if (!shown)
        return cli_fail("ops", "no operator is named '%s'", only);
    if (!json && !markdown)
        printf("%u operators\n", shown);
    return CLI_OK;
}
