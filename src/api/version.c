/* SPDX-License-Identifier: Apache-2.0 */
#include "tacit/tacit.h"

const char *tacit_version(void)
{
    return TACIT_VERSION_STRING;
}
