/* SPDX-License-Identifier: Apache-2.0
 * ImageDecoder: recognises the format; BMP and PNM are read here, the rest by libraries. */
#include <string.h>

#include "op/image.h"
#include "op/values.h"

bool op_image_alloc(arena *memory, op_image *image, uint64_t width, uint64_t height)
{
    if (width == 0 || height == 0 || width > OP_IMAGE_PIXELS || height > OP_IMAGE_PIXELS / width)
        return false;
    *image = (op_image){(int64_t)width, (int64_t)height,
                        arena_alloc(memory, (size_t)width * (size_t)height * 3)};
    return image->rgb != NULL;
}

/* --- BMP: uncompressed 24 and 32 bits, and 8 bits with a palette -------------------------------
 */

static uint32_t le(const uint8_t *p, int bytes)
{
    uint32_t v = 0;
    for (int i = bytes; i-- > 0;)
        v = v << 8 | p[i];
    return v;
}

bool op_image_bmp(arena *memory, const uint8_t *data, size_t size, op_image *image)
{
    if (size < 54 || le(data + 14, 4) < 40)
        return false;
    uint64_t start = le(data + 10, 4), palette = 14 + (uint64_t)le(data + 14, 4);
    int32_t width = (int32_t)le(data + 18, 4), height = (int32_t)le(data + 22, 4);
    uint32_t bits = le(data + 28, 2), compression = le(data + 30, 4), colours = le(data + 46, 4);
    bool top_down = height < 0;
    if (width <= 0 || height == 0 || height == INT32_MIN || compression != 0 ||
        (bits != 8 && bits != 24 && bits != 32))
        return false;
    height = top_down ? -height : height;
    uint64_t row = ((uint64_t)width * bits + 31) / 32 * 4;
    colours = colours && colours < 256 ? colours : 256;
    if (start > size || row * (uint64_t)height > size - start ||
        (bits == 8 && palette + 4 * (uint64_t)colours > size) ||
        !op_image_alloc(memory, image, (uint64_t)width, (uint64_t)height))
        return false;
    for (int64_t y = 0; y < height; y++) {
        const uint8_t *line = data + start + row * (uint64_t)(top_down ? y : height - 1 - y);
        for (int64_t x = 0; x < width; x++) {
            const uint8_t *from = line + x * bits / 8;
            if (bits == 8)
                from = data + palette + 4 * (*from < colours ? *from : 0);
            for (int k = 0; k < 3; k++)
                image->rgb[(y * width + x) * 3 + k] = from[2 - k];
        }
    }
    return true;
}

/* --- PNM: P1…P6 --------------------------------------------------------------------------------
 */

typedef struct text_cursor {
    const uint8_t *at, *end;
} text_cursor;

/* The next number, past blanks and comments; −1 at anything else. */
static int64_t next_number(text_cursor *t)
{
    while (t->at < t->end && (*t->at <= ' ' || *t->at == '#')) {
        if (*t->at++ != '#')
            continue;
        while (t->at < t->end && *t->at != '\n')
            t->at++;
    }
    int64_t v = -1;
    while (t->at < t->end && *t->at >= '0' && *t->at <= '9' && v < INT32_MAX)
        v = (v < 0 ? 0 : v) * 10 + (*t->at++ - '0');
    return v;
}

/* A bit of plain P1 may stand without blanks between. */
static int64_t next_bit(text_cursor *t)
{
    while (t->at < t->end && *t->at != '0' && *t->at != '1')
        t->at++;
    return t->at < t->end ? *t->at++ - '0' : -1;
}

bool op_image_pnm(arena *memory, const uint8_t *data, size_t size, op_image *image)
{
    text_cursor t = {data + 2, data + size};
    int kind = data[1] - '0', channels = kind == 3 || kind == 6 ? 3 : 1;
    bool bitmap = kind == 1 || kind == 4, plain = kind <= 3;
    int64_t width = next_number(&t), height = next_number(&t);
    int64_t most = bitmap ? 1 : next_number(&t);
    if (width < 1 || height < 1 || most < 1 || most > 65535 || t.at >= t.end)
        return false;
    if (!plain)
        t.at++; /* the single blank after the header */
    int64_t bytes = most > 255 ? 2 : 1;
    uint64_t row = bitmap ? (uint64_t)(width + 7) / 8 : (uint64_t)(width * channels * bytes);
    if ((!plain && row * (uint64_t)height > (uint64_t)(t.end - t.at)) ||
        (plain && (uint64_t)height > (uint64_t)(t.end - t.at)) ||
        !op_image_alloc(memory, image, (uint64_t)width, (uint64_t)height))
        return false;
    for (int64_t i = 0; i < width * height * 3; i++) {
        int64_t pixel = i / 3, k = channels == 3 ? i % 3 : 0, v;
        if (channels == 1 && i % 3 != 0) {
            image->rgb[i] = image->rgb[i - 1];
            continue;
        }
        const uint8_t *line = t.at + row * (uint64_t)(pixel / width);
        int64_t x = pixel % width;
        if (plain)
            v = bitmap ? next_bit(&t) : next_number(&t);
        else if (bitmap)
            v = line[x / 8] >> (7 - x % 8) & 1;
        else if (bytes == 2)
            v = line[(x * channels + k) * 2] << 8 | line[(x * channels + k) * 2 + 1];
        else
            v = line[x * channels + k];
        if (v < 0 || v > most)
            return false;
        image->rgb[i] = (uint8_t)(bitmap ? (v ? 0 : 255) : (v * 255 + most / 2) / most);
    }
    return true;
}

/* --- the op ------------------------------------------------------------------------------------
 */

static const struct format_row {
    const char *magic;
    size_t at, length;
    op_image_reader *read;
} formats[] = {
    {"BM", 0, 2, op_image_bmp},
    {"P1", 0, 2, op_image_pnm},
    {"P2", 0, 2, op_image_pnm},
    {"P3", 0, 2, op_image_pnm},
    {"P4", 0, 2, op_image_pnm},
    {"P5", 0, 2, op_image_pnm},
    {"P6", 0, 2, op_image_pnm},
#ifdef TACIT_HAVE_PNG
    {"\x89PNG", 0, 4, op_image_png},
#endif
#ifdef TACIT_HAVE_JPEG
    {"\xff\xd8\xff", 0, 3, op_image_jpeg},
#endif
#ifdef TACIT_HAVE_WEBP
    {"WEBP", 8, 4, op_image_webp},
#endif
#ifdef TACIT_HAVE_TIFF
    {"II*\0", 0, 4, op_image_tiff},
    {"MM\0*", 0, 4, op_image_tiff},
#endif
#ifdef TACIT_HAVE_OPENJPEG
    {"jP  ", 4, 4, op_image_jpeg2000},
    {"\xff\x4f\xff\x51", 0, 4, op_image_jpeg2000},
#endif
};

/* An image nobody can read is an empty one: that is what the operator's definition asks for. */
static bool decode(arena *memory, const uint8_t *data, size_t size, op_image *image)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (size >= formats[i].at + formats[i].length &&
            memcmp(data + formats[i].at, formats[i].magic, formats[i].length) == 0 &&
            formats[i].read(memory, data, size, image))
            return true;
    *image = (op_image){0};
    return false;
}

static tacit_status decoder_infer(op_infer *c)
{
    const char *format = ir_attr_string(c->node, "pixel_format", "RGB");
    bool grey = strcmp(format, "Grayscale") == 0;
    if (!grey && strcmp(format, "RGB") != 0 && strcmp(format, "BGR") != 0)
        return error_set(c->err, TACIT_ERR_VALUE, "unknown pixel_format '%s'", format);
    if (c->in[0]->dtype != TACIT_U8)
        return error_set(c->err, TACIT_ERR_TYPE, "the stream is %s, expected u8",
                         tacit_dtype_text(c->in[0]->dtype));
    TRY(op_need_rank(c, 0, 1));
    op_set_out_dims(c, 0, TACIT_U8, 3, (int64_t[]){IR_DIM_UNKNOWN, IR_DIM_UNKNOWN, grey ? 1 : 3});
    return TACIT_OK;
}

static tacit_status decoder_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0);
    const char *format = ir_attr_string(c->node, "pixel_format", "RGB");
    bool grey = strcmp(format, "Grayscale") == 0, swap = strcmp(format, "BGR") == 0;
    op_image image;
    decode(c->scratch, x->data, x->bytes, &image);
    ir_shape shape = ir_shape_of(3, (int64_t[]){image.height, image.width, grey ? 1 : 3});
    TRY(op_eval_alloc(c, 0, TACIT_U8, &shape));
    uint8_t *y = op_out(c, 0)->data;
    for (int64_t i = 0; i < image.height * image.width; i++) {
        const uint8_t *p = image.rgb + 3 * i;
        if (grey) /* ITU-R 601 luma in 16-bit fixed point */
            y[i] = (uint8_t)((19595u * p[0] + 38470u * p[1] + 7471u * p[2] + 0x8000u) >> 16);
        else
            for (int k = 0; k < 3; k++)
                y[3 * i + k] = p[swap ? 2 - k : k];
    }
    return TACIT_OK;
}

const op_def op_rows_image_decoder[] = {
    {.name = "ImageDecoder",
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .flags = OP_DATA_SHAPE,
     .infer = decoder_infer,
     .eval = decoder_eval},
    {0},
};
