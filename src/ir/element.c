/* SPDX-License-Identifier: Apache-2.0
 * Element access by dtype: the one place that knows how each type is stored. */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "ir/tensor.h"

static half_format format_of(tacit_dtype dtype)
{
    switch (dtype) {
    case TACIT_BF16:
        return HALF_BF16;
    case TACIT_F8E4M3FN:
        return HALF_E4M3FN;
    case TACIT_F8E4M3FNUZ:
        return HALF_E4M3FNUZ;
    case TACIT_F8E5M2:
        return HALF_E5M2;
    case TACIT_F8E5M2FNUZ:
        return HALF_E5M2FNUZ;
    case TACIT_F8E8M0:
        return HALF_E8M0;
    case TACIT_F4E2M1:
        return HALF_E2M1;
    default:
        return HALF_F16;
    }
}

/* Bits of a packed element (2 or 4 wide), first element in the low bits. */
static unsigned load_packed(uint32_t width, const void *data, int64_t index)
{
    unsigned per_byte = 8 / width;
    unsigned byte = ((const uint8_t *)data)[index / per_byte];
    return (byte >> (width * (unsigned)(index % per_byte))) & ((1u << width) - 1);
}

static void store_packed(uint32_t width, void *data, int64_t index, unsigned bits)
{
    unsigned per_byte = 8 / width, shift = width * (unsigned)(index % per_byte);
    unsigned mask = ((1u << width) - 1) << shift;
    uint8_t *p = (uint8_t *)data + index / per_byte;
    *p = (uint8_t)((*p & ~mask) | ((bits << shift) & mask));
}

int64_t ir_load_i64(tacit_dtype dtype, const void *data, int64_t i)
{
    switch (dtype) {
    case TACIT_I8:
        return ((const int8_t *)data)[i];
    case TACIT_I16:
        return ((const int16_t *)data)[i];
    case TACIT_I32:
        return ((const int32_t *)data)[i];
    case TACIT_I64:
        return ((const int64_t *)data)[i];
    case TACIT_U8:
        return ((const uint8_t *)data)[i];
    case TACIT_U16:
        return ((const uint16_t *)data)[i];
    case TACIT_U32:
        return ((const uint32_t *)data)[i];
    case TACIT_U64:
        return (int64_t)((const uint64_t *)data)[i];
    case TACIT_BOOL:
        return ((const uint8_t *)data)[i] != 0;
    case TACIT_U4:
        return load_packed(4, data, i);
    case TACIT_U2:
        return load_packed(2, data, i);
    case TACIT_I4:
        return (int64_t)(load_packed(4, data, i) ^ 8u) - 8;
    case TACIT_I2:
        return (int64_t)(load_packed(2, data, i) ^ 2u) - 2;
    case TACIT_STRING:
    case TACIT_DTYPE_NONE:
        return 0; /* not a number */
    default: {
        double v = ir_load_f64(dtype, data, i);
        if (!(v >= -0x1p63 && v < 0x1p63))
            return v >= 0x1p63 ? INT64_MAX : INT64_MIN;
        return (int64_t)v;
    }
    }
}

double ir_load_f64(tacit_dtype dtype, const void *data, int64_t i)
{
    switch (dtype) {
    case TACIT_F64:
        return ((const double *)data)[i];
    case TACIT_F32:
        return ((const float *)data)[i];
    case TACIT_F16:
        return half_to_f32(half_at(data, i));
    case TACIT_BF16:
        return bf16_to_f32(half_at(data, i));
    case TACIT_F8E4M3FN:
    case TACIT_F8E4M3FNUZ:
    case TACIT_F8E5M2:
    case TACIT_F8E5M2FNUZ:
    case TACIT_F8E8M0:
        return half_decode(format_of(dtype), ((const uint8_t *)data)[i]);
    case TACIT_F4E2M1:
        return half_decode(HALF_E2M1, (uint16_t)load_packed(4, data, i));
    case TACIT_C64:
        return ((const float *)data)[2 * i];
    case TACIT_C128:
        return ((const double *)data)[2 * i];
    case TACIT_U64:
        return (double)((const uint64_t *)data)[i];
    default:
        return (double)ir_load_i64(dtype, data, i);
    }
}

void ir_store_i64(tacit_dtype dtype, void *data, int64_t i, int64_t v)
{
    switch (dtype) {
    case TACIT_I8:
    case TACIT_U8:
        ((uint8_t *)data)[i] = (uint8_t)v;
        break;
    case TACIT_I16:
    case TACIT_U16:
        ((uint16_t *)data)[i] = (uint16_t)v;
        break;
    case TACIT_I32:
    case TACIT_U32:
        ((uint32_t *)data)[i] = (uint32_t)v;
        break;
    case TACIT_I64:
    case TACIT_U64:
        ((int64_t *)data)[i] = v;
        break;
    case TACIT_BOOL:
        ((uint8_t *)data)[i] = v != 0;
        break;
    case TACIT_U4:
    case TACIT_I4:
        store_packed(4, data, i, (unsigned)v);
        break;
    case TACIT_U2:
    case TACIT_I2:
        store_packed(2, data, i, (unsigned)v);
        break;
    case TACIT_STRING:
    case TACIT_DTYPE_NONE:
        break; /* not a number */
    default:
        ir_store_f64(dtype, data, i, (double)v);
        break;
    }
}

/* Toward zero; out-of-range doubles wrap modulo 2^64 where that is defined, NaN gives 0. */
static int64_t f64_to_i64(double v)
{
    if (v >= -0x1p63 && v < 0x1p63)
        return (int64_t)v;
    if (v >= 0x1p63 && v < 0x1p64)
        return (int64_t)(uint64_t)v;
    return isnan(v) ? 0 : v > 0 ? INT64_MAX : INT64_MIN;
}

void ir_store_f64_saturate(tacit_dtype dtype, void *data, int64_t i, double v, bool saturate)
{
    switch (dtype) {
    case TACIT_F64:
        ((double *)data)[i] = v;
        break;
    case TACIT_F32:
        ((float *)data)[i] = (float)v;
        break;
    case TACIT_F16:
    case TACIT_BF16:
        ((uint16_t *)data)[i] = half_encode(format_of(dtype), v, saturate);
        break;
    case TACIT_F8E4M3FN:
    case TACIT_F8E4M3FNUZ:
    case TACIT_F8E5M2:
    case TACIT_F8E5M2FNUZ:
    case TACIT_F8E8M0:
        ((uint8_t *)data)[i] = (uint8_t)half_encode(format_of(dtype), v, saturate);
        break;
    case TACIT_F4E2M1:
        store_packed(4, data, i, half_encode(HALF_E2M1, v, true));
        break;
    case TACIT_C64:
    case TACIT_C128:
        ir_store_complex(dtype, data, i, (double[2]){v, 0});
        break;
    case TACIT_BOOL:
        ((uint8_t *)data)[i] = v != 0;
        break;
    default:
        ir_store_i64(dtype, data, i, f64_to_i64(v));
        break;
    }
}

void ir_store_f64(tacit_dtype dtype, void *data, int64_t i, double v)
{
    ir_store_f64_saturate(dtype, data, i, v, true);
}

void ir_load_complex(tacit_dtype dtype, const void *data, int64_t i, double out[2])
{
    out[0] = ir_load_f64(dtype, data, i);
    out[1] = 0;
    if (dtype == TACIT_C64)
        out[1] = ((const float *)data)[2 * i + 1];
    else if (dtype == TACIT_C128)
        out[1] = ((const double *)data)[2 * i + 1];
}

void ir_store_complex(tacit_dtype dtype, void *data, int64_t i, const double value[2])
{
    if (dtype == TACIT_C64) {
        ((float *)data)[2 * i] = (float)value[0];
        ((float *)data)[2 * i + 1] = (float)value[1];
    } else if (dtype == TACIT_C128) {
        ((double *)data)[2 * i] = value[0];
        ((double *)data)[2 * i + 1] = value[1];
    } else {
        ir_store_f64(dtype, data, i, value[0]);
    }
}

void ir_copy_element(tacit_dtype dtype, void *to, int64_t ti, const void *from, int64_t fi)
{
    uint32_t bits = tacit_dtype_bits(dtype);
    if (bits < 8) {
        store_packed(bits, to, ti, load_packed(bits, from, fi));
        return;
    }
    size_t size = bits / 8;
    memcpy((char *)to + (size_t)ti * size, (const char *)from + (size_t)fi * size, size);
}
