/* SPDX-License-Identifier: Apache-2.0
 * Gaussian splats on an image: what the picture, its gradient and its tangent share. */
#ifndef OP_SPLAT_H
#define OP_SPLAT_H

#include "op/op.h"

/* Gaussians as the camera sees them, one row each. */
typedef struct op_splats {
    double *mean, *conic, *depth, *radius, *colour; /* [2], [3], [1], [1], [3] */
    double *opacity, *background;                   /* [1]; [3] in all, or NULL */
    int64_t n;
} op_splats;

typedef struct op_canvas {
    int64_t width, height, tile;
    double alpha_min, stop;
} op_canvas;

tacit_status op_canvas_read(const ir_node *node, op_canvas *v, tacit_error *err);

/* How a Gaussian covers a pixel: alpha, and whether it is the limit 0.99. */
typedef struct op_cover {
    int64_t id;
    double dx, dy, alpha, weight; /* weight = e^power: alpha over opacity */
    double through;               /* what was left in front of it */
    bool cut;
} op_cover;

/* Everything that adds to the pixel at (x, y), front to back, into `out`; returns how many. `ids`:
 * the tile's Gaussians in that order. `left` is what passes all of them. */
int64_t op_splat_covers(const op_canvas *v, const op_splats *p, const int64_t *ids, int64_t count,
                        double x, double y, op_cover *out, double *left);

/* Calls `paint` for every pixel, tile by tile, with what covers it. */
typedef void op_splat_paint(void *context, int64_t pixel, const op_cover *covers, int64_t count,
                            double left);
tacit_status op_splat_pixels(op_eval *c, const op_canvas *v, const op_splats *p,
                             op_splat_paint *paint, void *context);

#endif
