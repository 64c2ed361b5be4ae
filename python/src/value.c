/* SPDX-License-Identifier: Apache-2.0
 * Python objects as values of any kind: what is no dense array yet, lists for sequences, None for
 * empty optionals, dicts for maps; and back. */
#include <string.h>

#include "tacitpy.h"

static const char memory_name[] = "tacit.memory";

static void free_memory(PyObject *capsule)
{
    PyMem_Free(PyCapsule_GetPointer(capsule, memory_name));
}

/* Zeroed memory that lives as long as the list. */
static void *kept_memory(PyObject *keep, size_t bytes)
{
    void *memory = PyMem_Calloc(bytes ? bytes : 1, 1);
    if (!memory)
        return PyErr_NoMemory();
    PyObject *capsule = PyCapsule_New(memory, memory_name, free_memory);
    if (!capsule)
        PyMem_Free(memory);
    bool ok = capsule && PyList_Append(keep, capsule) == 0;
    Py_XDECREF(capsule);
    return ok ? memory : NULL;
}

static bool set_shape(PyObject *shape, py_array *a)
{
    Py_ssize_t rank = PyTuple_Size(shape);
    if (rank > TACIT_MAX_RANK) {
        py_fail(TACIT_ERR_LIMIT, "arrays have at most %d axes", TACIT_MAX_RANK);
        return false;
    }
    a->rank = (int32_t)rank;
    for (Py_ssize_t i = 0; i < rank; i++)
        a->dims[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
    return !PyErr_Occurred();
}

/* Strings arrive as a list of bytes objects. */
static bool set_strings(PyObject *list, PyObject *keep, py_array *a)
{
    Py_ssize_t n = PyList_Size(list);
    tacit_string *s = kept_memory(keep, ((size_t)n + 1) * sizeof *s);
    if (!s || PyList_Append(keep, list) < 0)
        return false;
    for (Py_ssize_t k = 0; k < n; k++) {
        char *text;
        Py_ssize_t length;
        if (PyBytes_AsStringAndSize(PyList_GetItem(list, k), &text, &length) < 0)
            return false;
        s[k] = (tacit_string){text, (uint64_t)length};
    }
    a->dtype = TACIT_STRING;
    a->data = s;
    a->bytes = (size_t)n * sizeof *s;
    return true;
}

bool py_array_convert(PyObject *object, const tacit_port *port, bool strict, PyObject *keep,
                      py_array *a)
{
    if (!py_arrays_ready())
        return false;
    PyObject *made =
        PyObject_CallFunction(py.convert, "OssO", object, tacit_dtype_text(port->dtype), port->name,
                              strict ? Py_True : Py_False);
    bool ok = made != NULL;
    if (ok && PyTuple_Check(made)) {
        PyObject *storage = PyTuple_GetItem(made, 0), *shape = PyTuple_GetItem(made, 1);
        if (PyList_Check(storage))
            ok = set_strings(storage, keep, a);
        else
            ok = py_array_lend(storage, a) == 1;
        if (ok && a->dtype == TACIT_U8)
            a->dtype = port->dtype;
        ok = ok && set_shape(shape, a);
    } else if (ok) {
        int got = py_array_lend(made, a);
        ok = got == 1;
        if (got == 0)
            py_fail(TACIT_ERR_TYPE, "input '%s' is an array of a type Tacit does not know",
                    port->name);
    }
    Py_XDECREF(made);
    return ok;
}

void py_array_tensor(const py_array *a, tacit_tensor *t)
{
    t->dtype = a->dtype;
    t->rank = a->rank;
    memcpy(t->dims, a->dims, (size_t)a->rank * sizeof *t->dims);
    t->data = a->data;
    t->bytes = a->bytes;
}

/* --- in --------------------------------------------------------------------------------------- */

static bool tensor_in(PyObject *object, const tacit_port *port, bool strict, PyObject *keep,
                      tacit_tensor *t)
{
    py_array a;
    int got = py_array_lend(object, &a);
    if (got < 0 || (got == 0 && !py_array_convert(object, port, strict, keep, &a)))
        return false;
    bool ok = !a.owner || PyList_Append(keep, a.owner) == 0;
    py_array_release(&a);
    py_array_tensor(&a, t);
    return ok;
}

static bool sequence_in(PyObject *object, const tacit_port *port, bool strict, PyObject *keep,
                        tacit_tensor *t)
{
    if (!PyList_Check(object) && !PyTuple_Check(object)) {
        py_fail(TACIT_ERR_TYPE, "input '%s' is a sequence: give it as a list of arrays",
                port->name);
        return false;
    }
    Py_ssize_t n = PySequence_Size(object);
    t->kind = TACIT_KIND_SEQUENCE;
    t->n_items = (uint32_t)n;
    t->items = kept_memory(keep, (size_t)n * sizeof *t->items);
    bool ok = t->items != NULL;
    for (Py_ssize_t i = 0; ok && i < n; i++) {
        PyObject *item = PySequence_GetItem(object, i);
        ok = item && tensor_in(item, port, strict, keep, &t->items[i]);
        Py_XDECREF(item);
    }
    return ok;
}

/* Keys and values as two tensors in the dict's order. */
static bool map_in(PyObject *object, const tacit_port *port, bool strict, PyObject *keep,
                   tacit_tensor *t)
{
    if (!PyDict_Check(object)) {
        py_fail(TACIT_ERR_TYPE, "input '%s' is a map: give it as a dict", port->name);
        return false;
    }
    t->kind = TACIT_KIND_MAP;
    t->n_items = 2;
    t->items = kept_memory(keep, 2 * sizeof *t->items);
    PyObject *keys = PyDict_Keys(object), *values = PyDict_Values(object);
    PyObject *first = keys && PyList_Size(keys) ? PyList_GetItem(keys, 0) : NULL;
    tacit_port key = *port;
    key.dtype = first && PyUnicode_Check(first) ? TACIT_STRING : TACIT_I64;
    bool ok = t->items && keys && values && tensor_in(keys, &key, strict, keep, &t->items[0]) &&
              tensor_in(values, port, strict, keep, &t->items[1]);
    Py_XDECREF(keys);
    Py_XDECREF(values);
    return ok;
}

bool py_value_in(PyObject *object, const tacit_port *port, bool strict, PyObject *keep,
                 tacit_tensor *t)
{
    if (port->kind == TACIT_KIND_SEQUENCE)
        return sequence_in(object, port, strict, keep, t);
    if (port->kind == TACIT_KIND_MAP)
        return map_in(object, port, strict, keep, t);
    if (object == Py_None) {
        t->kind = TACIT_KIND_OPTIONAL;
        return true;
    }
    if (PyList_Check(object) || PyTuple_Check(object))
        return sequence_in(object, port, strict, keep, t);
    return tensor_in(object, port, strict, keep, t);
}

/* --- out -------------------------------------------------------------------------------------- */

static PyObject *sequence_copy(const tacit_tensor *t)
{
    PyObject *list = PyList_New(t->n_items);
    for (uint32_t i = 0; list && i < t->n_items; i++) {
        PyObject *item = py_value_copy(&t->items[i]);
        if (!item || PyList_SetItem(list, i, item) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *map_copy(const tacit_tensor *t)
{
    PyObject *keys = py_array_copy(&t->items[0]), *values = py_array_copy(&t->items[1]);
    PyObject *key_list = keys ? PyObject_CallMethod(keys, "tolist", NULL) : NULL;
    PyObject *value_list = values ? PyObject_CallMethod(values, "tolist", NULL) : NULL;
    PyObject *map = key_list && value_list ? PyDict_New() : NULL;
    for (Py_ssize_t i = 0; map && i < PyList_Size(key_list); i++)
        if (PyDict_SetItem(map, PyList_GetItem(key_list, i), PyList_GetItem(value_list, i)) < 0)
            Py_CLEAR(map);
    Py_XDECREF(keys);
    Py_XDECREF(values);
    Py_XDECREF(key_list);
    Py_XDECREF(value_list);
    return map;
}

PyObject *py_value_copy(const tacit_tensor *t)
{
    switch (t->kind) {
    case TACIT_KIND_SEQUENCE:
        return sequence_copy(t);
    case TACIT_KIND_MAP:
        return map_copy(t);
    case TACIT_KIND_OPTIONAL:
        if (t->n_items)
            return py_value_copy(&t->items[0]);
        Py_RETURN_NONE;
    default:
        return py_array_copy(t);
    }
}
