/* SPDX-License-Identifier: Apache-2.0
 * TLS under a channel; in a build without OpenSSL these only say so. */
#ifndef SECURE_TLS_H
#define SECURE_TLS_H

#include <sys/types.h>

#include "secure/channel.h"

tacit_status tls_start(channel *c, unsigned party, const char *folder, tacit_error *err);
ssize_t tls_move(channel *c, bool sending, void *data, size_t size); /* as send and recv; 0: wait */
void tls_bye(channel *c);
void tls_end(channel *c);

#endif
