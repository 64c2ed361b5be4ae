// SPDX-License-Identifier: Apache-2.0
// The CUDA device behind the table of functions. The runtime is linked statically and finds the
// driver by itself when it is first used, so a program with this code in it starts anywhere.
#include "cuda/aes_table.h"
#include "cuda/context.cuh"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct block {
    void *memory;
    size_t bytes;
    block *next;
};
struct context : cuda_context {
    block *blocks;
    cudaStream_t aside;
    cudaEvent_t marks[CUDA_MARKS], made;
    cudaStream_t trunk, branches[CUDA_BRANCHES - 1]; /* branch 0 is the trunk */
    cudaEvent_t forked, ended[CUDA_BRANCHES - 1];
    bool used[CUDA_BRANCHES - 1];
};

static tacit_status failed(cudaError_t e, const char *what, tacit_error *err)
{
    tacit_status status = e == cudaErrorMemoryAllocation ? TACIT_ERR_MEMORY : TACIT_ERR_IO;
    error_record(err, status, "GPU: %s: %s", what, cudaGetErrorString(e));
    return status;
}
static tacit_status checked(cudaError_t e, const char *what, tacit_error *err)
{
    return e == cudaSuccess ? TACIT_OK : failed(e, what, err);
}
static context *enter(void *self)
{
    context *c = (context *)self;
    cudaSetDevice(c->ordinal);
    return c;
}
// What a launch before may have said.
static tacit_status launched(context *c, tacit_error *err)
{
    return c->failed == cudaSuccess ? TACIT_OK : failed(c->failed, "a kernel did not start", err);
}

static tacit_status do_alloc(void *self, size_t bytes, void **out, tacit_error *err)
{
    context *c = enter(self);
    size_t size = (bytes + 63) / 64 * 64 + 64;
    *out = NULL;
    if (c->held + size > c->budget) {
        error_record(err, TACIT_ERR_MEMORY,
                     "the device's budget of %llu bytes is used up: %llu held, %zu wanted",
                     (unsigned long long)c->budget, (unsigned long long)c->held, size);
        return TACIT_ERR_MEMORY;
    }
    block *b = (block *)malloc(sizeof *b);
    if (!b)
        return error_memory(err, "device memory");
    cudaError_t e = cudaMalloc(&b->memory, size);
    if (e == cudaSuccess)
        e = cudaMemsetAsync(b->memory, 0, size, c->stream);
    if (e != cudaSuccess) {
        cudaGetLastError();
        free(b);
        return failed(e, "allocating", err);
    }
    b->bytes = size;
    b->next = c->blocks;
    c->blocks = b;
    c->held += size;
    *out = b->memory;
    return TACIT_OK;
}
static uint64_t do_room(void *self)
{
    context *c = enter(self);
    size_t left = 0, total = 0;
    if (cudaMemGetInfo(&left, &total) != cudaSuccess)
        return 0;
    uint64_t mine = c->budget > c->held ? c->budget - c->held : 0, spare = 64 << 20;
    left = left > spare ? left - spare : 0; /* what the driver itself may want */
    return mine < left ? mine : left;
}
static void do_release(void *self, void *memory)
{
    context *c = enter(self);
    for (block **b = &c->blocks; *b; b = &(*b)->next)
        if ((*b)->memory == memory) {
            block *gone = *b;
            *b = gone->next;
            c->held -= gone->bytes;
            cudaStreamSynchronize(c->stream);
            cudaStreamSynchronize(c->aside);
            cudaFree(memory);
            free(gone);
            return;
        }
}
static tacit_status do_alloc_host(void *self, size_t bytes, void **out, tacit_error *err)
{
    enter(self);
    return checked(cudaHostAlloc(out, bytes + 64, cudaHostAllocPortable), "pinning memory", err);
}
static void do_release_host(void *self, void *memory)
{
    context *c = enter(self);
    cudaStreamSynchronize(c->stream);
    cudaStreamSynchronize(c->aside);
    if (memory)
        cudaFreeHost(memory);
}
static tacit_status do_copy(void *self, cuda_direction way, void *to, const void *from,
                            size_t bytes, tacit_error *err)
{
    context *c = enter(self);
    if (!bytes)
        return TACIT_OK;
    if (way == CUDA_FETCH) {
        launch_fetch(c, to, from, bytes);
        return launched(c, err);
    }
    if (way == CUDA_TO_DEVICE_ASIDE)
        return checked(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, c->aside),
                       "copying", err);
    cudaMemcpyKind kind = way == CUDA_TO_DEVICE ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost;
    if (way == CUDA_TO_HOST_ASIDE) {
        cudaError_t e = cudaEventRecord(c->made, c->stream);
        if (e == cudaSuccess)
            e = cudaStreamWaitEvent(c->aside, c->made, 0);
        if (e == cudaSuccess)
            e = cudaMemcpyAsync(to, from, bytes, kind, c->aside);
        return checked(e, "copying", err);
    }
    return checked(cudaMemcpyAsync(to, from, bytes, kind, c->stream), "copying", err);
}
static tacit_status do_clear(void *self, void *memory, size_t bytes, tacit_error *err)
{
    context *c = enter(self);
    return checked(cudaMemsetAsync(memory, 0, bytes, c->stream), "clearing", err);
}
static tacit_status do_keys(void *self, const uint32_t *words, tacit_error *err)
{
    context *c = enter(self);
    memcpy(c->roles, words, sizeof c->roles);
    return checked(cudaMemcpyAsync(c->keys, words, CUDA_KEY_WORDS * 4, cudaMemcpyHostToDevice,
                                   c->stream),
                   "copying keys", err);
}
static tacit_status do_step(void *self, const cuda_gate *g, const cuda_io *io, unsigned step,
                            tacit_error *err)
{
    context *c = enter(self);
    if (launch_step(c, g, io, step) != 0) {
        error_record(err, TACIT_ERR_UNSUPPORTED, "gate kind %u has no device code", g->kind);
        return TACIT_ERR_UNSUPPORTED;
    }
    return launched(c, err);
}
static tacit_status do_deal(void *self, const cuda_gate *g, const cuda_io *io, tacit_error *err)
{
    context *c = enter(self);
    if (launch_deal(c, g, io) != 0) {
        error_record(err, TACIT_ERR_UNSUPPORTED, "gate kind %u has no device code", g->kind);
        return TACIT_ERR_UNSUPPORTED;
    }
    return launched(c, err);
}
#define QUEUED(name, type)                                                                         \
    static tacit_status do_##name(void *self, const type *what, tacit_error *err)                  \
    {                                                                                              \
        context *c = enter(self);                                                                  \
        launch_##name(c, what);                                                                    \
        return launched(c, err);                                                                   \
    }
QUEUED(local, cuda_local)
QUEUED(words, cuda_words)
QUEUED(product, cuda_product)
QUEUED(one_hot, cuda_one_hot)
QUEUED(result, cuda_result)
QUEUED(split, cuda_split)
QUEUED(gemm, cuda_gemm)

static tacit_status do_pack(void *self, const cuda_string *strings, uint32_t n, uint64_t most,
                            void *message, tacit_error *err)
{
    context *c = enter(self);
    launch_pack(c, strings, n, most, message);
    return launched(c, err);
}
static tacit_status do_unpack(void *self, const cuda_string *strings, uint32_t n, uint64_t most,
                              const void *message, bool add, tacit_error *err)
{
    context *c = enter(self);
    launch_unpack(c, strings, n, most, message, add);
    return launched(c, err);
}
static tacit_status do_graph_begin(void *self, tacit_error *err)
{
    context *c = enter(self);
    return checked(cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal),
                   "recording", err);
}
static tacit_status do_graph_end(void *self, void **graph, tacit_error *err)
{
    context *c = enter(self);
    cudaGraph_t g = NULL;
    cudaGraphExec_t exec = NULL;
    cudaError_t e = cudaStreamEndCapture(c->stream, &g);
    if (e == cudaSuccess)
        e = cudaGraphInstantiate(&exec, g, 0);
    if (e == cudaSuccess)
        e = cudaGraphUpload(exec, c->stream);
    if (g)
        cudaGraphDestroy(g);
    *graph = exec;
    return checked(e, "recording", err);
}
static tacit_status do_graph_run(void *self, void *graph, tacit_error *err)
{
    context *c = enter(self);
    return checked(cudaGraphLaunch((cudaGraphExec_t)graph, c->stream), "starting a round", err);
}
static void do_graph_free(void *self, void *graph)
{
    context *c = enter(self);
    cudaStreamSynchronize(c->stream);
    if (graph)
        cudaGraphExecDestroy((cudaGraphExec_t)graph);
}
static tacit_status do_wait(void *self, tacit_error *err)
{
    context *c = enter(self);
    tacit_status status = checked(cudaStreamSynchronize(c->stream), "running", err);
    return status == TACIT_OK ? launched(c, err) : status;
}

static tacit_status do_mark(void *self, unsigned which, tacit_error *err)
{
    context *c = enter(self);
    return checked(cudaEventRecord(c->marks[which], c->aside), "marking", err);
}
static tacit_status do_mark_work(void *self, unsigned which, tacit_error *err)
{
    context *c = enter(self);
    return checked(cudaEventRecord(c->marks[which], c->stream), "marking", err);
}
static tacit_status do_after_mark(void *self, unsigned which, tacit_error *err)
{
    context *c = enter(self);
    return checked(cudaStreamWaitEvent(c->stream, c->marks[which], 0), "ordering", err);
}
static tacit_status do_wait_mark(void *self, unsigned which, tacit_error *err)
{
    context *c = enter(self);
    tacit_status status = checked(cudaEventSynchronize(c->marks[which]), "running", err);
    return status == TACIT_OK ? launched(c, err) : status;
}

static tacit_status do_fork(void *self, tacit_error *err)
{
    context *c = enter(self);
    return checked(cudaEventRecord(c->forked, c->trunk), "forking", err);
}
static tacit_status do_branch(void *self, unsigned which, tacit_error *err)
{
    context *c = enter(self);
    if (which == 0) {
        c->stream = c->trunk;
        return TACIT_OK;
    }
    c->stream = c->branches[which - 1];
    if (c->used[which - 1])
        return TACIT_OK;
    c->used[which - 1] = true;
    return checked(cudaStreamWaitEvent(c->stream, c->forked, 0), "forking", err);
}
static tacit_status do_join(void *self, tacit_error *err)
{
    context *c = enter(self);
    cudaError_t e = cudaSuccess;
    c->stream = c->trunk;
    for (int i = 0; i + 1 < CUDA_BRANCHES; i++) {
        if (c->used[i] && e == cudaSuccess)
            e = cudaEventRecord(c->ended[i], c->branches[i]);
        if (c->used[i] && e == cudaSuccess)
            e = cudaStreamWaitEvent(c->trunk, c->ended[i], 0);
        c->used[i] = false;
    }
    return checked(e, "joining", err);
}
static tacit_status do_notify(void *self, void (*tell)(void *), void *what, tacit_error *err)
{
    context *c = enter(self);
    return checked(cudaLaunchHostFunc(c->stream, tell, what), "queueing a call", err);
}

static const cuda_ops ops = {
    do_alloc,     do_room,     do_release,   do_alloc_host,  do_release_host, do_copy,
    do_clear,     do_keys,     do_step,      do_deal,        do_local,        do_words,
    do_product,   do_one_hot,  do_result,    do_split,       do_gemm,         do_pack,
    do_unpack,    do_graph_begin, do_graph_end, do_graph_run, do_graph_free,  do_wait,
    do_mark,      do_mark_work, do_wait_mark, do_after_mark, do_fork,         do_branch,
    do_join,      do_notify};

extern "C" bool cuda_present(char *why, size_t size)
{
    int count = 0;
    cudaError_t e = cudaGetDeviceCount(&count);
    if (e == cudaSuccess && count > 0)
        return true;
    cudaGetLastError();
    if (why)
        snprintf(why, size, "%s", e == cudaSuccess ? "no CUDA device" : cudaGetErrorString(e));
    return false;
}

static cudaError_t prepare(context *c, uint64_t budget, cuda_device *out)
{
    cudaDeviceProp prop;
    uint32_t table[256];
    size_t free_bytes = 0, total = 0;
    cudaError_t e = cudaSetDevice(c->ordinal);
    if (e == cudaSuccess)
        e = cudaGetDeviceProperties(&prop, c->ordinal);
    if (e == cudaSuccess && prop.major < 8)
        e = cudaErrorNotSupported;
    if (e == cudaSuccess)
        e = cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking);
    if (e == cudaSuccess)
        e = cudaStreamCreateWithFlags(&c->aside, cudaStreamNonBlocking);
    if (e == cudaSuccess)
        e = cudaEventCreateWithFlags(&c->made, cudaEventDisableTiming);
    c->trunk = c->stream;
    if (e == cudaSuccess)
        e = cudaEventCreateWithFlags(&c->forked, cudaEventDisableTiming);
    for (int i = 0; i + 1 < CUDA_BRANCHES && e == cudaSuccess; i++) {
        e = cudaStreamCreateWithFlags(&c->branches[i], cudaStreamNonBlocking);
        if (e == cudaSuccess)
            e = cudaEventCreateWithFlags(&c->ended[i], cudaEventDisableTiming);
    }
    for (int i = 0; i < CUDA_MARKS && e == cudaSuccess; i++)
        e = cudaEventCreateWithFlags(&c->marks[i], cudaEventDisableTiming);
    if (e == cudaSuccess)
        e = cudaMalloc(&c->keys, (CUDA_KEY_WORDS + 256) * 4);
    cuda_fill_table(table);
    if (e == cudaSuccess)
        e = cudaMemcpy(c->keys + CUDA_KEY_WORDS, table, sizeof table, cudaMemcpyHostToDevice);
    if (e == cudaSuccess)
        e = cudaMemGetInfo(&free_bytes, &total);
    if (e != cudaSuccess)
        return e;
    c->processors = prop.multiProcessorCount;
    c->budget = budget && budget < free_bytes ? budget : free_bytes;
    snprintf(out->name, sizeof out->name, "%s", prop.name);
    return e;
}

extern "C" tacit_status cuda_open(unsigned n, uint64_t budget, cuda_device *out, tacit_error *err)
{
    char why[200];
    memset(out, 0, sizeof *out);
    if (!cuda_present(why, sizeof why)) {
        error_record(err, TACIT_ERR_UNSUPPORTED, "GPU: %s", why);
        return TACIT_ERR_UNSUPPORTED;
    }
    context *c = (context *)calloc(1, sizeof *c);
    if (!c)
        return error_memory(err, "the device");
    c->ordinal = (int)n;
    out->ops = &ops;
    out->self = c;
    out->ordinal = n;
    cudaError_t e = prepare(c, budget, out);
    out->memory = c->budget;
    if (e == cudaSuccess)
        return TACIT_OK;
    cudaGetLastError();
    cuda_close(out);
    return failed(e, "opening the device", err);
}

extern "C" void cuda_close(cuda_device *device)
{
    context *c = (context *)device->self;
    if (!c)
        return;
    enter(c);
    large_free(c);
    while (c->blocks)
        do_release(c, c->blocks->memory);
    if (c->keys) {
        cudaMemset(c->keys, 0, CUDA_KEY_WORDS * 4);
        cudaFree(c->keys);
    }
    for (int i = 0; i < CUDA_MARKS; i++)
        if (c->marks[i])
            cudaEventDestroy(c->marks[i]);
    for (int i = 0; i + 1 < CUDA_BRANCHES; i++) {
        if (c->ended[i])
            cudaEventDestroy(c->ended[i]);
        if (c->branches[i])
            cudaStreamDestroy(c->branches[i]);
    }
    if (c->forked)
        cudaEventDestroy(c->forked);
    if (c->made)
        cudaEventDestroy(c->made);
    if (c->aside)
        cudaStreamDestroy(c->aside);
    if (c->stream)
        cudaStreamDestroy(c->stream);
    free(c);
    memset(device, 0, sizeof *device);
}

extern "C" uint64_t cuda_free_bytes(const cuda_device *device)
{
    size_t free_bytes = 0, total = 0;
    enter(device->self);
    return cudaMemGetInfo(&free_bytes, &total) == cudaSuccess ? free_bytes : 0;
}
