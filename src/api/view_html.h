/* SPDX-License-Identifier: Apache-2.0
 * A program as one self-contained HTML page. */
#ifndef API_VIEW_HTML_H
#define API_VIEW_HTML_H

#include "base/sbuf.h"
#include "pass/pass.h"
#include "prog/program.h"

/* Graph, plan as time × bytes blocks, op costs, passes, thunk list. */
void api_view_html(const prog_program *p, const pass_report *passes, sbuf *out);

#endif
