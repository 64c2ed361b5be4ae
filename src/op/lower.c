/* SPDX-License-Identifier: Apache-2.0 */
#include "op/lower.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "op/tuning.h"

void *op_lower_thunk(op_lower *c, const char *kernel, cpu_kernel fn, size_t args_size,
                     uint32_t tiles)
{
    op_thunk *t = ARENA_NEW(c->memory, op_thunk);
    void *args = arena_alloc_zero(c->memory, args_size);
    if (!t || !args || !vec_push(c->memory, &c->thunks, t)) {
        (void)error_memory(c->err, "thunk arguments");
        return NULL;
    }
    t->fn = fn;
    t->kernel = kernel;
    t->args = args;
    t->args_size = (uint32_t)args_size;
    t->tiles = tiles;
    t->node = c->node;
    return args;
}

static tacit_status bind(op_lower *c, op_bind b)
{
    op_thunk *t = c->thunks.data[c->thunks.count - 1];
    if (!vec_push(c->memory, &t->binds, b))
        return error_memory(c->err, "thunk arguments");
    return TACIT_OK;
}

tacit_status op_lower_in_tiled(op_lower *c, size_t field, uint32_t input, uint64_t tile_stride,
                               uint64_t tile_bytes)
{
    return bind(c, (op_bind){.field = (uint32_t)field,
                             .kind = OP_BIND_INPUT,
                             .index = input,
                             .tile_stride = tile_stride,
                             .tile_bytes = tile_bytes});
}

tacit_status op_lower_in(op_lower *c, size_t field, uint32_t input)
{
    return op_lower_in_tiled(c, field, input, 0, 0);
}

tacit_status op_lower_out_tiled(op_lower *c, size_t field, uint32_t output, uint64_t tile_stride,
                                uint64_t tile_bytes)
{
    return bind(c, (op_bind){.field = (uint32_t)field,
                             .kind = OP_BIND_OUTPUT,
                             .index = output,
                             .write = true,
                             .tile_stride = tile_stride,
                             .tile_bytes = tile_bytes});
}

tacit_status op_lower_out(op_lower *c, size_t field, uint32_t output)
{
    return op_lower_out_tiled(c, field, output, 0, 0);
}

tacit_status op_lower_fault(op_lower *c, size_t field)
{
    return bind(c, (op_bind){.field = (uint32_t)field, .kind = OP_BIND_FAULT});
}

size_t op_lower_reserve(op_lower *c, size_t bytes)
{
    size_t offset = c->scratch;
    c->scratch = align_up(offset + bytes, MEM_ALIGN);
    return offset;
}

tacit_status op_lower_scratch(op_lower *c, size_t field, size_t offset, bool write)
{
    return bind(c, (op_bind){.field = (uint32_t)field,
                             .kind = OP_BIND_SCRATCH,
                             .write = write,
                             .byte_offset = (int64_t)offset});
}

void op_lower_behind(op_lower *c, int64_t bytes)
{
    op_thunk *t = c->thunks.data[c->thunks.count - 1];
    t->binds.data[t->binds.count - 1].byte_offset += bytes;
}

void op_lower_together(op_lower *c, uint32_t tiles)
{
    c->thunks.data[c->thunks.count - 1]->together = tiles;
}

bool op_lower_exceeds_cache(const op_lower *c, uint64_t bytes)
{
    uint64_t cache = c->cpu.cache_bytes ? c->cpu.cache_bytes : CPU_CACHE_DEFAULT;
    return bytes > cache / 2; /* other data and other processors have the rest */
}

bool op_lower_exceeds_core(const op_lower *c, uint64_t bytes)
{
    return bytes > (c->cpu.core_bytes ? c->cpu.core_bytes : CPU_CORE_DEFAULT);
}

bool op_lower_streams(const op_lower *c)
{
    /* Where others of the same host use that cache, too, wide pipes are the first to wait. */
    uint64_t share = c->cpu.wide_pipes ? 2 : 1;
    return op_lower_exceeds_cache(c, share * c->constant_bytes);
}

void op_lower_stream(op_lower *c, const void *data, size_t tile_bytes)
{
    op_thunk *t = c->thunks.data[c->thunks.count - 1];
    if (!op_lower_streams(c))
        return;
    t->stream = data;
    t->stream_tile = tile_bytes;
}

void op_lower_cost(op_lower *c, double flops, uint64_t bytes)
{
    op_thunk *t = c->thunks.data[c->thunks.count - 1];
    t->flops = flops;
    t->bytes = bytes;
}

static void *pack(op_lower *c, slab *from, size_t bytes, bool later)
{
    void *data = slab_alloc(from, bytes);
    if (data && vec_push(c->memory, &c->packed, (op_packed){data, bytes, later}))
        return data;
    (void)error_memory(c->err, "packed weights");
    return NULL;
}

void *op_lower_pack(op_lower *c, size_t bytes)
{
    return pack(c, c->constants, bytes, false);
}

void *op_lower_pack_later(op_lower *c, size_t bytes)
{
    return pack(c, c->weights ? c->weights : c->constants, bytes, true);
}

bool op_lower_is_weight(const op_lower *c, uint32_t input)
{
    const ir_tensor *t = c->in[input].constant;
    return t && (t->data || ir_tensor_is_late(t));
}

enum { DROP_NEAR = 64 << 10, DROP_LEAST = 1 << 20 }; /* bytes between what goes together; of it */

typedef struct dropping {
    const op_lower *c;
    op_room *room;
} dropping;

void op_room_close(const op_lower *c, op_room *room)
{
    if (room->read)
        c->drop(c->owner, room->read, (size_t)(room->end - room->read));
    room->read = NULL;
}

static void drop_source(void *context, const void *data, size_t bytes)
{
    const dropping *d = context;
    op_room *room = d->room;
    const char *begin = data;
    if (room->read && (begin < room->read || begin > room->end + DROP_NEAR))
        op_room_close(d->c, room);
    if (!room->read)
        room->read = room->end = begin;
    room->end = begin + bytes > room->end ? begin + bytes : room->end;
    if (room->end - room->read >= DROP_LEAST)
        op_room_close(d->c, room);
}

/* [first, first + bytes) of a weight, or what it is made from, is not needed soon. */
static void drop(const op_lower *c, const ir_tensor *w, size_t first, size_t bytes, op_room *room)
{
    dropping d = {c, room};
    if (!c->drop)
        return;
    if (ir_tensor_is_late(w))
        ir_recipe_sources(w, first, bytes, drop_source, &d);
    else
        drop_source(&d, (const char *)w->data + first, bytes);
}

void op_job_run(const op_lower *c, const op_job *job, op_room *room)
{
    const ir_tensor *w = job->weight;
    bool late = ir_tensor_is_late(w);
    if (late)
        ir_recipe_fill(w, job->first, job->bytes, room->memory);
    /* The kernel reads only the part that lies in the room. */
    uintptr_t begin = late ? (uintptr_t)room->memory - job->first : (uintptr_t)w->data;
    void *address = (void *)(begin + job->offset);
    memcpy((char *)job->args + job->field, &address, sizeof address);
    job->fn(job->args, job->begin, job->end);
    drop(c, w, job->first, job->bytes, room);
}

op_job op_lower_job(const op_lower *c, uint32_t input, cpu_kernel fn, void *args, size_t args_size,
                    size_t field)
{
    const ir_tensor *weight = c->in[input].constant;
    return (op_job){.fn = fn,
                    .args = args,
                    .args_size = args_size,
                    .weight = weight,
                    .field = field,
                    .bytes = weight->bytes};
}

tacit_status op_lower_later(op_lower *c, const op_job *job)
{
    op_job copy = *job;
    copy.args = arena_copy(c->memory, job->args, job->args_size);
    if (!copy.args)
        return error_memory(c->err, "packed weights");
    if (c->jobs)
        return vec_push(c->memory, c->jobs, copy) ? TACIT_OK
                                                  : error_memory(c->err, "packed weights");
    bool late = ir_tensor_is_late(job->weight);
    op_room room = {.memory = late ? arena_alloc(c->memory, job->bytes) : NULL};
    if (late && !room.memory)
        return error_memory(c->err, "packed weights");
    op_job_run(c, &copy, &room);
    op_room_close(c, &room);
    return TACIT_OK;
}

tacit_status op_lower_panels_later(op_lower *c, const op_job *job, int64_t width, int64_t rows,
                                   size_t row, int64_t each)
{
    op_job piece = *job;
    for (int64_t p = 0; p < job->end; p += each) {
        int64_t end = p + each < job->end ? p + each : job->end;
        int64_t first = p * width < rows ? p * width : rows;
        int64_t last = end * width < rows ? end * width : rows;
        piece.begin = (uint32_t)p;
        piece.end = (uint32_t)end;
        piece.first = job->offset + (size_t)first * row;
        piece.bytes = (size_t)(last - first) * row;
        TRY(op_lower_later(c, &piece));
    }
    return TACIT_OK;
}

int op_lower_choice(op_lower *c, uint32_t ways, const char *format, ...)
{
    char key[OP_TUNING_KEY];
    op_tuning *t = c->tuning;
    if (!t)
        return 0;
    va_list args;
    va_start(args, format);
    vsnprintf(key, sizeof key, format, args);
    va_end(args);
    if (t->record) { /* out of memory only loses the point */
        op_tuning_point point = {arena_strdup(&t->memory, c->node->name),
                                 arena_strdup(&t->memory, key), ways};
        if (point.node && point.key)
            (void)vec_push(&t->memory, &t->points, point);
    }
    int way = t->force >= 0 ? t->force : op_tuning_find(t, key);
    return way >= 0 && (uint32_t)way <= ways ? way : 0;
}

void op_lower_packed_away(op_lower *c, uint32_t input)
{
    if (c->in[input].constant)
        op_lower_looked_at(c, input);
}

void op_lower_looked_at(const op_lower *c, uint32_t input)
{
    const ir_tensor *t = c->in[input].constant;
    op_room room = {0};
    drop(c, t, 0, t->bytes, &room);
    op_room_close(c, &room);
}

void op_lower_note(op_lower *c, const char *format, ...)
{
    char text[480];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    ir_node_note(c->graph, c->node, "lower", "%s", text);
}
