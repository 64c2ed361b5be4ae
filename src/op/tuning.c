/* SPDX-License-Identifier: Apache-2.0 */
#include "op/tuning.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The processor's name as the system tells it, and the ISA kernels are chosen for. */
static void machine_name(char *to, size_t room, cpu_isa isa)
{
    char line[256], model[128] = "unknown";
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon)
            continue;
        snprintf(model, sizeof model, "%.120s", colon + 2);
        model[strcspn(model, "\t\n")] = '\0';
        break;
    }
    if (f)
        fclose(f);
    snprintf(to, room, "%s %s", model, cpu_isa_name(isa));
}

void op_tuning_init(op_tuning *t, const tacit_allocator *allocator)
{
    *t = (op_tuning){.force = -1};
    arena_init(&t->memory, allocator);
}

/* Asked for once there are lines: the system takes as long to tell it as a small model to be
 * compiled. */
static bool know_machine(op_tuning *t)
{
    char name[192];
    if (!t->machine) {
        machine_name(name, sizeof name, cpu_detect().isa);
        t->machine = arena_strdup(&t->memory, name);
    }
    return t->machine != NULL;
}

void op_tuning_free(op_tuning *t)
{
    arena_free(&t->memory);
}

static bool add_line(op_tuning *t, const char *machine, const char *key, int way)
{
    op_tuning_line line = {arena_strdup(&t->memory, machine), arena_strdup(&t->memory, key), way};
    return line.machine && line.key && know_machine(t) && vec_push(&t->memory, &t->lines, line);
}

bool op_tuning_read(op_tuning *t, const char *text, size_t size)
{
    for (const char *end = text + size; text < end;) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        size_t length = (size_t)((stop ? stop : end) - text);
        char line[512];
        if (length < sizeof line) {
            memcpy(line, text, length);
            line[length] = '\0';
            char *key = strchr(line, '\t'), *way = key ? strchr(key + 1, '\t') : NULL;
            if (way && way[1] >= '0' && way[1] <= '9') {
                *key = *way = '\0';
                if (!add_line(t, line, key + 1, atoi(way + 1)))
                    return false;
            }
        }
        text += length + 1;
    }
    return true;
}

void op_tuning_write(const op_tuning *t, sbuf *out)
{
    for (uint32_t i = 0; i < t->lines.count; i++)
        sbuf_printf(out, "%s\t%s\t%d\n", t->lines.data[i].machine, t->lines.data[i].key,
                    t->lines.data[i].way);
}

static op_tuning_line *find(const op_tuning *t, const char *key)
{
    for (uint32_t i = 0; i < t->lines.count; i++)
        if (strcmp(t->lines.data[i].key, key) == 0 &&
            strcmp(t->lines.data[i].machine, t->machine) == 0)
            return &t->lines.data[i];
    return NULL;
}

int op_tuning_find(const op_tuning *t, const char *key)
{
    const op_tuning_line *line = find(t, key);
    return line ? line->way : 0;
}

bool op_tuning_set(op_tuning *t, const char *key, int way)
{
    op_tuning_line *line = find(t, key);
    if (!line)
        return know_machine(t) && add_line(t, t->machine, key, way);
    line->way = way;
    return true;
}
