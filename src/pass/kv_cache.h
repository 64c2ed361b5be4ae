/* SPDX-License-Identifier: Apache-2.0
 * Past keys and values that stay where they are: present = Concat(past, new) becomes an append. */
#ifndef PASS_KV_CACHE_H
#define PASS_KV_CACHE_H

#include "op/op.h"

enum { PASS_CACHE_SYMBOLS = 8 };

/* Names of symbolic dimensions that are lengths of caches: that of a graph input P in an output
 * Concat(P, new). Looks at the graph as loaded. */
tacit_status pass_cache_symbols(const ir_graph *g, const char *names[PASS_CACHE_SYMBOLS],
                                uint32_t *count, tacit_error *err);

/* On a graph after the passes whose cache symbols are bound to `capacity`: every tacit.Attention
 * over Concat(past, new) becomes tacit.CachedAttention on the past inputs. The outputs Concat made
 * go; the caches and a new input of the length they hold become the last `*hidden` inputs. An error
 * names the first past input that is used in another way. */
tacit_status pass_kv_cache(ir_graph *g, int64_t capacity, uint32_t *hidden, tacit_error *err);

#endif
