/* SPDX-License-Identifier: Apache-2.0
 * The module: errors, element types, names, and the functions that are no methods. */
#include "tacitpy.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

py_state py;

PyObject *py_raise(tacit_status status, const tacit_error *err)
{
    static const char *const names[] = {
#define NAME(name, text) #name,
        TACIT_STATUS_MAP(NAME)
#undef NAME
    };
    const char *name = (unsigned)status < TACIT_STATUS_COUNT ? names[status] : "ERR_INTERNAL";
    const char *message = err && err->message[0] ? err->message : tacit_status_text(status);
    PyObject *text = PyUnicode_DecodeUTF8(message, (Py_ssize_t)strlen(message), "replace");
    PyObject *e = text ? PyObject_CallFunctionObjArgs(py.error, text, NULL) : NULL;
    PyObject *status_name = PyUnicode_FromString(name);
    if (e && status_name && PyObject_SetAttrString(e, "status", status_name) == 0 &&
        PyObject_SetAttrString(e, "message", text) == 0)
        PyErr_SetObject(py.error, e);
    Py_XDECREF(status_name);
    Py_XDECREF(text);
    Py_XDECREF(e);
    return NULL;
}

PyObject *py_fail(tacit_status status, const char *format, ...)
{
    tacit_error err = {.status = status};
    va_list list;
    va_start(list, format);
    vsnprintf(err.message, sizeof err.message, format, list);
    va_end(list);
    return py_raise(status, &err);
}

const char *py_text(PyObject *object, PyObject **bytes)
{
    *bytes = NULL;
    if (!PyUnicode_Check(object)) {
        PyErr_SetString(PyExc_TypeError, "a name must be a str");
        return NULL;
    }
    *bytes = PyUnicode_AsUTF8String(object);
    char *text = NULL;
    /* With a NULL length, text with a NUL inside is refused. */
    if (*bytes && PyBytes_AsStringAndSize(*bytes, &text, NULL) < 0)
        Py_CLEAR(*bytes);
    return *bytes ? text : NULL;
}

tacit_dtype py_dtype_named(const char *name)
{
    for (int i = 1; i < TACIT_DTYPE_COUNT; i++)
        if (strcmp(tacit_dtype_text((tacit_dtype)i), name) == 0)
            return (tacit_dtype)i;
    PyErr_Format(PyExc_ValueError, "there is no element type '%s'", name);
    return TACIT_DTYPE_NONE;
}

PyObject *py_instance(PyObject *type)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot((PyTypeObject *)type, Py_tp_alloc);
    return alloc((PyTypeObject *)type, 0);
}

void py_instance_free(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

/* --- names and dimensions --------------------------------------------------------------------- */

void py_names_free(py_names *names)
{
    PyMem_Free(names->names);
    Py_XDECREF(names->texts);
    *names = (py_names){0};
}

bool py_names_get(PyObject *sequence, py_names *out)
{
    *out = (py_names){0};
    PyObject *list = PySequence_List(sequence);
    if (!list)
        return false;
    Py_ssize_t n = PyList_Size(list);
    out->texts = PyList_New(0);
    out->names = PyMem_Malloc(((size_t)n + 1) * sizeof *out->names);
    bool ok = out->texts && out->names;
    if (!ok)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; ok && i < n; i++) {
        PyObject *bytes;
        out->names[i] = py_text(PyList_GetItem(list, i), &bytes);
        ok = out->names[i] && PyList_Append(out->texts, bytes) == 0;
        Py_XDECREF(bytes);
    }
    out->count = (uint32_t)n;
    Py_DECREF(list);
    if (!ok)
        py_names_free(out);
    return ok;
}

void py_dims_free(py_dims *dims)
{
    PyMem_Free(dims->dims);
    Py_XDECREF(dims->texts);
    *dims = (py_dims){0};
}

bool py_dims_get(PyObject *mapping, py_dims *out)
{
    *out = (py_dims){0};
    if (!mapping || mapping == Py_None)
        return true;
    if (!PyDict_Check(mapping)) {
        PyErr_SetString(PyExc_TypeError, "dims must be a dict of names and sizes");
        return false;
    }
    out->texts = PyList_New(0);
    out->dims = PyMem_Malloc(((size_t)PyDict_Size(mapping) + 1) * sizeof *out->dims);
    bool ok = out->texts && out->dims;
    if (!ok)
        PyErr_NoMemory();
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (ok && PyDict_Next(mapping, &at, &key, &value)) {
        PyObject *bytes;
        const char *name = py_text(key, &bytes);
        PyObject *number = name ? PyNumber_Index(value) : NULL;
        int64_t size = number ? PyLong_AsLongLong(number) : -1;
        ok = number && !PyErr_Occurred() && PyList_Append(out->texts, bytes) == 0;
        Py_XDECREF(number);
        Py_XDECREF(bytes);
        if (ok)
            out->dims[out->count++] = (tacit_dim){name, size};
    }
    if (!ok)
        py_dims_free(out);
    return ok;
}

bool py_dims_has(const py_dims *dims, const char *name)
{
    for (uint32_t i = 0; i < dims->count; i++)
        if (strcmp(dims->dims[i].name, name) == 0)
            return true;
    return false;
}

PyObject *py_port(const tacit_port *port)
{
    PyObject *dims = Py_None;
    if (port->rank < 0) {
        Py_INCREF(dims);
    } else {
        dims = PyTuple_New(port->rank);
        for (int32_t i = 0; dims && i < port->rank; i++) {
            PyObject *dim;
            if (port->dims[i] >= 0)
                dim = PyLong_FromLongLong(port->dims[i]);
            else if (port->dim_names[i])
                dim = PyUnicode_FromString(port->dim_names[i]);
            else
                dim = Py_None, Py_INCREF(dim);
            if (!dim || PyTuple_SetItem(dims, i, dim) < 0)
                Py_CLEAR(dims);
        }
    }
    if (!dims)
        return NULL;
    static const char *const kinds[] = {"tensor", "sequence", "optional", "map"};
    return Py_BuildValue("(ssNs)", port->name, tacit_dtype_text(port->dtype), dims,
                         kinds[port->kind]);
}

/* --- the module ------------------------------------------------------------------------------- */

/* After a fork the workers of parallel sessions are gone: sessions see the count change. */
static PyObject *forked(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    py.forks++;
    Py_RETURN_NONE;
}

static void replace(PyObject **slot, PyObject *value)
{
    Py_XINCREF(value);
    Py_XDECREF(*slot);
    *slot = value;
}

/* What lives on the Python side: conversions, the numpy dtype of every element type, and the
 * classes (of the types here, with the methods that need no C) that objects are made of. */
static PyObject *configure(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *model, *program, *session, *runner;
    if (!PyArg_ParseTuple(args, "OOOO:configure", &model, &program, &session, &runner))
        return NULL;
    replace(&py.model_type, model);
    replace(&py.program_type, program);
    replace(&py.session_type, session);
    replace(&py.runner_type, runner);
    Py_RETURN_NONE;
}

/* tacit._arrays tells what it made of NumPy. */
static PyObject *arrays(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *empty, *asarray, *convert, *place, *unpack, *dtypes;
    if (!PyArg_ParseTuple(args, "OOOOOO!:arrays", &empty, &asarray, &convert, &place, &unpack,
                          &PyDict_Type, &dtypes))
        return NULL;
    replace(&py.empty, empty);
    replace(&py.asarray, asarray);
    replace(&py.convert, convert);
    replace(&py.place, place);
    replace(&py.unpack, unpack);
    for (int i = 1; i < TACIT_DTYPE_COUNT; i++) {
        PyObject *dtype = PyDict_GetItemString(dtypes, tacit_dtype_text((tacit_dtype)i));
        replace(&py.dtypes[i], dtype);
    }
    Py_RETURN_NONE;
}

bool py_arrays_ready(void)
{
    if (py.empty)
        return true;
    PyObject *module = PyImport_ImportModule("tacit._arrays");
    Py_XDECREF(module);
    if (module && !py.empty)
        PyErr_SetString(PyExc_RuntimeError, "tacit._arrays is still being imported");
    return module && py.empty;
}

static PyObject *version(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyUnicode_FromString(tacit_version());
}

static PyMethodDef functions[] = {
    {"load", (PyCFunction)(void (*)(void))py_load, METH_VARARGS | METH_KEYWORDS, NULL},
    {"load_memory", (PyCFunction)(void (*)(void))py_load_memory, METH_VARARGS | METH_KEYWORDS,
     NULL},
    {"configure", configure, METH_VARARGS, NULL},
    {"arrays", arrays, METH_VARARGS, NULL},
    {"forked", forked, METH_NOARGS, NULL},
    {"version", version, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "tacit._tacit",
                                 .m_doc = "The C API of Tacit; use the package tacit.",
                                 .m_size = -1, .m_methods = functions};

static bool ready(PyObject *module)
{
    py.array_struct = PyUnicode_InternFromString("__array_struct__");
    py.dtype = PyUnicode_InternFromString("dtype");
    py.error = PyErr_NewExceptionWithDoc("tacit.Error",
                                         "What Tacit reports: `status` names the kind "
                                         "('ERR_SHAPE'), `message` says what, where and why.",
                                         PyExc_RuntimeError, NULL);
    if (!py.array_struct || !py.dtype || !py.error)
        return false;
    Py_INCREF(py.error);
    return PyModule_AddObject(module, "Error", py.error) == 0 && py_model_ready(module) &&
           py_program_ready(module) && py_session_ready(module) && py_runner_ready(module) &&
           py_builder_ready(module) && py_pool_ready() && py_secure_ready(module) &&
           py_tokenizer_ready(module);
}

PyMODINIT_FUNC PyInit__tacit(void);
PyMODINIT_FUNC PyInit__tacit(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module && !ready(module))
        Py_CLEAR(module);
    return module;
}
