/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/digits.h"

#include <math.h>

#include "base/rng.h"

enum {
    MAX_POINTS = 10,
    MAX_STROKES = 3,
    SMOOTH = 5,
    MAX_SEGMENTS = MAX_STROKES * MAX_POINTS * SMOOTH
};

typedef struct point {
    double x, y;
} point;

/* Points of a pen's way through the unit square, y downwards; drawn as a smooth curve, or with
 * corners. */
typedef struct stroke {
    uint32_t count;
    int corners;
    point at[MAX_POINTS];
} stroke;

typedef struct shape {
    int digit;
    stroke strokes[MAX_STROKES];
} shape;

/* Two ways of writing every digit. */
static const shape shapes[DIGITS_CLASSES][2] = {
    {{0,
      {{9,
        0,
        {{.5, .05},
         {.22, .2},
         {.15, .5},
         {.25, .85},
         {.5, .95},
         {.77, .82},
         {.85, .5},
         {.76, .18},
         {.5, .05}}}}},
     {0,
      {{9,
        0,
        {{.62, .06},
         {.35, .12},
         {.2, .45},
         {.24, .8},
         {.45, .95},
         {.7, .78},
         {.8, .45},
         {.7, .15},
         {.48, .1}}}}}},
    {{1, {{2, 1, {{.5, .05}, {.5, .95}}}}}, {1, {{3, 1, {{.3, .28}, {.55, .05}, {.52, .95}}}}}},
    {{2,
      {{8,
        0,
        {{.2, .25},
         {.35, .07},
         {.62, .06},
         {.78, .25},
         {.68, .48},
         {.42, .72},
         {.2, .93},
         {.2, .93}}},
       {2, 1, {{.2, .93}, {.82, .92}}}}},
     {2,
      {{10,
        0,
        {{.2, .2},
         {.45, .05},
         {.72, .15},
         {.72, .38},
         {.5, .65},
         {.25, .88},
         {.22, .78},
         {.4, .78},
         {.6, .92},
         {.85, .86}}}}}},
    {{3,
      {{5, 0, {{.22, .15}, {.5, .05}, {.75, .2}, {.66, .4}, {.42, .47}}},
       {5, 0, {{.42, .47}, {.7, .54}, {.8, .74}, {.55, .94}, {.2, .84}}}}},
     {3,
      {{4, 1, {{.22, .08}, {.76, .08}, {.47, .42}, {.47, .42}}},
       {5, 0, {{.47, .42}, {.75, .55}, {.75, .82}, {.48, .95}, {.2, .82}}}}}},
    {{4, {{3, 1, {{.6, .05}, {.15, .65}, {.88, .65}}}, {2, 1, {{.66, .38}, {.64, .95}}}}},
     {4, {{3, 1, {{.25, .08}, {.2, .52}, {.78, .5}}}, {2, 1, {{.74, .08}, {.7, .95}}}}}},
    {{5,
      {{3, 1, {{.76, .07}, {.3, .08}, {.25, .45}}},
       {6, 0, {{.25, .45}, {.52, .38}, {.78, .55}, {.76, .8}, {.5, .95}, {.2, .85}}}}},
     {5,
      {{2, 1, {{.35, .1}, {.8, .06}}},
       {7, 0, {{.35, .1}, {.28, .42}, {.5, .4}, {.74, .56}, {.7, .82}, {.45, .95}, {.18, .86}}}}}},
    {{6,
      {{9,
        0,
        {{.7, .06},
         {.4, .22},
         {.22, .55},
         {.27, .84},
         {.5, .95},
         {.75, .82},
         {.72, .6},
         {.48, .52},
         {.26, .68}}}}},
     {6,
      {{8,
        0,
        {{.45, .05},
         {.26, .4},
         {.22, .75},
         {.42, .95},
         {.68, .88},
         {.7, .66},
         {.48, .58},
         {.27, .74}}}}}},
    {{
         7,
         {{3, 1, {{.18, .08}, {.82, .08}, {.42, .95}}}},
     },
     {7, {{3, 1, {{.18, .1}, {.8, .08}, {.45, .95}}}, {2, 1, {{.38, .5}, {.76, .48}}}}}},
    {{8,
      {{10,
        0,
        {{.72, .18},
         {.5, .05},
         {.27, .18},
         {.34, .38},
         {.66, .58},
         {.75, .8},
         {.5, .95},
         {.25, .8},
         {.36, .56},
         {.72, .2}}}}},
     {8,
      {{7, 0, {{.5, .47}, {.28, .3}, {.38, .08}, {.64, .08}, {.72, .3}, {.5, .47}, {.5, .47}}},
       {7, 0, {{.5, .47}, {.76, .65}, {.7, .9}, {.42, .95}, {.22, .78}, {.3, .58}, {.5, .47}}}}}},
    {{9,
      {{8,
        0,
        {{.74, .3}, {.55, .06}, {.28, .16}, {.27, .4}, {.5, .5}, {.72, .34}, {.74, .3}, {.74, .3}}},
       {3, 0, {{.74, .3}, {.7, .65}, {.55, .95}}}}},
     {9,
      {{7, 0, {{.72, .2}, {.45, .06}, {.25, .25}, {.36, .47}, {.62, .44}, {.73, .2}, {.73, .2}}},
       {4, 0, {{.73, .2}, {.74, .6}, {.6, .9}, {.3, .92}}}}}},
};

typedef struct drawing {
    point from[MAX_SEGMENTS], to[MAX_SEGMENTS];
    uint32_t count;
} drawing;

/* On the curve through b and c whose neighbours are a and d. */
static point between(point a, point b, point c, point d, double t)
{
    double s = t * t, u = s * t;
    double wa = (-u + 2 * s - t) / 2, wb = (3 * u - 5 * s + 2) / 2;
    double wc = (-3 * u + 4 * s + t) / 2, wd = (u - s) / 2;
    return (point){wa * a.x + wb * b.x + wc * c.x + wd * d.x,
                   wa * a.y + wb * b.y + wc * c.y + wd * d.y};
}

static void add_stroke(drawing *d, const stroke *s, const point *at)
{
    uint32_t steps = s->corners ? 1 : SMOOTH;
    for (uint32_t i = 0; i + 1 < s->count; i++) {
        point a = at[i ? i - 1 : 0], e = at[i + 2 < s->count ? i + 2 : i + 1], last = at[i];
        for (uint32_t k = 1; k <= steps; k++) {
            point next =
                s->corners ? at[i + 1] : between(a, at[i], at[i + 1], e, (double)k / (double)steps);
            d->from[d->count] = last;
            d->to[d->count++] = next;
            last = next;
        }
    }
}

/* One hand: how the unit square lies in the image, in pixels. */
typedef struct hand {
    double xx, xy, yx, yy, x0, y0, jitter;
} hand;

static hand draw_hand(rng *r)
{
    double turn = 0.14 * rng_normal(r), slant = 0.16 * rng_normal(r);
    double wide = rng_range(r, 7.5, 11), high = rng_range(r, 10, 13);
    double c = cos(turn), s = sin(turn);
    hand h = {.xx = wide * c,
              .xy = -high * (s + slant * c),
              .yx = wide * s,
              .yy = high * (c - slant * s)};
    h.x0 = 7.5 + 0.7 * rng_normal(r);
    h.y0 = 7.5 + 0.6 * rng_normal(r);
    h.jitter = rng_range(r, 0.01, 0.035);
    return h;
}

static point place(const hand *h, point p, rng *r)
{
    double x = p.x - 0.5 + h->jitter * rng_normal(r), y = p.y - 0.5 + h->jitter * rng_normal(r);
    return (point){h->x0 + h->xx * x + h->xy * y, h->y0 + h->yx * x + h->yy * y};
}

static double distance(const drawing *d, double x, double y)
{
    double best = 1e9;
    for (uint32_t i = 0; i < d->count; i++) {
        double ax = d->from[i].x, ay = d->from[i].y;
        double bx = d->to[i].x - ax, by = d->to[i].y - ay, px = x - ax, py = y - ay;
        double length = bx * bx + by * by, t = length > 0 ? (px * bx + py * by) / length : 0;
        t = t < 0 ? 0 : t > 1 ? 1 : t;
        double dx = px - t * bx, dy = py - t * by;
        best = fmin(best, dx * dx + dy * dy);
    }
    return sqrt(best);
}

static void draw_digit(int64_t digit, rng *r, float *image)
{
    const shape *s = &shapes[digit][rng_below(r, 2)];
    hand h = draw_hand(r);
    drawing d = {.count = 0};
    for (uint32_t k = 0; k < MAX_STROKES && s->strokes[k].count; k++) {
        point at[MAX_POINTS];
        for (uint32_t i = 0; i < s->strokes[k].count; i++)
            at[i] = place(&h, s->strokes[k].at[i], r);
        add_stroke(&d, &s->strokes[k], at);
    }
    double half = rng_range(r, 0.45, 1.15), ink = rng_range(r, 0.75, 1),
           noise = rng_range(r, 0, 0.1);
    for (int64_t i = 0; i < DIGITS_PIXELS; i++) {
        double away = distance(&d, (double)(i % DIGITS_SIDE), (double)(int64_t)(i / DIGITS_SIDE));
        double value = ink * fmin(1, fmax(0, half + 0.5 - away)) + noise * rng_normal(r);
        image[i] = (float)fmin(1, fmax(0, value));
    }
}

void digits_draw(uint64_t seed, int64_t count, float *images, int64_t *labels)
{
    rng r = rng_seed(seed);
    for (int64_t i = 0; i < count; i++)
        labels[i] = i % DIGITS_CLASSES;
    for (int64_t i = count - 1; i > 0; i--) {
        int64_t k = (int64_t)rng_below(&r, (uint64_t)i + 1), keep = labels[i];
        labels[i] = labels[k];
        labels[k] = keep;
    }
    for (int64_t i = 0; i < count; i++)
        draw_digit(labels[i], &r, images + i * DIGITS_PIXELS);
}
