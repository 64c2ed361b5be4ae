/* SPDX-License-Identifier: Apache-2.0 */
#include "base/utf8.h"

/* Upper-case ranges whose lower case lies `shift` further. */
static const struct {
    uint32_t first, last, shift;
} shifted[] = {
    {'A', 'Z', 32},     {0xc0, 0xd6, 32},   {0xd8, 0xde, 32},   {0x391, 0x3a1, 32},
    {0x3a3, 0x3ab, 32}, {0x410, 0x42f, 32}, {0x400, 0x40f, 80},
};
/* Ranges of pairs: upper case even (or odd), lower case next. */
static const struct {
    uint32_t first, last, odd;
} paired[] = {
    {0x100, 0x137, 0}, {0x139, 0x148, 1},   {0x14a, 0x177, 0},
    {0x179, 0x17e, 1}, {0x460, 0x481, 0},   {0x48a, 0x4bf, 0},
    {0x4d0, 0x52f, 0}, {0x1e00, 0x1e95, 0}, {0x1ea0, 0x1eff, 0},
};

uint32_t utf8_lower(uint32_t v)
{
    for (unsigned i = 0; i < sizeof shifted / sizeof *shifted; i++)
        if (v >= shifted[i].first && v <= shifted[i].last)
            return v + shifted[i].shift;
    for (unsigned i = 0; i < sizeof paired / sizeof *paired; i++)
        if (v >= paired[i].first && v <= paired[i].last && (v & 1) == paired[i].odd)
            return v + 1;
    return v == 0x178 ? 0xff : v;
}

uint32_t utf8_upper(uint32_t v)
{
    for (unsigned i = 0; i < sizeof shifted / sizeof *shifted; i++)
        if (v >= shifted[i].first + shifted[i].shift && v <= shifted[i].last + shifted[i].shift)
            return v - shifted[i].shift;
    for (unsigned i = 0; i < sizeof paired / sizeof *paired; i++)
        if (v >= paired[i].first && v <= paired[i].last && (v & 1) != paired[i].odd)
            return v - 1;
    return v == 0xff ? 0x178 : v == 0xb5 ? 0x39c : v;
}

bool utf8_is_space(uint32_t v)
{
    return (v >= 9 && v <= 13) || (v >= 0x1c && v <= 0x20) || v == 0x85 || v == 0xa0 ||
           v == 0x1680 || (v >= 0x2000 && v <= 0x200a) || v == 0x2028 || v == 0x2029 ||
           v == 0x202f || v == 0x205f || v == 0x3000;
}
