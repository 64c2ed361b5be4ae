/* SPDX-License-Identifier: Apache-2.0
 * Tasks and their dependences. Every chunk of tiles is a task; who must wait for whom is read off
 * the bytes it touches in the arena and in the output buffers, in program order: reads wait for the
 * last writer, writes also for the readers since (memory is reused, so that order matters too). */
#include "prog/tasks.h"

#include "tacit/task.h"
#include "task/ahead.h"
#include "task/alone.h"

enum {
    CHUNK_NS = 2500,   /* a task should be worth its scheduling */
    SHARE_NS = 20000,  /* less of a thunk than this is not cut up for a thread */
    STEP_NS = 2500,    /* what it costs that all threads wait for a thunk */
    SHARE_PARTS = 4,   /* the next chunk is this part of what its thread has left */
    CHUNKS_MOST = 24,  /* of a thread */
    LEARNING_RUNS = 2, /* the first is cold */
    NO_TASK = UINT32_MAX,
};

typedef struct task_def {
    uint32_t thunk; /* NO_TASK: a join */
    uint32_t begin, end;
    uint32_t first_dep, n_deps;
    uint32_t cost_ns, near;
} task_def;

struct prog_tasks {
    VEC(task_def) tasks;
    VEC(uint32_t) deps;
    uint32_t threads;
    bool serial; /* too small to be worth it */
    tacit_task_runtime *runtime, *own;
};

struct prog_task_run {
    tacit_task_graph *graph;
};

typedef struct reader {
    const struct reader *next;
    uint32_t task;
} reader;

/* [begin, end) of one space was last written by `writer` and read since by `readers`. */
typedef struct segment {
    uint64_t begin, end;
    uint32_t writer;
    const reader *readers;
} segment;

typedef VEC(segment) segments;

typedef struct builder {
    prog_program *p;
    struct prog_tasks *t;
    arena scratch;
    segments *spaces; /* 0: the arena; 1 + k: output k */
    segments spare;
    uint32_t *stamp; /* by task: last list it was put into */
    uint32_t stamps, stamp_room;
    VEC(uint32_t) found; /* deps being collected */
    tacit_error *err;
} builder;

typedef struct region {
    uint32_t space;
    bool shared; /* any tile may touch any of it */
    bool write;
    uint64_t begin, end; /* whole operand */
    uint64_t tile_stride, tile_bytes;
} region;

static tacit_status no_memory(const builder *b)
{
    return error_memory(b->err, "the task graph");
}

/* The bytes a value can be found in, smallest range that covers its strides. */
static void value_range(const prog_program *p, const ir_value *v, int64_t start, region *out)
{
    int64_t bits = tacit_dtype_bits(v->type.dtype), low = 0, high = 0;
    for (int32_t d = 0; d < v->type.shape.rank; d++) {
        int64_t reach = (v->type.shape.dims[d] - 1) * p->views[v->id].strides[d];
        low += reach < 0 ? reach : 0;
        high += reach > 0 ? reach : 0;
    }
    out->begin = (uint64_t)(start + low * bits / 8);
    out->end = (uint64_t)(start + ((high + 1) * bits + 7) / 8);
}

/* Inputs that an output may overwrite share its space. */
static bool updated_space(const prog_program *p, const prog_place *at, uint32_t *space)
{
    if (at->kind != PROG_AT_INPUT || !p->updates)
        return false;
    for (uint32_t i = 0; i < p->graph->outputs.count; i++)
        if (p->updates[i] == p->graph->inputs.data[at->port]) {
            *space = 1 + i;
            return true;
        }
    return false;
}

/* false: nothing that anyone could wait for (inputs, constants, absent operands). */
static bool bind_region(const prog_program *p, const prog_thunk *t, const op_bind *b, region *out)
{
    *out = (region){.write = b->write, .shared = true};
    if (b->kind == OP_BIND_FAULT)
        return false;
    if (b->kind == OP_BIND_SCRATCH) {
        const plan_slot *s = &p->plan.slots[p->plan.scratch_at[t->step]];
        out->begin = s->offset;
        out->end = s->offset + s->bytes;
        /* Who writes scratch by tiles is not known: all of it counts as written. */
        return true;
    }
    const ir_node *node = t->made->node;
    const ir_value *v = b->kind == OP_BIND_INPUT ? node->inputs[b->index] : node->outputs[b->index];
    if (!v)
        return false;
    prog_place at = prog_locate(p, v);
    bool updated = updated_space(p, &at, &out->space);
    if (!updated && at.kind != PROG_AT_ARENA && at.kind != PROG_AT_OUTPUT)
        return false;
    if (!updated)
        out->space = at.kind == PROG_AT_OUTPUT ? 1 + at.port : 0;
    value_range(p, v, at.offset, out);
    if (b->tile_bytes) {
        out->shared = false;
        out->begin = (uint64_t)(at.offset + b->byte_offset);
        out->tile_stride = b->tile_stride;
        out->tile_bytes = b->tile_bytes;
    }
    return out->begin < out->end;
}

/* What tiles [first, last) touch; the last tile may be short, so it ends where the operand does. */
static void tile_range(const region *r, uint32_t first, uint32_t last, uint64_t *begin,
                       uint64_t *end)
{
    *begin = r->begin;
    *end = r->end;
    if (r->shared)
        return;
    *begin = r->begin + first * r->tile_stride;
    uint64_t stop = r->begin + (last - 1) * r->tile_stride + r->tile_bytes;
    *end = stop < r->end ? stop : r->end;
    *begin = *begin < *end ? *begin : *end;
}

static tacit_status found_add(builder *b, uint32_t task)
{
    if (task == NO_TASK || b->stamp[task] == b->stamps)
        return TACIT_OK;
    b->stamp[task] = b->stamps;
    return vec_push(&b->scratch, &b->found, task) ? TACIT_OK : no_memory(b);
}

/* Adds to `found` whoever a task touching [begin, end) has to wait for. */
static tacit_status look_up(builder *b, uint32_t space, uint64_t begin, uint64_t end, bool write)
{
    const segments *all = &b->spaces[space];
    for (uint32_t i = 0; i < all->count; i++) {
        const segment *s = &all->data[i];
        if (s->begin >= end || s->end <= begin)
            continue;
        TRY(found_add(b, s->writer));
        for (const reader *r = s->readers; write && r; r = r->next)
            TRY(found_add(b, r->task));
    }
    return TACIT_OK;
}

static bool keep(builder *b, segment s, uint64_t begin, uint64_t end)
{
    if (begin >= end)
        return true;
    s.begin = begin;
    s.end = end;
    return vec_push(&b->scratch, &b->spare, s);
}

/* Records the access: a write replaces what was there, a read joins the readers. */
static tacit_status record(builder *b, uint32_t space, uint64_t begin, uint64_t end, bool write,
                           uint32_t task)
{
    segments *all = &b->spaces[space];
    bool ok = true;
    b->spare.count = 0;
    for (uint32_t i = 0; ok && i < all->count; i++) {
        segment s = all->data[i];
        uint64_t low = s.begin > begin ? s.begin : begin, high = s.end < end ? s.end : end;
        if (low >= high) {
            ok = keep(b, s, s.begin, s.end);
            continue;
        }
        ok = keep(b, s, s.begin, low);
        if (ok && !write) {
            reader *r = ARENA_NEW(&b->scratch, reader);
            segment middle = s;
            if (r)
                *r = (reader){s.readers, task};
            middle.readers = r;
            ok = r && keep(b, middle, low, high);
        }
        ok = ok && keep(b, s, high, s.end);
    }
    if (ok && write)
        ok = keep(b, (segment){.writer = task}, begin, end);
    if (!ok)
        return no_memory(b);
    segments old = *all;
    *all = b->spare;
    b->spare = old;
    return TACIT_OK;
}

/* A task that waits for everything in `found`. */
static tacit_status add_task(builder *b, task_def def, uint32_t *index)
{
    struct prog_tasks *t = b->t;
    def.first_dep = t->deps.count;
    def.n_deps = b->found.count;
    for (uint32_t i = 0; i < b->found.count; i++)
        if (!vec_push(&b->p->memory, &t->deps, b->found.data[i]))
            return no_memory(b);
    *index = t->tasks.count;
    if (!vec_push(&b->p->memory, &t->tasks, def))
        return no_memory(b);
    if (t->tasks.count > b->stamp_room) {
        uint32_t room = b->stamp_room ? 2 * b->stamp_room : 1024;
        uint32_t *stamp = ARENA_ARRAY(&b->scratch, room, uint32_t);
        if (!stamp)
            return no_memory(b);
        b->stamp = stamp; /* marks of old lists are never asked for again */
        b->stamp_room = room;
    }
    return TACIT_OK;
}

static void start_list(builder *b)
{
    b->found.count = 0;
    b->stamps++;
}

static double thunk_ns(const prog_thunk *t)
{
    return t->made->flops / 60.0 + (double)t->made->bytes / 20.0 + 50.0;
}

typedef struct cut {
    region *regions;
    uint32_t n_regions, chunks, first_task;
    uint32_t *ends;  /* by chunk: behind its last tile */
    uint32_t *homes; /* by chunk: the thread that should have it */
    bool any_shared;
} cut;

static uint32_t chunk_begin(const cut *c, uint32_t k)
{
    return k ? c->ends[k - 1] : 0;
}

/* Each thread has an equal run of tiles, which it works off in ever smaller chunks: there is little
 * to wait for at the end, and few tasks in all. The largest come last in the list, because what was
 * made ready last is run first. A short run is one chunk. */
static tacit_status cut_tiles(builder *b, const prog_thunk *t, cut *c)
{
    uint32_t threads = b->t->threads, most = threads * CHUNKS_MOST;
    double wanted = thunk_ns(t) / CHUNK_NS;
    uint32_t parts = wanted < 1 ? 1 : wanted > most ? most : (uint32_t)wanted;
    parts = parts < t->tiles ? parts : t->tiles;
    uint32_t least = (t->tiles + parts - 1) / parts, shares = parts < threads ? parts : threads;
    least = least > t->made->together ? least : t->made->together;
    if (0.6 * thunk_ns(t) < (double)shares * SHARE_NS) /* estimates are rather high */
        least = least > t->tiles / shares ? least : t->tiles / shares;
    c->ends = ARENA_ARRAY(&b->scratch, parts + shares, uint32_t);
    c->homes = ARENA_ARRAY(&b->scratch, parts + shares, uint32_t);
    if (!c->ends || !c->homes)
        return no_memory(b);
    for (uint32_t s = 0; s < shares; s++) {
        uint32_t begin = (uint32_t)((uint64_t)t->tiles * s / shares), first = c->chunks;
        uint32_t end = (uint32_t)((uint64_t)t->tiles * (s + 1) / shares), left = end - begin;
        while (left) { /* from the end on */
            uint32_t size = left / SHARE_PARTS > least ? left / SHARE_PARTS : least;
            size = left < 2 * least ? left : size;
            c->homes[c->chunks] = s;
            c->ends[c->chunks++] = begin + left;
            left -= size;
        }
        for (uint32_t i = first, k = c->chunks; i + 1 < k; i++) { /* … and turn the list round */
            uint32_t swap = c->ends[i];
            c->ends[i] = c->ends[--k];
            c->ends[k] = swap;
        }
    }
    return TACIT_OK;
}

static tacit_status list_regions(builder *b, const prog_thunk *t, cut *c)
{
    c->regions = ARENA_ARRAY(&b->scratch, t->made->binds.count + 1u, region);
    if (!c->regions)
        return no_memory(b);
    for (uint32_t i = 0; i < t->made->binds.count; i++)
        if (bind_region(b->p, t, &t->made->binds.data[i], &c->regions[c->n_regions]))
            c->any_shared |= c->regions[c->n_regions++].shared;
    return TACIT_OK;
}

static tacit_status find_shared(builder *b, const cut *c)
{
    for (uint32_t i = 0; i < c->n_regions; i++)
        if (c->regions[i].shared)
            TRY(look_up(b, c->regions[i].space, c->regions[i].begin, c->regions[i].end,
                        c->regions[i].write));
    return TACIT_OK;
}

/* Many chunks that wait for the same many tasks wait for one join instead. */
static tacit_status join_entry(builder *b, const cut *c, uint32_t *entry)
{
    *entry = NO_TASK;
    start_list(b);
    TRY(find_shared(b, c));
    if (c->chunks > 2 && b->found.count > 2)
        TRY(add_task(b, (task_def){.thunk = NO_TASK}, entry));
    return TACIT_OK;
}

static tacit_status add_chunks(builder *b, uint32_t thunk, cut *c)
{
    const prog_thunk *t = &b->p->thunks[thunk];
    uint32_t entry;
    TRY(join_entry(b, c, &entry));
    for (uint32_t k = 0; k < c->chunks; k++) {
        uint32_t first = chunk_begin(c, k), last = c->ends[k], index;
        start_list(b);
        if (entry != NO_TASK)
            TRY(found_add(b, entry));
        else
            TRY(find_shared(b, c));
        for (uint32_t i = 0; i < c->n_regions; i++) {
            const region *r = &c->regions[i];
            uint64_t begin, end;
            if (r->shared)
                continue;
            tile_range(r, first, last, &begin, &end);
            TRY(look_up(b, r->space, begin, end, r->write));
        }
        task_def def = {.thunk = thunk, .begin = first, .end = last};
        def.cost_ns = (uint32_t)(thunk_ns(t) * (last - first) / t->tiles);
        /* Equal parts of consecutive thunks mostly work on the same part of the data. */
        if (c->chunks > 1)
            def.near = 1 + c->homes[k];
        TRY(add_task(b, def, &index));
        if (k == 0)
            c->first_task = index;
    }
    return TACIT_OK;
}

/* After all chunks have looked: what they touch becomes visible to later thunks. */
static tacit_status record_chunks(builder *b, const cut *c)
{
    uint32_t join = c->first_task;
    if (c->chunks > 1 && c->any_shared) {
        start_list(b);
        for (uint32_t k = 0; k < c->chunks; k++)
            TRY(found_add(b, c->first_task + k));
        TRY(add_task(b, (task_def){.thunk = NO_TASK}, &join));
    }
    for (int write = 0; write < 2; write++)
        for (uint32_t i = 0; i < c->n_regions; i++) {
            const region *r = &c->regions[i];
            if (r->write != (write != 0))
                continue;
            if (r->shared) {
                TRY(record(b, r->space, r->begin, r->end, r->write, join));
                continue;
            }
            for (uint32_t k = 0; k < c->chunks; k++) {
                uint64_t begin, end;
                tile_range(r, chunk_begin(c, k), c->ends[k], &begin, &end);
                TRY(record(b, r->space, begin, end, r->write, c->first_task + k));
            }
        }
    return TACIT_OK;
}

/* Thunks mostly wait for one another, and estimates are rather high. */
static bool worth_threads(const builder *b, double total)
{
    double alone = 0.6 * total;
    return b->t->threads > 1 && alone > alone / b->t->threads + (double)b->p->n_thunks * STEP_NS;
}

static tacit_status build_all(builder *b)
{
    prog_program *p = b->p;
    double total = 0;
    for (uint32_t i = 0; i < p->n_thunks; i++)
        total += thunk_ns(&p->thunks[i]);
    b->t->serial = !worth_threads(b, total);
    if (b->t->serial)
        return TACIT_OK;
    b->spaces = (void *)ARENA_ARRAY(&b->scratch, p->graph->outputs.count + 1u, segments);
    if (!b->spaces)
        return no_memory(b);
    for (uint32_t i = 0; p->updates && i < p->graph->outputs.count; i++) {
        size_t bytes = 0; /* an input lies there first: its readers shall be found */
        if (!p->updates[i] || !ir_type_bytes(&p->updates[i]->type, &bytes))
            continue;
        if (!vec_push(&b->scratch, &b->spaces[1 + i], ((segment){.end = bytes, .writer = NO_TASK})))
            return no_memory(b);
    }
    for (uint32_t i = 0; i < p->n_thunks; i++) {
        cut c = {0};
        TRY(cut_tiles(b, &p->thunks[i], &c));
        TRY(list_regions(b, &p->thunks[i], &c));
        TRY(add_chunks(b, i, &c));
        TRY(record_chunks(b, &c));
    }
    return TACIT_OK;
}

/* Graphs are all these workers run: the rings for submitted tasks can be tiny. */
static tacit_status make_workers(const prog_program *p, struct prog_tasks *t, tacit_error *err)
{
    t->runtime = p->options.workers;
    if (t->runtime)
        return TACIT_OK;
    tacit_task_config config = {.threads = t->threads,
                                .window = 16,
                                .heap_bytes = 4096,
                                .dependences = 64,
                                .records = 64,
                                .allocator = p->allocator};
    TRY(tacit_task_create(&config, &t->own, err));
    t->runtime = t->own;
    return TACIT_OK;
}

tacit_status prog_tasks_build(prog_program *p, tacit_error *err)
{
    struct prog_tasks *t = ARENA_NEW(&p->memory, struct prog_tasks);
    if (!t)
        return error_memory(err, "the task graph");
    p->tasks = t;
    t->threads = p->options.workers   ? tacit_task_threads(p->options.workers)
                 : p->options.threads ? p->options.threads
                                      : cpu_count();
    builder b = {.p = p, .t = t, .err = err};
    arena_init(&b.scratch, p->allocator);
    tacit_status status = build_all(&b);
    arena_free(&b.scratch);
    return status == TACIT_OK && !t->serial ? make_workers(p, t, err) : status;
}

void prog_tasks_free(prog_program *p)
{
    tacit_task_destroy(p->tasks->own);
}

static tacit_status copy_graph(prog_session *s, struct prog_task_run *run, tacit_error *err)
{
    const prog_program *p = s->program;
    for (uint32_t i = 0; i < p->tasks->tasks.count; i++) {
        const task_def *d = &p->tasks->tasks.data[i];
        tacit_task_node node = {.begin = d->begin,
                                .end = d->end,
                                .deps = p->tasks->deps.data + d->first_dep,
                                .dep_count = d->n_deps,
                                .cost_ns = d->cost_ns,
                                .near = d->near};
        if (d->thunk != NO_TASK) {
            node.tile = s->calls[d->thunk].fn;
            node.args = s->calls[d->thunk].args;
            node.name = p->thunks[d->thunk].made->kernel;
        }
        uint32_t index;
        TRY(tacit_task_graph_add(run->graph, &node, &index, err));
        const op_thunk *made = d->thunk != NO_TASK ? p->thunks[d->thunk].made : NULL;
        if (made && made->stream)
            task_graph_ahead(run->graph, index,
                             (const char *)made->stream + d->begin * made->stream_tile,
                             (d->end - d->begin) * made->stream_tile);
    }
    return tacit_task_graph_seal(run->graph, err);
}

/* Without workers whole thunks are faster than their pieces. */
static void run_whole(void *context)
{
    const prog_session *s = context;
    for (uint32_t i = 0; i < s->n_whole && s->state.fault.code == CPU_FAULT_NONE; i++)
        s->whole[i].fn(s->whole[i].args, 0, s->whole[i].tiles);
}

tacit_status prog_tasks_open(prog_session *s, tacit_error *err)
{
    const struct prog_tasks *t = s->program->tasks;
    if (t->serial)
        return TACIT_OK;
    struct prog_task_run *run = ARENA_NEW(&s->memory, struct prog_task_run);
    if (!run)
        return error_memory(err, "a session");
    s->task_run = run;
    TRY(tacit_task_graph_create(t->runtime, &run->graph, err));
    TRY(copy_graph(s, run, err));
    task_graph_alone(run->graph, run_whole, s);
    return tacit_task_graph_learn(run->graph, LEARNING_RUNS, err);
}

void prog_tasks_close(prog_session *s)
{
    tacit_task_graph_destroy(s->task_run->graph);
    s->task_run = NULL;
}

uint32_t prog_tasks_count(const prog_program *p)
{
    return p->tasks ? p->tasks->tasks.count : 0;
}

bool prog_tasks_path(const prog_program *p, double *work, double *path)
{
    *work = *path = 0;
    const struct prog_tasks *t = p->tasks;
    uint32_t count = prog_tasks_count(p);
    arena scratch;
    arena_init(&scratch, p->allocator);
    double *ends = ARENA_ARRAY(&scratch, count + 1u, double);
    for (uint32_t i = 0; ends && i < count; i++) {
        const task_def *d = &t->tasks.data[i];
        double begin = 0;
        for (uint32_t k = 0; k < d->n_deps; k++) {
            double end = ends[t->deps.data[d->first_dep + k]];
            begin = end > begin ? end : begin;
        }
        ends[i] = begin + d->cost_ns;
        *path = ends[i] > *path ? ends[i] : *path;
        *work += d->cost_ns;
    }
    arena_free(&scratch);
    return ends != NULL;
}

tacit_status prog_tasks_run(prog_session *s, tacit_error *err)
{
    return tacit_task_graph_run(s->program->tasks->runtime, s->task_run->graph, err);
}

tacit_task_runtime *prog_tasks_runtime(const prog_session *s)
{
    return s->task_run ? s->program->tasks->runtime : NULL;
}
