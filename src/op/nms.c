/* SPDX-License-Identifier: Apache-2.0
 * NonMaxSuppression. */
#include <math.h>
#include <string.h>

#include "op/values.h"

static tacit_status nms_infer(op_infer *c)
{
    const ir_shape *boxes = &c->in[0]->shape, *scores = &c->in[1]->shape;
    if (boxes->rank != 3 || scores->rank != 3 || boxes->dims[2] != 4 ||
        boxes->dims[0] != scores->dims[0] || boxes->dims[1] != scores->dims[2])
        return error_set(c->err, TACIT_ERR_SHAPE, "boxes must be [B,N,4], scores [B,C,N]");
    if (scores->dims[2] > UINT32_MAX || tacit_dtype_bits(c->in[1]->dtype) > 32)
        return error_set(c->err, TACIT_ERR_UNSUPPORTED,
                         "scores must be f32, for 2^32 boxes or less");
    for (uint32_t i = 2; i < c->n_in; i++)
        if (c->in[i] && ir_shape_size(&c->in[i]->shape) != 1)
            return error_set(c->err, TACIT_ERR_SHAPE, "input %u must have one element", i);
    op_set_out_dims(c, 0, TACIT_I64, 2, (int64_t[]){IR_DIM_UNKNOWN, 3});
    return TACIT_OK;
}

/* A candidate is one number: its score in the high half, so that larger numbers stand for larger
 * scores, and what its box lacks to the last in the low half. The largest comes first; of equal
 * scores the first box. */
static inline uint64_t candidate(float score, int64_t box)
{
    uint32_t bits;
    score += 0.0f; /* zeros of both signs are equal */
    memcpy(&bits, &score, sizeof bits);
    bits ^= bits >> 31 ? UINT32_MAX : UINT32_C(1) << 31;
    return (uint64_t)bits << 32 | (UINT32_MAX - (uint32_t)box);
}

static inline int64_t candidate_box(uint64_t c)
{
    return (int64_t)(UINT32_MAX - (uint32_t)c);
}

/* A heap with the best on top: what is popped comes in order, and of most candidates nobody asks
 * for their place. */
static void sink(uint64_t *heap, int64_t count, int64_t at)
{
    uint64_t moved = heap[at];
    for (int64_t child; (child = 2 * at + 1) < count; at = child) {
        child += child + 1 < count && heap[child + 1] > heap[child];
        if (heap[child] <= moved)
            break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

static void make_heap(uint64_t *heap, int64_t count)
{
    for (int64_t i = count / 2; i-- > 0;)
        sink(heap, count, i);
}

static uint64_t pop(uint64_t *heap, int64_t *count)
{
    uint64_t best = heap[0];
    heap[0] = heap[--*count];
    sink(heap, *count, 0);
    return best;
}

/* Corners in order, and what lies between. */
typedef struct box {
    double low[2], high[2], area;
} box;

/* From either box form. */
static box normalise(const double *given, bool centre)
{
    box out;
    for (int i = 0; i < 2; i++) {
        double a = given[i], b = given[2 + i];
        out.low[i] = centre ? a - b / 2 : fmin(a, b);
        out.high[i] = centre ? a + b / 2 : fmax(a, b);
    }
    out.area = (out.high[0] - out.low[0]) * (out.high[1] - out.low[1]);
    return out;
}

/* A box with a corner of no number has no area and overlaps none. */
static inline double overlap(const box *a, const box *b)
{
    double top = a->low[0] > b->low[0] ? a->low[0] : b->low[0];
    double h = (a->high[0] < b->high[0] ? a->high[0] : b->high[0]) - top;
    if (!(h > 0))
        return 0;
    double left = a->low[1] > b->low[1] ? a->low[1] : b->low[1];
    double w = (a->high[1] < b->high[1] ? a->high[1] : b->high[1]) - left;
    double both = w > 0 ? h * w : 0, either = a->area + b->area - both;
    return either > 0 ? both / either : 0;
}

/* Boxes by where they lie along the first axis: only those that share a bin can overlap. With the
 * boxes of all classes moved apart, as detectors do, these are few. Bins are as wide as boxes are
 * on the average, or wider: n boxes take 3·n places in lists of what spans a bin, n of what starts.
 */
enum { BINS = 1024 };
typedef struct link {
    int64_t box, next; /* -1: none */
} link;
typedef struct bins {
    double low, width;
    int64_t count, used;
    int64_t spanning[BINS], starting[BINS];
    link *links;
} bins;

static int64_t bin_of(const bins *b, double x)
{
    double at = (x - b->low) / b->width;
    return at > 0 ? at < (double)b->count ? (int64_t)at : b->count - 1 : 0;
}

/* Where bins lie. Every box goes to the same one where a box without overlap would count too, or
 * sizes are not finite. */
static void bins_place(bins *b, const box *boxes, int64_t n, double limit)
{
    double low = INFINITY, high = -INFINITY, total = 0;
    for (int64_t i = 0; i < n; i++) {
        low = fmin(low, boxes[i].low[0]);
        high = fmax(high, boxes[i].high[0]);
        total += fmax(boxes[i].high[0] - boxes[i].low[0], 0);
    }
    double width = fmax(total / (double)n, (high - low) / BINS);
    bool even = limit >= 0 && isfinite(width) && isfinite(low) && width > 0;
    b->low = even ? low : 0;
    b->width = even ? width : 1;
    b->count = even ? (int64_t)fmin(ceil((high - low) / width), BINS) : 1;
}

static void bins_empty(bins *b)
{
    b->used = 0;
    for (int64_t i = 0; i < b->count; i++)
        b->spanning[i] = b->starting[i] = -1;
}

static void push(bins *b, int64_t *list, int64_t at)
{
    b->links[b->used] = (link){.box = at, .next = *list};
    *list = b->used++;
}

static void bins_add(bins *b, const box *kept, int64_t at)
{
    int64_t first = bin_of(b, kept[at].low[0]), last = bin_of(b, kept[at].high[0]);
    for (int64_t i = first; i <= last; i++)
        push(b, &b->spanning[i], at);
    push(b, &b->starting[first], at);
}

static bool list_covers(const bins *b, int64_t list, const box *kept, const box *x, double limit)
{
    for (int64_t i = list; i >= 0; i = b->links[i].next)
        if (!(overlap(x, &kept[b->links[i].box]) <= limit))
            return true;
    return false;
}

/* Does one of those added overlap x by more than the limit? */
static bool bins_cover(const bins *b, const box *kept, const box *x, double limit)
{
    int64_t first = bin_of(b, x->low[0]), last = bin_of(b, x->high[0]);
    bool covered = list_covers(b, b->spanning[first], kept, x, limit);
    for (int64_t i = first + 1; i <= last && !covered; i++)
        covered = list_covers(b, b->starting[i], kept, x, limit);
    return covered;
}

static double scalar(const op_eval *c, uint32_t i, double fallback)
{
    const ir_tensor *t = op_in(c, i);
    return t ? ir_load_f64(t->dtype, t->data, 0) : fallback;
}

/* One class of one image; returns how many boxes are picked. */
typedef struct suppression {
    const box *boxes;
    box *kept;      /* those picked, in order… */
    bins *bins;     /* …and by place */
    uint64_t *list; /* of candidates */
    double most, limit;
} suppression;

static int64_t suppress(const suppression *s, int64_t count, int64_t *picked)
{
    int64_t found = 0;
    make_heap(s->list, count);
    bins_empty(s->bins);
    while (count > 0 && (double)found < s->most) {
        int64_t next = candidate_box(pop(s->list, &count));
        const box *b = &s->boxes[next];
        if (bins_cover(s->bins, s->kept, b, s->limit))
            continue;
        s->kept[found] = *b;
        bins_add(s->bins, s->kept, found);
        picked[found++] = next;
    }
    return found;
}

/* The candidates among n scores; NaN is none. */
static int64_t list_scores(const op_eval *c, int64_t first, int64_t n, uint64_t *list)
{
    const ir_tensor *t = op_in(c, 1);
    bool bounded = op_in(c, 4) != NULL;
    double least = scalar(c, 4, 0);
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        float s = t->dtype == TACIT_F32 ? ((const float *)t->data)[first + i]
                                        : (float)ir_load_f64(t->dtype, t->data, first + i);
        list[count] = candidate(s, i);
        count += bounded ? (double)s > least : s == s;
    }
    return count;
}

static tacit_status nms_eval(op_eval *c)
{
    const int64_t *d = op_in(c, 1)->shape.dims;
    int64_t batches = d[0], classes = d[1], n = d[2], found = 0;
    suppression s = {.most = scalar(c, 2, 0), .limit = scalar(c, 3, 0)};
    bool centre = ir_attr_int(c->node, "center_point_box", 0) != 0;
    int64_t each = s.most < (double)n ? s.most > 0 ? (int64_t)s.most + 1 : 0 : n;
    double *given;
    TRY(op_input_f64(c, 0, &given));
    box *boxes = op_eval_scratch(c, (size_t)(n + 1) * sizeof *boxes);
    s.kept = op_eval_scratch(c, (size_t)(each + 1) * sizeof *s.kept);
    s.list = op_eval_scratch(c, (size_t)(n + 1) * sizeof *s.list);
    s.bins = op_eval_scratch(c, sizeof *s.bins);
    link *links = op_eval_scratch(c, (size_t)(4 * n + 1) * sizeof *links);
    int64_t *picked = op_eval_scratch(c, (size_t)(each + 1) * sizeof *picked);
    int64_t *rows = op_eval_scratch(c, (size_t)(batches * classes * each * 3 + 1) * sizeof *rows);
    if (!boxes || !s.kept || !s.list || !s.bins || !links || !picked || !rows)
        return error_memory(c->err, "candidate boxes");
    s.boxes = boxes;
    s.bins->links = links;
    for (int64_t g = 0; g < batches * classes; g++) {
        for (int64_t i = 0; g % classes == 0 && i < n; i++)
            boxes[i] = normalise(given + (g / classes * n + i) * 4, centre);
        if (g % classes == 0)
            bins_place(s.bins, boxes, n, s.limit);
        int64_t some = suppress(&s, list_scores(c, g * n, n, s.list), picked);
        for (int64_t k = 0; k < some; k++, found++) {
            rows[found * 3] = g / classes;
            rows[found * 3 + 1] = g % classes;
            rows[found * 3 + 2] = picked[k];
        }
    }
    ir_shape y = ir_shape_of(2, (int64_t[]){found, 3});
    TRY(op_eval_alloc(c, 0, TACIT_I64, &y));
    op_output_i64(c, 0, rows);
    return TACIT_OK;
}

const op_def op_rows_nms[] = {
    {.name = "NonMaxSuppression",
     .min_in = 2,
     .max_in = 5,
     .min_out = 1,
     .max_out = 1,
     .flags = OP_DATA_SHAPE | OP_NOT_DIFFERENTIABLE,
     .infer = nms_infer,
     .eval = nms_eval},
    {0},
};
