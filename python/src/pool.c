/* SPDX-License-Identifier: Apache-2.0
 * Arrays for a session's outputs. The memory of large ones comes back here when the array (and
 * every view of it) is gone, and serves a later run: fresh memory would cost a page fault every few
 * thousand elements, which is a visible part of a fast model's time. Guarded by the GIL. */
#include <stdlib.h>
#include <sys/mman.h>

#include "tacitpy.h"

enum {
    LARGE = 64 * 1024,      /* bytes; below that NumPy's own memory is as good */
    HUGE = 4 * 1024 * 1024, /* bytes from which large pages are asked for */
    SPARE = 2,              /* blocks kept per output */
    ALIGNMENT = 64,
    PAGE = 4096
};

typedef struct slot {
    PyObject *arguments; /* numpy.empty's; NULL: the shape is known after the run */
    char kind;           /* of large arrays; 0: not large, or a type NumPy itself does not know */
    int element;
    int rank;
    Py_ssize_t shape[TACIT_MAX_RANK], strides[TACIT_MAX_RANK];
    size_t bytes;
    void *spare[SPARE];
} slot;

struct py_pool {
    size_t references; /* the session's, and one per block in use */
    bool open;         /* false: blocks are freed when they come back */
    uint32_t count;
    slot slots[];
};

/* --- blocks: what the arrays stand on --------------------------------------------------------- */

typedef struct block {
    PyObject_HEAD void *memory;
    py_pool *pool;
    uint32_t index;
} block;

static void release(py_pool *pool)
{
    if (--pool->references)
        return;
    for (uint32_t i = 0; i < pool->count; i++)
        Py_XDECREF(pool->slots[i].arguments);
    PyMem_Free(pool);
}

static void block_dealloc(PyObject *object)
{
    block *self = (block *)object;
    py_pool *pool = self->pool;
    slot *s = pool ? &pool->slots[self->index] : NULL;
    for (int i = 0; s && pool->open && self->memory && i < SPARE; i++)
        if (!s->spare[i]) {
            s->spare[i] = self->memory;
            self->memory = NULL;
        }
    free(self->memory);
    if (pool)
        release(pool);
    py_instance_free(object);
}

static void free_interface(PyObject *capsule)
{
    PyMem_Free(PyCapsule_GetPointer(capsule, NULL));
}

/* NumPy makes an array of this, which keeps the block. */
static PyObject *block_interface(PyObject *object, void *unused)
{
    (void)unused;
    block *self = (block *)object;
    slot *s = &self->pool->slots[self->index];
    py_array_interface *face = PyMem_Calloc(1, sizeof *face);
    if (!face)
        return PyErr_NoMemory();
    *face = (py_array_interface){.two = 2,
                                 .nd = s->rank,
                                 .typekind = s->kind,
                                 .itemsize = s->element,
                                 .flags = PY_ARRAY_DENSE | PY_ARRAY_WRITEABLE,
                                 .shape = s->shape,
                                 .strides = s->strides,
                                 .data = self->memory};
    PyObject *capsule = PyCapsule_New(face, NULL, free_interface);
    if (!capsule)
        PyMem_Free(face);
    return capsule;
}

static void *take_memory(slot *s)
{
    for (int i = 0; i < SPARE; i++)
        if (s->spare[i]) {
            void *memory = s->spare[i];
            s->spare[i] = NULL;
            return memory;
        }
    size_t unit = s->bytes >= HUGE ? PAGE : ALIGNMENT;
    size_t bytes = (s->bytes + unit - 1) / unit * unit;
    void *memory = aligned_alloc(unit, bytes);
#ifdef MADV_HUGEPAGE
    if (memory && s->bytes >= HUGE)
        (void)madvise(memory, bytes, MADV_HUGEPAGE); /* advice: it may be refused */
#endif
    return memory;
}

static PyObject *large_array(py_pool *pool, uint32_t index)
{
    block *b = (block *)py_instance(py.block_type);
    if (!b)
        return NULL;
    b->memory = take_memory(&pool->slots[index]);
    b->index = index;
    b->pool = pool;
    pool->references++;
    PyObject *array = NULL;
    if (b->memory)
        array = PyObject_CallFunctionObjArgs(py.asarray, (PyObject *)b, NULL);
    else
        PyErr_NoMemory();
    Py_DECREF(b);
    return array;
}

/* --- pools ------------------------------------------------------------------------------------ */

static char kind_of(tacit_dtype dtype)
{
    switch (dtype) {
    case TACIT_F64:
    case TACIT_F32:
    case TACIT_F16:
        return 'f';
    case TACIT_I8:
    case TACIT_I16:
    case TACIT_I32:
    case TACIT_I64:
        return 'i';
    case TACIT_U8:
    case TACIT_U16:
    case TACIT_U32:
    case TACIT_U64:
        return 'u';
    case TACIT_BOOL:
        return 'b';
    case TACIT_C64:
    case TACIT_C128:
        return 'c';
    default:
        return 0;
    }
}

static bool fill_slot(slot *s, const tacit_port *port)
{
    bool known = port->rank >= 0 && port->kind == TACIT_KIND_TENSOR && port->dtype != TACIT_STRING;
    for (int32_t k = 0; known && k < port->rank; k++)
        known = port->dims[k] >= 0;
    if (!known || tacit_dtype_bits(port->dtype) < 8 || !py.dtypes[port->dtype])
        return true;
    PyObject *shape = py_shape(port->rank, port->dims);
    s->arguments = shape ? Py_BuildValue("(NO)", shape, py.dtypes[port->dtype]) : NULL;
    s->rank = port->rank;
    s->element = (int)tacit_dtype_bits(port->dtype) / 8;
    s->bytes = (size_t)s->element;
    for (int32_t k = port->rank; k-- > 0; s->bytes *= (size_t)port->dims[k]) {
        s->shape[k] = (Py_ssize_t)port->dims[k];
        s->strides[k] = (Py_ssize_t)s->bytes;
    }
    s->kind = s->bytes >= LARGE ? kind_of(port->dtype) : 0;
    return s->arguments != NULL;
}

py_pool *py_pool_new(const tacit_port *outputs, uint32_t count)
{
    py_pool *pool = PyMem_Calloc(1, sizeof *pool + count * sizeof(slot));
    if (!pool)
        return (py_pool *)PyErr_NoMemory();
    pool->references = 1;
    pool->open = true;
    pool->count = count;
    for (uint32_t i = 0; i < count; i++)
        if (!fill_slot(&pool->slots[i], &outputs[i])) {
            py_pool_close(pool);
            return NULL;
        }
    return pool;
}

void py_pool_close(py_pool *pool)
{
    if (!pool)
        return;
    pool->open = false;
    for (uint32_t i = 0; i < pool->count; i++)
        for (int k = 0; k < SPARE; k++) {
            free(pool->slots[i].spare[k]);
            pool->slots[i].spare[k] = NULL;
        }
    release(pool);
}

bool py_pool_array(py_pool *pool, uint32_t i, PyObject **array, py_array *lent)
{
    const slot *s = &pool->slots[i];
    if (!s->arguments)
        return true;
    *array = s->kind ? large_array(pool, i) : PyObject_Call(py.empty, s->arguments, NULL);
    if (!*array)
        return false;
    int got = py_array_lend(*array, lent);
    if (got == 0)
        PyErr_SetString(PyExc_RuntimeError, "NumPy gave an array that is not dense");
    return got == 1;
}

bool py_pool_ready(void)
{
    static PyGetSetDef members[] = {{"__array_struct__", block_interface, NULL, NULL, NULL},
                                    {NULL, NULL, NULL, NULL, NULL}};
    static PyType_Slot slots[] = {
        {Py_tp_dealloc, block_dealloc}, {Py_tp_getset, members}, {0, NULL}};
    static PyType_Spec spec = {"tacit._tacit.Block", sizeof(block), 0, Py_TPFLAGS_DEFAULT, slots};
    py.block_type = PyType_FromSpec(&spec);
    return py.block_type != NULL;
}
