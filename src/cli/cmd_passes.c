/* SPDX-License-Identifier: Apache-2.0
 * tacit passes: the pipeline, in order. */
#include <stdio.h>

#include "base/sbuf.h"
#include "cli/cli.h"
#include "pass/pass.h"

int cmd_passes(int argc, char **argv)
{
    bool json = false;
    const cli_option options[] = {{"--json", CLI_FLAG, &json, NULL, "machine-readable"}};
    const cli_usage usage = {"passes",
                             "[options]",
                             "Lists the passes in pipeline order; --disable-pass of other commands "
                             "takes these names.",
                             options,
                             CLI_COUNT(options),
                             0,
                             0};
    int code = cli_parse(&usage, argc, argv, NULL, NULL);
    if (code >= 0)
        return code;
    sbuf out;
    sbuf_init(&out, NULL);
    const pass_def *pass;
    for (uint32_t i = 0; (pass = pass_at(i)) != NULL; i++) {
        if (json) {
            sbuf_printf(&out, "%s{\"pass\":\"%s\",\"required\":%s,\"what\":", i ? ",\n" : "[",
                        pass->name, pass->required ? "true" : "false");
            sbuf_json(&out, pass->what);
            sbuf_char(&out, '}');
        } else {
            sbuf_printf(&out, "%-22s %s%s\n", pass->name, pass->what,
                        pass->required ? " (always on)" : "");
        }
    }
    if (json)
        sbuf_text(&out, "]\n");
    fputs(sbuf_str(&out) ? sbuf_str(&out) : "", stdout);
    sbuf_free(&out);
    return CLI_OK;
}
