/* SPDX-License-Identifier: Apache-2.0
 * Handwriting-like digits drawn from strokes: the data of `tacit train digits`. */
#ifndef CLI_DIGITS_H
#define CLI_DIGITS_H

#include <stdint.h>

enum { DIGITS_SIDE = 16, DIGITS_PIXELS = DIGITS_SIDE * DIGITS_SIDE, DIGITS_CLASSES = 10 };

/* `count` images of DIGITS_PIXELS numbers from 0 to 1, and their labels; the same for the same
 * seed. Every class is equally frequent, in random order. */
void digits_draw(uint64_t seed, int64_t count, float *images, int64_t *labels);

#endif
