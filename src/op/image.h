/* SPDX-License-Identifier: Apache-2.0
 * Decoding image files in memory to 8-bit RGB. */
#ifndef OP_IMAGE_H
#define OP_IMAGE_H

#include "base/arena.h"

/* An image larger than this is refused before its pixels are allocated. */
#define OP_IMAGE_PIXELS (INT64_C(1) << 28)

typedef struct op_image {
    int64_t width, height;
    uint8_t *rgb; /* height × width × 3, in the arena */
} op_image;

/* Allocates the pixels; false when the size is refused or memory is out. */
bool op_image_alloc(arena *memory, op_image *image, uint64_t width, uint64_t height);

/* Each returns false when the data is not a whole image of its format. */
typedef bool op_image_reader(arena *memory, const uint8_t *data, size_t size, op_image *image);
op_image_reader op_image_bmp, op_image_pnm;
#ifdef TACIT_HAVE_PNG
op_image_reader op_image_png;
#endif
#ifdef TACIT_HAVE_JPEG
op_image_reader op_image_jpeg;
#endif
#ifdef TACIT_HAVE_WEBP
op_image_reader op_image_webp;
#endif
#ifdef TACIT_HAVE_TIFF
op_image_reader op_image_tiff;
#endif
#ifdef TACIT_HAVE_OPENJPEG
op_image_reader op_image_jpeg2000;
#endif

#endif
