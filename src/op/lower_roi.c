/* SPDX-License-Identifier: Apache-2.0
 * Regions of images cut into bins: RoiAlign and MaxRoiPool. */
#include <string.h>

#include "cpu/roi.h"
#include "op/lowerings.h"

/* Regions of a tile: 20 µs of them, about. */
static int64_t tile_regions(double work)
{
    double some = 400000 / (work + 1);
    return some < 1 ? 1 : some > 1000 ? 1000 : (int64_t)some;
}

tacit_status op_lower_roi_align(op_lower *c)
{
    const int64_t *x = c->in[0].type.shape.dims, *y = c->out[0].type.shape.dims;
    const char *form = ir_attr_string(c->node, "coordinate_transformation_mode", "half_pixel");
    cpu_roi_align_args r = {
        .from = {.channels = x[1], .pixels = x[2] * x[3]},
        .images = x[0],
        .count = y[0],
        .height = x[2],
        .width = x[3],
        .out_height = y[2],
        .out_width = y[3],
        .ratio = ir_attr_int(c->node, "sampling_ratio", 0),
        .scale = ir_attr_float(c->node, "spatial_scale", 1),
        .half = strcmp(form, "half_pixel") == 0,
        .max = strcmp(ir_attr_string(c->node, "mode", "avg"), "max") == 0,
    };
    if (c->in[0].type.dtype != TACIT_F32 || c->in[1].type.dtype != TACIT_F32 ||
        c->in[2].type.dtype != TACIT_I64 || r.from.pixels >= CPU_SAMPLE_PIXELS ||
        r.ratio > INT16_MAX)
        return OP_LOWER_NO_KERNEL;
    if (ir_shape_size(&c->out[0].type.shape) == 0 || r.from.pixels == 0)
        return r.from.pixels == 0 ? OP_LOWER_NO_KERNEL : TACIT_OK;
    int64_t samples = r.ratio > 0 ? r.ratio * r.ratio : 4, bins = y[2] * y[3];
    double taps = (double)bins * 4 * (double)samples;
    size_t turned = 0;
    r.tile = tile_regions(taps * ((double)x[1] / 4 + 8));
    if (taps * (double)r.count >= (double)(r.images * r.from.pixels))
        TRY(op_lower_turn_images(c, r.images, &r.from, &turned));
    cpu_roi_align_args *a = op_lower_thunk(c, CPU_PICK_NAME(c->cpu.isa, roi_align_f32),
                                           CPU_PICK(c->cpu.isa, cpu_roi_align_f32), sizeof *a,
                                           (uint32_t)((r.count + r.tile - 1) / r.tile));
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = r;
    uint64_t run = (uint64_t)(r.tile * x[1] * bins) * sizeof(float);
    TRY(op_lower_bind_images(c, &r.from, offsetof(cpu_roi_align_args, from), turned));
    TRY(op_lower_in(c, offsetof(cpu_roi_align_args, rois), 1));
    TRY(op_lower_in(c, offsetof(cpu_roi_align_args, batches), 2));
    TRY(op_lower_fault(c, offsetof(cpu_roi_align_args, fault)));
    TRY(op_lower_out_tiled(c, offsetof(cpu_roi_align_args, y), 0, run, run));
    op_lower_cost(c, 2 * taps * (double)(r.count * x[1]), op_lower_all_bytes(c));
    op_lower_note(c, "roi_align_f32_%s: pixels of a sample found once, for %lld channels %s",
                  cpu_isa_name(c->cpu.isa), (long long)x[1],
                  r.from.inside ? "side by side" : "where they lie: few regions");
    return TACIT_OK;
}

tacit_status op_lower_max_roi_pool(op_lower *c)
{
    const int64_t *x = c->in[0].type.shape.dims, *y = c->out[0].type.shape.dims;
    cpu_roi_max_args r = {
        .from = {.channels = x[1], .pixels = x[2] * x[3]},
        .images = x[0],
        .count = y[0],
        .height = x[2],
        .width = x[3],
        .out_height = y[2],
        .out_width = y[3],
        .scale = ir_attr_float(c->node, "spatial_scale", 1),
    };
    if (!op_lower_all_f32(c) || r.from.pixels >= CPU_SAMPLE_PIXELS || r.images > 1 << 24)
        return OP_LOWER_NO_KERNEL;
    if (ir_shape_size(&c->out[0].type.shape) == 0)
        return TACIT_OK;
    size_t turned = 0;
    double pixels = (double)r.from.pixels / 8; /* of a region, about */
    r.tile = tile_regions(pixels * (double)x[1] / 8);
    TRY(op_lower_turn_images(c, r.images, &r.from, &turned));
    cpu_roi_max_args *a = op_lower_thunk(c, CPU_PICK_NAME(c->cpu.isa, roi_max_f32),
                                         CPU_PICK(c->cpu.isa, cpu_roi_max_f32), sizeof *a,
                                         (uint32_t)((r.count + r.tile - 1) / r.tile));
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = r;
    uint64_t run = (uint64_t)(r.tile * x[1] * y[2] * y[3]) * sizeof(float);
    TRY(op_lower_bind_images(c, &r.from, offsetof(cpu_roi_max_args, from), turned));
    TRY(op_lower_in(c, offsetof(cpu_roi_max_args, rois), 1));
    TRY(op_lower_fault(c, offsetof(cpu_roi_max_args, fault)));
    TRY(op_lower_out_tiled(c, offsetof(cpu_roi_max_args, y), 0, run, run));
    op_lower_cost(c, pixels * (double)(r.count * x[1]), op_lower_all_bytes(c));
    op_lower_note(c, "roi_max_f32_%s over %lld channels side by side", cpu_isa_name(c->cpu.isa),
                  (long long)x[1]);
    return TACIT_OK;
}
