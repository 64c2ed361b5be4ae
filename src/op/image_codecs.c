/* SPDX-License-Identifier: Apache-2.0
 * Image formats read by libraries. Each library's errors end in `false`, never in exit. */
#include "op/image.h"

#include <stdarg.h>
#include <string.h>

#ifdef TACIT_HAVE_PNG
#include <png.h>

bool op_image_png(arena *memory, const uint8_t *data, size_t size, op_image *image)
{
    png_image png = {.version = PNG_IMAGE_VERSION};
    bool ok = png_image_begin_read_from_memory(&png, data, size) != 0;
    png.format = PNG_FORMAT_RGB;
    png_color black = {0, 0, 0}; /* transparent pixels lie on black */
    ok = ok && op_image_alloc(memory, image, png.width, png.height) &&
         png_image_finish_read(&png, &black, image->rgb, 0, NULL) != 0;
    png_image_free(&png);
    return ok;
}
#endif

#ifdef TACIT_HAVE_JPEG
#include <setjmp.h>
#include <stdio.h>

#include <jpeglib.h>

typedef struct jpeg_trap {
    struct jpeg_error_mgr base;
    jmp_buf out;
} jpeg_trap;

static void jpeg_fail(j_common_ptr info)
{
    longjmp(((jpeg_trap *)info->err)->out, 1);
}
static void jpeg_quiet(j_common_ptr info, int level)
{
    (void)info;
    (void)level;
}

bool op_image_jpeg(arena *memory, const uint8_t *data, size_t size, op_image *image)
{
    struct jpeg_decompress_struct d;
    jpeg_trap trap;
    d.err = jpeg_std_error(&trap.base);
    trap.base.error_exit = jpeg_fail;
    trap.base.emit_message = jpeg_quiet;
    if (setjmp(trap.out)) {
        jpeg_destroy_decompress(&d);
        return false;
    }
    jpeg_create_decompress(&d);
    jpeg_mem_src(&d, data, size);
    jpeg_read_header(&d, TRUE);
    d.out_color_space = JCS_RGB;
    jpeg_start_decompress(&d);
    bool ok =
        d.output_components == 3 && op_image_alloc(memory, image, d.output_width, d.output_height);
    while (ok && d.output_scanline < d.output_height) {
        JSAMPROW row = image->rgb + (size_t)d.output_scanline * d.output_width * 3;
        ok = jpeg_read_scanlines(&d, &row, 1) == 1;
    }
    jpeg_destroy_decompress(&d);
    return ok;
}
#endif

#ifdef TACIT_HAVE_WEBP
#include <webp/decode.h>

bool op_image_webp(arena *memory, const uint8_t *data, size_t size, op_image *image)
{
    int width, height;
    return WebPGetInfo(data, size, &width, &height) && width > 0 && height > 0 &&
           op_image_alloc(memory, image, (uint64_t)width, (uint64_t)height) &&
           WebPDecodeRGBInto(data, size, image->rgb, (size_t)width * (size_t)height * 3,
                             width * 3) != NULL;
}
#endif

#ifdef TACIT_HAVE_TIFF
#include <tiffio.h>

typedef struct tiff_bytes {
    const uint8_t *data;
    uint64_t size, at;
} tiff_bytes;

static tmsize_t tiff_read(thandle_t h, void *to, tmsize_t n)
{
    tiff_bytes *b = h;
    uint64_t left = b->at < b->size ? b->size - b->at : 0;
    uint64_t take = (uint64_t)n < left ? (uint64_t)n : left;
    memcpy(to, b->data + b->at, take);
    b->at += take;
    return (tmsize_t)take;
}
static tmsize_t tiff_write(thandle_t h, void *from, tmsize_t n)
{
    (void)h;
    (void)from;
    (void)n;
    return 0;
}
static toff_t tiff_seek(thandle_t h, toff_t to, int whence)
{
    tiff_bytes *b = h;
    b->at = whence == SEEK_CUR ? b->at + to : whence == SEEK_END ? b->size + to : to;
    return b->at > b->size ? (b->at = b->size) : b->at;
}
static int tiff_close(thandle_t h)
{
    (void)h;
    return 0;
}
static toff_t tiff_size(thandle_t h)
{
    return ((tiff_bytes *)h)->size;
}

/* Handled: nothing goes to the process-wide handlers, which print. */
static int tiff_quiet(TIFF *t, void *user, const char *module, const char *format, va_list args)
{
    (void)t;
    (void)user;
    (void)module;
    (void)format;
    (void)args;
    return 1;
}

bool op_image_tiff(arena *memory, const uint8_t *data, size_t size, op_image *image)
{
    tiff_bytes bytes = {data, size, 0};
    TIFFOpenOptions *options = TIFFOpenOptionsAlloc();
    if (!options)
        return false;
    TIFFOpenOptionsSetErrorHandlerExtR(options, tiff_quiet, NULL);
    TIFFOpenOptionsSetWarningHandlerExtR(options, tiff_quiet, NULL);
    /* "m": no mapping */
    TIFF *t = TIFFClientOpenExt("image", "rm", &bytes, tiff_read, tiff_write, tiff_seek, tiff_close,
                                tiff_size, NULL, NULL, options);
    TIFFOpenOptionsFree(options);
    uint32_t width = 0, height = 0;
    char reason[1024];
    bool ok = t && TIFFGetField(t, TIFFTAG_IMAGEWIDTH, &width) &&
              TIFFGetField(t, TIFFTAG_IMAGELENGTH, &height) && TIFFRGBAImageOK(t, reason) &&
              op_image_alloc(memory, image, width, height);
    uint32_t *pixels = ok ? arena_alloc(memory, (size_t)width * height * 4) : NULL;
    ok = pixels && TIFFReadRGBAImageOriented(t, width, height, pixels, ORIENTATION_TOPLEFT, 1);
    for (size_t i = 0; ok && i < (size_t)width * height; i++) {
        image->rgb[3 * i] = (uint8_t)TIFFGetR(pixels[i]);
        image->rgb[3 * i + 1] = (uint8_t)TIFFGetG(pixels[i]);
        image->rgb[3 * i + 2] = (uint8_t)TIFFGetB(pixels[i]);
    }
    if (t)
        TIFFClose(t);
    return ok;
}
#endif

#ifdef TACIT_HAVE_OPENJPEG
#include <openjpeg.h>

typedef struct j2k_bytes {
    const uint8_t *data;
    size_t size, at;
} j2k_bytes;

static OPJ_SIZE_T j2k_read(void *to, OPJ_SIZE_T n, void *user)
{
    j2k_bytes *b = user;
    size_t left = b->size - b->at, take = n < left ? n : left;
    if (take == 0)
        return (OPJ_SIZE_T)-1;
    memcpy(to, b->data + b->at, take);
    b->at += take;
    return take;
}
static OPJ_OFF_T j2k_skip(OPJ_OFF_T n, void *user)
{
    j2k_bytes *b = user;
    if (n < 0 || (size_t)n > b->size - b->at)
        return -1;
    b->at += (size_t)n;
    return n;
}
static OPJ_BOOL j2k_seek(OPJ_OFF_T to, void *user)
{
    j2k_bytes *b = user;
    if (to < 0 || (size_t)to > b->size)
        return OPJ_FALSE;
    b->at = (size_t)to;
    return OPJ_TRUE;
}

/* Components to 8-bit RGB; one component is grey. */
static bool j2k_pixels(arena *memory, const opj_image_t *from, op_image *image)
{
    uint32_t n = from->numcomps >= 3 ? 3 : 1;
    for (uint32_t k = 0; k < n; k++)
        if (!from->comps || !from->comps[k].data || from->comps[k].w != from->comps[0].w ||
            from->comps[k].h != from->comps[0].h || from->comps[k].prec < 1 ||
            from->comps[k].prec > 16)
            return false;
    if (!op_image_alloc(memory, image, from->comps[0].w, from->comps[0].h))
        return false;
    for (int64_t i = 0; i < image->width * image->height * 3; i++) {
        const opj_image_comp_t *c = &from->comps[n == 3 ? i % 3 : 0];
        int64_t most = (INT64_C(1) << c->prec) - 1;
        int64_t v = c->data[i / 3] + (c->sgnd ? (most + 1) / 2 : 0);
        v = v < 0 ? 0 : v > most ? most : v;
        image->rgb[i] = (uint8_t)((v * 255 + most / 2) / most);
    }
    return true;
}

bool op_image_jpeg2000(arena *memory, const uint8_t *data, size_t size, op_image *image)
{
    j2k_bytes bytes = {data, size, 0};
    opj_dparameters_t parameters;
    opj_set_default_decoder_parameters(&parameters);
    opj_codec_t *codec = opj_create_decompress(data[0] == 0xff ? OPJ_CODEC_J2K : OPJ_CODEC_JP2);
    opj_stream_t *stream = opj_stream_default_create(OPJ_TRUE);
    opj_image_t *decoded = NULL;
    bool ok = codec && stream && opj_setup_decoder(codec, &parameters);
    if (stream) {
        opj_stream_set_user_data(stream, &bytes, NULL);
        opj_stream_set_user_data_length(stream, size);
        opj_stream_set_read_function(stream, j2k_read);
        opj_stream_set_skip_function(stream, j2k_skip);
        opj_stream_set_seek_function(stream, j2k_seek);
    }
    ok = ok && opj_read_header(stream, codec, &decoded) && decoded->numcomps >= 1 &&
         (uint64_t)(decoded->x1 - decoded->x0) * (decoded->y1 - decoded->y0) <= OP_IMAGE_PIXELS &&
         opj_decode(codec, stream, decoded) && j2k_pixels(memory, decoded, image);
    opj_image_destroy(decoded);
    opj_stream_destroy(stream);
    opj_destroy_codec(codec);
    return ok;
}
#endif
