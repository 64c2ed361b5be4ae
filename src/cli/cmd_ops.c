/* SPDX-License-Identifier: Apache-2.0
 * tacit ops: the op table. */
#include <stdio.h>
#include <string.h>

#include "base/sbuf.h"
#include "cli/cli.h"
#include "op/op.h"

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
RULE(inplace)
RULE(lower)
RULE(decompose)
RULE(spell)
RULE(vjp)
RULE(jvp)
RULE(batch)
RULE(range)
RULE(secure)
#undef RULE

static const rule_column columns[] = {
    {"infer", has_infer},     {"eval", has_eval},    {"alias", has_alias},
    {"inplace", has_inplace}, {"kernel", has_lower}, {"decompose", has_decompose},
    {"spell", has_spell},     {"vjp", has_vjp},      {"jvp", has_jvp},
    {"batch", has_batch},     {"range", has_range},  {"secure", has_secure},
};

static void print_row(sbuf *out, const op_def *row, bool json, bool markdown, bool first)
{
    const char *domain = row->domain ? row->domain : "";
    if (json)
        sbuf_printf(out, "%s{\"op\":\"%s\",\"domain\":\"%s\",\"rules\":[", first ? "" : ",\n",
                    row->name, domain);
    else if (markdown)
        sbuf_printf(out, "| %s%s%s |", domain, *domain ? "." : "", row->name);
    else
        sbuf_printf(out, "%-14s %-28s", *domain ? domain : "ai.onnx", row->name);
    bool any = false;
    for (uint32_t i = 0; i < CLI_COUNT(columns); i++) {
        bool has = columns[i].present(row);
        if (markdown)
            sbuf_printf(out, " %s |", has ? "yes" : "");
        else if (json && has)
            sbuf_printf(out, "%s\"%s\"", any ? "," : "", columns[i].name);
        else if (has)
            sbuf_printf(out, " %s", columns[i].name);
        any |= has;
    }
    sbuf_text(out, json ? "]}" : "\n");
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
                             "Prints the op table: every operator and which rules its row has.",
                             options,
                             CLI_COUNT(options),
                             0,
                             1};
    int code = cli_parse(&usage, argc, argv, &only, NULL);
    if (code >= 0)
        return code;
    sbuf out;
    sbuf_init(&out, NULL);
    if (markdown) {
        sbuf_text(&out, "| operator |");
        for (uint32_t i = 0; i < CLI_COUNT(columns); i++)
            sbuf_printf(&out, " %s |", columns[i].name);
        sbuf_text(&out, "\n|---|");
        for (uint32_t i = 0; i < CLI_COUNT(columns); i++)
            sbuf_text(&out, "---|");
        sbuf_char(&out, '\n');
    } else if (json) {
        sbuf_char(&out, '[');
    }
    uint32_t shown = 0;
    const op_def *row;
    for (uint32_t i = 0; (row = op_at(i)) != NULL; i++)
        if (!only || strcmp(row->name, only) == 0)
            print_row(&out, row, json, markdown, shown++ == 0);
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
