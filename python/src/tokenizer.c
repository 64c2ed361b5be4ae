/* SPDX-License-Identifier: Apache-2.0
 * Tokenizers of GGUF files: text to tokens and back. */
#include <string.h>

#include "tacitpy.h"

typedef struct py_tokenizer {
    PyObject_HEAD tacit_tokenizer *tokenizer;
} py_tokenizer;

static PyObject *tokenizer_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"path", NULL};
    PyObject *path = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&:Tokenizer", names, PyUnicode_FSConverter,
                                     &path))
        return NULL;
    tacit_tokenizer *tokenizer;
    tacit_error err = {0};
    tacit_status status;
    const char *text = PyBytes_AsString(path);
    Py_BEGIN_ALLOW_THREADS status = tacit_tokenizer_load(text, NULL, &tokenizer, &err);
    Py_END_ALLOW_THREADS Py_DECREF(path);
    if (status != TACIT_OK)
        return py_raise(status, &err);
    py_tokenizer *self = (py_tokenizer *)py_instance((PyObject *)type);
    if (self)
        self->tokenizer = tokenizer;
    else
        tacit_tokenizer_free(tokenizer);
    return (PyObject *)self;
}

static void tokenizer_dealloc(PyObject *object)
{
    tacit_tokenizer_free(((py_tokenizer *)object)->tokenizer);
    py_instance_free(object);
}

static PyObject *list_of(const int64_t *ids, size_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list && i < count; i++) {
        PyObject *id = PyLong_FromLongLong(ids[i]);
        if (!id || PyList_SetItem(list, (Py_ssize_t)i, id) < 0)
            Py_CLEAR(list);
    }
    return list;
}

/* Room for what most texts need; for others there is a second round that knows how much. */
static PyObject *encode_bytes(const tacit_tokenizer *t, const char *text, size_t length, int flags)
{
    size_t room = length / 2 + 16, count = 0;
    for (;;) {
        int64_t *ids = PyMem_Malloc(room * sizeof *ids);
        tacit_error err = {0};
        tacit_status status;
        if (!ids)
            return PyErr_NoMemory();
        Py_BEGIN_ALLOW_THREADS status =
            tacit_tokenizer_encode(t, text, length, flags, ids, room, &count, &err);
        Py_END_ALLOW_THREADS PyObject *list = NULL;
        bool fits = count <= room;
        if (status != TACIT_OK)
            py_raise(status, &err);
        else if (fits)
            list = list_of(ids, count);
        PyMem_Free(ids);
        if (status != TACIT_OK || fits)
            return list;
        room = count;
    }
}

static PyObject *tokenizer_encode(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"text", "special", "bare", "open", NULL};
    PyObject *text;
    int special = 0, bare = 0, open = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "U|ppp:encode", names, &text, &special, &bare,
                                     &open))
        return NULL;
    PyObject *bytes = PyUnicode_AsUTF8String(text);
    if (!bytes)
        return NULL;
    int flags = (special ? TACIT_ENCODE_SPECIAL : 0) | (bare ? TACIT_ENCODE_BARE : 0) |
                (open ? TACIT_ENCODE_OPEN : 0);
    PyObject *list = encode_bytes(((py_tokenizer *)self)->tokenizer, PyBytes_AsString(bytes),
                                  (size_t)PyBytes_Size(bytes), flags);
    Py_DECREF(bytes);
    return list;
}

/* The number of a token; -1 with an exception for what is no number. */
static int64_t number_of(PyObject *object)
{
    PyObject *index = PyNumber_Index(object);
    int64_t id = index ? PyLong_AsLongLong(index) : -1;
    Py_XDECREF(index);
    return id;
}

static PyObject *tokenizer_piece(PyObject *self, PyObject *object)
{
    int64_t id = number_of(object);
    if (id == -1 && PyErr_Occurred())
        return NULL;
    size_t length;
    const char *piece = tacit_tokenizer_piece(((py_tokenizer *)self)->tokenizer, id, &length);
    return PyBytes_FromStringAndSize(piece, (Py_ssize_t)length);
}

/* The numbers of a list, each asked for once: __index__ may be anybody's, and answer otherwise the
 * second time. NULL: exception. */
static int64_t *numbers_of(PyObject *list, Py_ssize_t n)
{
    int64_t *ids = PyMem_Malloc(((size_t)n + 1) * sizeof *ids);
    if (!ids)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; ids && i < n; i++) {
        PyObject *item = PyList_GetItem(list, i);
        ids[i] = item ? number_of(item) : -1;
        if (ids[i] == -1 && PyErr_Occurred()) {
            PyMem_Free(ids);
            ids = NULL;
        }
    }
    return ids;
}

/* Bytes of all tokens, copied where there is a place for them. */
static size_t join(const tacit_tokenizer *t, const int64_t *ids, Py_ssize_t n, char *out)
{
    size_t all = 0, length;
    for (Py_ssize_t i = 0; i < n; i++) {
        const char *piece = tacit_tokenizer_piece(t, ids[i], &length);
        if (out)
            memcpy(out + all, piece, length);
        all += length;
    }
    return all;
}

static PyObject *tokenizer_decode(PyObject *self, PyObject *sequence)
{
    const tacit_tokenizer *t = ((py_tokenizer *)self)->tokenizer;
    PyObject *list = PySequence_List(sequence), *text = NULL;
    Py_ssize_t n = list ? PyList_Size(list) : 0;
    int64_t *ids = list ? numbers_of(list, n) : NULL;
    size_t all = ids ? join(t, ids, n, NULL) : 0;
    char *bytes = ids ? PyMem_Malloc(all + 1) : NULL;
    if (bytes) {
        join(t, ids, n, bytes);
        text = PyUnicode_DecodeUTF8(bytes, (Py_ssize_t)all, "replace");
    } else if (ids) {
        PyErr_NoMemory();
    }
    PyMem_Free(bytes);
    PyMem_Free(ids);
    Py_XDECREF(list);
    return text;
}

static PyObject *tokenizer_ends(PyObject *self, PyObject *object)
{
    int64_t id = number_of(object);
    if (id == -1 && PyErr_Occurred())
        return NULL;
    return PyBool_FromLong(tacit_tokenizer_ends(((py_tokenizer *)self)->tokenizer, id));
}

static PyObject *tokenizer_size(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLong(tacit_tokenizer_size(((py_tokenizer *)self)->tokenizer));
}

static PyMethodDef methods[] = {
    {"encode", (PyCFunction)(void (*)(void))tokenizer_encode, METH_VARARGS | METH_KEYWORDS,
     "encode(text, special=False, bare=False, open=False): its tokens. special: names of control "
     "tokens stand for them; bare: without the tokens that begin and end a text; open: without the "
     "one that ends it, since more follows."},
    {"decode", tokenizer_decode, METH_O,
     "decode(ids): their text; what is no UTF-8 becomes U+FFFD, control tokens nothing."},
    {"piece", tokenizer_piece, METH_O,
     "piece(id): the bytes of one token, which may be a part of a character."},
    {"ends", tokenizer_ends, METH_O, "ends(id): the model says by it that its text has ended."},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef members[] = {
    {"size", tokenizer_size, NULL, "How many tokens there are.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

bool py_tokenizer_ready(PyObject *module)
{
    static PyType_Slot slots[] = {
        {Py_tp_new, tokenizer_new},
        {Py_tp_dealloc, tokenizer_dealloc},
        {Py_tp_methods, methods},
        {Py_tp_getset, members},
        {Py_tp_doc, "Tokenizer(path): from text to the tokens of a language model, and back, by "
                    "the vocabulary in a GGUF file. Immutable; threads may share one."},
        {0, NULL}};
    static PyType_Spec spec = {"tacit._tacit.Tokenizer", sizeof(py_tokenizer), 0,
                               Py_TPFLAGS_DEFAULT, slots};
    PyObject *type = PyType_FromSpec(&spec);
    return type && PyModule_AddObject(module, "Tokenizer", type) == 0;
}
