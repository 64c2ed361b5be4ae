/* SPDX-License-Identifier: Apache-2.0
 * The memory plan as text and JSON: totals, what was tried, a picture of time against bytes. */
#include <string.h>

#include "api/internal.h"

enum { COLUMNS = 72, ROWS = 20 };

static const char *slot_name(const plan_slot *s)
{
    return s->value ? s->value->name : s->scratch_of->name;
}

static void plan_json(const prog_program *p, sbuf *out)
{
    const plan *m = &p->plan;
    sbuf_printf(out,
                "{\"arena_bytes\":%llu,\"lower_bound_bytes\":%llu,\"weight_bytes\":%llu,"
                "\"packed_bytes\":%llu,\"scratch_bytes\":%llu,\"steps\":%u,\"order\":",
                (unsigned long long)m->arena_bytes, (unsigned long long)m->lower_bound,
                (unsigned long long)p->weight_bytes, (unsigned long long)p->packed_bytes,
                (unsigned long long)p->largest_scratch, m->n_steps);
    sbuf_json(out, m->best.order);
    sbuf_text(out, ",\"packing\":");
    sbuf_json(out, m->best.packing);
    sbuf_printf(out, ",\"inplace\":%s,\"trials\":[", m->best.inplace ? "true" : "false");
    for (uint32_t i = 0; i < m->trials.count; i++) {
        const plan_trial *t = &m->trials.data[i];
        sbuf_printf(out,
                    "%s{\"order\":\"%s\",\"packing\":\"%s\",\"inplace\":%s,\"arena_bytes\":%llu,"
                    "\"live_bytes\":%llu}",
                    i ? "," : "", t->order, t->packing, t->inplace ? "true" : "false",
                    (unsigned long long)t->arena_bytes, (unsigned long long)t->live_bytes);
    }
    sbuf_text(out, "],\"slots\":[");
    for (uint32_t i = 0; i < m->n_slots; i++) {
        const plan_slot *s = &m->slots[i];
        sbuf_text(out, i ? ",{\"name\":" : "{\"name\":");
        sbuf_json(out, slot_name(s));
        sbuf_printf(out,
                    ",\"kind\":\"%s\",\"place\":\"%s\",\"offset\":%llu,\"bytes\":%llu,\"birth\":%u,"
                    "\"death\":%u}",
                    s->value ? "value" : "scratch", s->place == PLAN_ARENA ? "arena" : "output",
                    (unsigned long long)s->offset, (unsigned long long)s->bytes, s->birth,
                    s->death);
    }
    sbuf_text(out, "]}\n");
}

/* Time to the right, bytes upwards; a letter per slot, '#' where several share a cell. */
static void draw(const plan *m, sbuf *out)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    char cells[ROWS][COLUMNS + 1];
    uint64_t steps = (uint64_t)m->n_steps + 1, bytes = m->arena_bytes;
    memset(cells, '.', sizeof cells);
    for (uint32_t i = 0; i < m->n_slots; i++) {
        const plan_slot *s = &m->slots[i];
        if (s->place != PLAN_ARENA || !s->bytes)
            continue;
        char letter = s->value ? letters[i % (sizeof letters - 1)] : '*';
        uint64_t left = s->birth * COLUMNS / steps, right = s->death * COLUMNS / steps;
        uint64_t low = s->offset * ROWS / bytes, high = (s->offset + s->bytes - 1) * ROWS / bytes;
        for (uint64_t y = low; y <= high && y < ROWS; y++)
            for (uint64_t x = left; x <= right && x < COLUMNS; x++)
                cells[y][x] = cells[y][x] == '.' || cells[y][x] == letter ? letter : '#';
    }
    sbuf_text(out, "\nbytes ↑, steps →   (a letter per value, * scratch, # several)\n");
    for (int y = ROWS; y-- > 0;) {
        cells[y][COLUMNS] = '\0';
        sbuf_printf(out, "  %10llu  %s\n", (unsigned long long)(bytes * (uint64_t)y / ROWS),
                    cells[y]);
    }
}

static double percent(uint64_t part, uint64_t whole)
{
    return whole ? 100.0 * (double)part / (double)whole : 100.0;
}

void api_view_plan(const tacit_program *program, tacit_format format, sbuf *out)
{
    const prog_program *p = program->prog;
    const plan *m = &p->plan;
    if (format == TACIT_FORMAT_JSON) {
        plan_json(p, out);
        return;
    }
    sbuf_printf(out, "weights       %14llu bytes, outside the arena\n",
                (unsigned long long)p->weight_bytes);
    sbuf_printf(out, "packed        %14llu bytes, shared by all sessions\n",
                (unsigned long long)p->packed_bytes);
    sbuf_printf(out, "arena         %14llu bytes per session (%.1f %% of the largest live set)\n",
                (unsigned long long)m->arena_bytes, percent(m->arena_bytes, m->lower_bound));
    sbuf_printf(out, "  live set    %14llu bytes at most\n", (unsigned long long)m->lower_bound);
    sbuf_printf(out, "  scratch     %14llu bytes at most\n",
                (unsigned long long)p->largest_scratch);
    sbuf_printf(out, "best of %u plans: order %s, packing %s, in-place %s\n", m->trials.count,
                m->best.order, m->best.packing, m->best.inplace ? "on" : "off");
    if (m->arena_bytes)
        draw(m, out);
    sbuf_printf(out, "\n  %12s %12s  %-13s %s\n", "offset", "bytes", "steps", "value");
    for (uint32_t i = 0; i < m->n_slots; i++) {
        const plan_slot *s = &m->slots[i];
        if (s->place == PLAN_OUTPUT)
            sbuf_printf(out, "  %12s", "output");
        else
            sbuf_printf(out, "  %12llu", (unsigned long long)s->offset);
        sbuf_printf(out, " %12llu  %5u – %-5u %s%s\n", (unsigned long long)s->bytes, s->birth,
                    s->death, slot_name(s), s->value ? "" : " (scratch)");
    }
}
