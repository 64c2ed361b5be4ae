/* SPDX-License-Identifier: Apache-2.0
 * Panels of weights in few bits. Every byte of them is written: also that of columns and rows which
 * do not exist. */
#include "op/narrow_pack.h"

#include <string.h>

#include "base/half.h"
#include "cpu/qpack.h"

void op_narrow_facts(const op_narrow *s, int64_t facts[OP_NARROW_FACTS])
{
    facts[0] = s->kind;
    facts[1] = s->k;
    facts[2] = s->n;
    facts[3] = s->block;
    facts[4] = s->bits;
    facts[5] = s->format;
    facts[6] = s->trans;
    facts[7] = s->gguf ? s->gguf->code + 1 : 0;
}

size_t op_narrow_row_bytes(const op_narrow *s, const op_narrow_data *d)
{
    int64_t rows = op_narrow_by_rows(s) ? s->k : s->n;
    return d->w->bytes / (size_t)rows;
}

/* --- scales ------------------------------------------------------------------------------------
 */

typedef struct panel {
    uint8_t *data;
    char *scales, *super;
} panel;

static panel panel_at(const op_narrow_pack_args *a, int64_t t)
{
    const cpu_qdot_weights *w = &a->w;
    const char *memory = a->memory;
    return (panel){(uint8_t *)a->memory + ((const char *)w->data - memory) + t * w->data_step,
                   a->memory + ((const char *)w->scales - memory) + t * w->scale_step,
                   w->super ? a->memory + ((const char *)w->super - memory) + t * w->super_step
                            : NULL};
}

static size_t scale_size(const cpu_qdot_weights *w)
{
    return w->scale_kind == CPU_QSCALE_F32 ? 4 : w->scale_kind == CPU_QSCALE_F16 ? 2 : 1;
}

/* The low bytes of the bits: little-endian or not. */
static inline void put(char *to, size_t size, uint32_t bits)
{
    if (size == 4) {
        memcpy(to, &bits, 4);
    } else if (size == 2) {
        uint16_t half = (uint16_t)bits;
        memcpy(to, &half, 2);
    } else {
        *to = (char)bits;
    }
}

/* What is needed for every scale, looked up once. */
typedef struct packing {
    const op_narrow_pack_args *a;
    op_narrow_data d;
    int64_t by_block, by_column; /* from scale to scale */
    const float *f32;            /* NULL: of another type */
    size_t size;                 /* of a packed scale */
    int64_t group_scales;        /* bytes */
    float lift;
    uint8_t flip; /* turned in a code: the same */
    size_t ahead; /* bytes to the columns that come after these: processors do not foresee them */
} packing;

static packing packing_of(const op_narrow_pack_args *a)
{
    const op_narrow_data *d = &a->d;
    packing p = {.a = a,
                 .d = {d->w, d->scale, d->zero, a->bytes},
                 .size = scale_size(&a->w),
                 .ahead = CPU_QPACK_COLUMNS * op_narrow_row_bytes(&a->s, d),
                 .group_scales = cpu_qdot_scale_bytes(&a->w, a->width)};
    if (a->s.kind == OP_NARROW_GGUF)
        return p;
    if (a->s.kind != OP_NARROW_LINEAR || ir_tensor_count(d->scale) > 1) {
        p.by_block = op_narrow_scale_index(&a->s, d, 1, 0);
        p.by_column = op_narrow_scale_index(&a->s, d, 0, 1);
    }
    p.f32 = d->scale->dtype == TACIT_F32 ? d->scale->data : NULL;
    p.flip = (uint8_t)op_narrow_lift(&a->s, d);
    p.lift = p.flip;
    return p;
}

static inline uint32_t bits_of(cpu_qscale kind, float x)
{
    uint32_t bits;
    if (kind == CPU_QSCALE_F16)
        return f16_of_f32(x); /* the layout has seen that they are */
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Scale and offset of parts of a group, `column` of the panel, at `to`. */
static inline void put_scale(const packing *p, char *to, int64_t column, int h, uint32_t scale,
                             uint32_t offset)
{
    const op_narrow_pack_args *a = p->a;
    put(to + (size_t)(h * a->width + column) * p->size, p->size, scale);
    if (a->w.offsets)
        put(to + (size_t)((a->w.subs + h) * a->width + column) * p->size, p->size, offset);
}

/* Walks over parts of groups beside the blocks that have scales. */
typedef struct walk {
    int64_t block, left, each; /* parts of a block: left of this one, and of all */
} walk;

static walk walk_from(const op_narrow_pack_args *a, int64_t group)
{
    int64_t part = CPU_QGROUP / a->w.subs, at = group * a->w.subs;
    int64_t each = a->s.block >= a->s.k ? a->w.groups * a->w.subs : a->s.block / part;
    return (walk){at / each, each - at % each, each};
}

static inline void walk_on(walk *w)
{
    if (--w->left == 0) {
        w->left = w->each;
        w->block++;
    }
}

/* Of the elements of column j in this block; zeros where there are none. */
static inline void put_known_scale(const packing *p, char *to, int64_t column, int h, int64_t block,
                                   int64_t j)
{
    const op_narrow_pack_args *a = p->a;
    float scale = 0, offset = 0;
    if (block < a->s.blocks && j < a->s.n) {
        int64_t at = block * p->by_block + j * p->by_column;
        scale = p->f32 ? p->f32[at] : (float)ir_load_f64(a->d.scale->dtype, a->d.scale->data, at);
        if (a->w.offsets)
            offset = scale * ((float)op_narrow_zero(&a->s, &p->d, block, j) + p->lift);
    }
    put_scale(p, to, column, h, bits_of(a->w.scale_kind, scale), bits_of(a->w.scale_kind, offset));
}

/* --- columns -----------------------------------------------------------------------------------
 */

enum { SOME = CPU_QSUPER }; /* groups at a time */

/* n values of a column from k on, as the words of a group. */
static void take_group(const packing *p, const op_narrow_line *c, int64_t k, int64_t n, uint8_t *to)
{
    uint8_t q[CPU_QGROUP] = {0};
    __builtin_prefetch(c->from + (c->first + k) * c->bits / 8 + p->ahead);
    if (n == CPU_QGROUP && c->bits == 4 && c->first % 2 == 0) {
        memcpy(q, c->from + (c->first + k) / 2, CPU_QGROUP / 2);
        for (int i = 0; i < CPU_QGROUP / 2; i++)
            q[i] ^= (uint8_t)(p->flip * 0x11);
        cpu_qpack_nibbles(q, to);
        return;
    }
    if (n == CPU_QGROUP && c->bits == 8)
        memcpy(q, c->from + k, sizeof q);
    else
        op_narrow_codes(c, k, n, q);
    for (int i = 0; i < CPU_QGROUP; i++)
        q[i] ^= p->flip;
    for (int64_t i = n; i < CPU_QGROUP; i++)
        q[i] = 0;
    cpu_qpack_group(q, p->a->w.bits, to);
}

/* Groups [g, g + count) of one column. */
static void pack_fields(const packing *p, int64_t j, int64_t at, int64_t g, int64_t count,
                        uint8_t (*words)[CPU_QGROUP], const panel *to)
{
    const op_narrow_pack_args *a = p->a;
    op_narrow_line c = op_narrow_line_at(&a->s, &p->d, j);
    walk w = walk_from(a, g);
    for (int64_t i = 0; i < count; i++) {
        int64_t k = (g + i) * CPU_QGROUP, n = a->s.k - k < CPU_QGROUP ? a->s.k - k : CPU_QGROUP;
        take_group(p, &c, k, n, words[i]);
        for (int h = 0; h < a->w.subs; h++, walk_on(&w))
            put_known_scale(p, to->scales + (g + i) * p->group_scales, at, h, w.block, j);
    }
}

/* The same of a GGUF matrix; SOME groups have the same super-scale. */
static void pack_blocks(const packing *p, int64_t j, int64_t at, int64_t g, int64_t count,
                        uint8_t (*words)[CPU_QGROUP], const panel *to)
{
    const op_narrow_pack_args *a = p->a;
    const op_gguf_type *t = a->s.gguf;
    op_gguf_group_fn *group = op_gguf_group_of(t);
    int per = t->elements / CPU_QGROUP;
    const uint8_t *row = a->bytes + j * (a->s.k / t->elements) * t->bytes;
    op_qgroup q = {0};
    for (int64_t i = 0; i < count; i++) {
        const uint8_t *block = row + (g + i) / per * t->bytes;
        __builtin_prefetch(block + i * t->bytes / SOME + p->ahead);
        group(block, (int)((g + i) % per), &q);
        cpu_qpack_group(q.q, a->w.bits, words[i]);
        for (int h = 0; h < a->w.subs; h++)
            put_scale(p, to->scales + (g + i) * p->group_scales, at, h, q.scale[h], q.offset[h]);
        for (int h = 0; i == 0 && to->super && h < 2; h++)
            memcpy(to->super + ((g / CPU_QSUPER * 2 + h) * a->width + at) * 2, &q.super[h], 2);
    }
}

/* The same of a column that does not exist. */
static void pack_nothing(const packing *p, int64_t at, int64_t g, int64_t count,
                         uint8_t (*words)[CPU_QGROUP], const panel *to)
{
    static const uint16_t none = 0;
    const op_narrow_pack_args *a = p->a;
    memset(words, 0, (size_t)count * sizeof *words);
    for (int64_t i = 0; i < count; i++)
        for (int h = 0; h < a->w.subs; h++)
            put_scale(p, to->scales + (g + i) * p->group_scales, at, h, 0, 0);
    for (int h = 0; to->super && h < 2; h++)
        memcpy(to->super + ((g / CPU_QSUPER * 2 + h) * a->width + at) * 2, &none, 2);
}

static void pack_panel(const packing *p, int64_t t)
{
    const op_narrow_pack_args *a = p->a;
    panel to = panel_at(a, t);
    int64_t group_bytes = cpu_qdot_group_bytes(a->w.bits, a->width);
    int words_of_group = (int)(group_bytes / a->width / 4);
    for (int64_t g = 0; g < a->w.groups; g += SOME) {
        int64_t count = a->w.groups - g < SOME ? a->w.groups - g : SOME;
        for (int64_t c = 0; c < a->width; c += CPU_QPACK_COLUMNS) {
            uint8_t words[CPU_QPACK_COLUMNS][SOME][CPU_QGROUP];
            for (int64_t i = 0; i < CPU_QPACK_COLUMNS; i++) {
                int64_t j = t * a->width + c + i;
                if (j >= a->s.n)
                    pack_nothing(p, c + i, g, count, words[i], &to);
                else if (a->s.kind == OP_NARROW_GGUF)
                    pack_blocks(p, j, c + i, g, count, words[i], &to);
                else
                    pack_fields(p, j, c + i, g, count, words[i], &to);
            }
            for (int64_t i = 0; i < count; i++)
                cpu_qpack_turn(words[0][i], sizeof words[0], words_of_group,
                               to.data + (g + i) * group_bytes + 4 * c, 4 * a->width);
        }
    }
}

/* --- rows --------------------------------------------------------------------------------------
 */

enum { COLUMNS = 512 }; /* at a time: a multiple of every width */

/* n values of row k from column j on, and zeros. */
static void take_row(const packing *p, int64_t k, int64_t j, int64_t n, uint8_t to[COLUMNS])
{
    const op_narrow *s = &p->a->s;
    if (k < s->k) {
        op_narrow_line line = op_narrow_line_at(s, &p->d, k);
        op_narrow_codes(&line, j, n, to);
        for (int i = 0; p->flip && i < COLUMNS; i++)
            to[i] ^= p->flip;
    } else {
        n = 0;
    }
    memset(to + n, 0, (size_t)(COLUMNS - n));
}

/* Two rows to a byte. */
static void join_rows(uint8_t low[restrict COLUMNS], const uint8_t high[restrict COLUMNS])
{
    for (int i = 0; i < COLUMNS; i++)
        low[i] = (uint8_t)((low[i] & 15) | high[i] << 4);
}

static void put_row_scales(const packing *p, int64_t g, int64_t j, const panel *to)
{
    const op_narrow_pack_args *a = p->a;
    char *at = to->scales + g * p->group_scales;
    walk w = walk_from(a, g);
    for (int h = 0; h < a->w.subs; h++, walk_on(&w))
        for (int64_t c = 0; c < a->width; c++)
            put_known_scale(p, at, c, h, w.block, j + c);
}

/* Group g of n columns from j on, which are panels. */
static void pack_group(const packing *p, int64_t g, int64_t j, int64_t n)
{
    const op_narrow_pack_args *a = p->a;
    uint8_t q[CPU_QGROUP][COLUMNS];
    int64_t group_bytes = cpu_qdot_group_bytes(a->w.bits, a->width);
    int rows = a->w.bits == 8 ? CPU_QGROUP : CPU_QGROUP / 2;
    for (int64_t i = 0; i < CPU_QGROUP; i++)
        take_row(p, g * CPU_QGROUP + i, j, n, q[i]);
    for (int i = 0; i < CPU_QGROUP - rows; i++)
        join_rows(q[i], q[rows + i]);
    for (int64_t c = 0; c < n; c += a->width) {
        panel to = panel_at(a, (j + c) / a->width);
        for (int r = 0; r < rows; r += 4) {
            const uint8_t *four[] = {q[r] + c, q[r + 1] + c, q[r + 2] + c, q[r + 3] + c};
            cpu_qpack_quad(four, a->width, a->width, to.data + g * group_bytes + r * a->width);
        }
        put_row_scales(p, g, j + c, &to);
    }
}

void op_narrow_pack(const void *args, uint32_t begin, uint32_t end)
{
    const op_narrow_pack_args *a = args;
    packing p = packing_of(a);
    int64_t first = begin * a->width, last = end * a->width < a->s.n ? end * a->width : a->s.n;
    /* Between scales and data there may be a gap. */
    for (uint32_t t = begin; a->w.bits != 8 && a->g_begin == 0 && t < end; t++) {
        panel to = panel_at(a, t);
        char *scales = to.scales + a->w.groups * cpu_qdot_scale_bytes(&a->w, a->width);
        memset(scales, 0, (size_t)((char *)to.data - scales));
    }
    if (!op_narrow_by_rows(&a->s)) {
        for (uint32_t t = begin; t < end; t++)
            pack_panel(&p, t);
        return;
    }
    for (int64_t g = a->g_begin; g < a->g_end; g++)
        for (int64_t j = first; j < last; j += COLUMNS)
            pack_group(&p, g, j, last - j < COLUMNS ? last - j : COLUMNS);
}
