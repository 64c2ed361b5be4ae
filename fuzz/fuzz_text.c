/* SPDX-License-Identifier: Apache-2.0
 * The text form: what parses must print, parse again, and be the same graph. */
#include <stdlib.h>

#include "ir/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    arena a;
    ir_graph *g = NULL, *again = NULL;
    sbuf text;
    arena_init(&a, NULL);
    sbuf_init(&text, NULL);
    if (ir_graph_parse((const char *)data, size, &a, &g, NULL) == TACIT_OK) {
        ir_graph_print(g, NULL, &text);
        if (!sbuf_str(&text) ||
            ir_graph_parse(text.data, text.length, &a, &again, NULL) != TACIT_OK ||
            !ir_graph_equal(g, again, NULL))
            abort();
    }
    sbuf_free(&text);
    arena_free(&a);
    return 0;
}
