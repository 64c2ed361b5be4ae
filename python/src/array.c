/* SPDX-License-Identifier: Apache-2.0
 * NumPy arrays lent to the core and made for its results. */
#include <string.h>

#include "tacitpy.h"

/* Types NumPy itself knows, by kind and size; the others are told by their dtype object. */
static tacit_dtype plain_dtype(char kind, int size)
{
    switch (kind) {
    case 'f':
        return size == 4   ? TACIT_F32
               : size == 8 ? TACIT_F64
               : size == 2 ? TACIT_F16
                           : TACIT_DTYPE_NONE;
    case 'i':
        return size == 8   ? TACIT_I64
               : size == 4 ? TACIT_I32
               : size == 1 ? TACIT_I8
               : size == 2 ? TACIT_I16
                           : TACIT_DTYPE_NONE;
    case 'u':
        return size == 1   ? TACIT_U8
               : size == 4 ? TACIT_U32
               : size == 8 ? TACIT_U64
               : size == 2 ? TACIT_U16
                           : TACIT_DTYPE_NONE;
    case 'b':
        return size == 1 ? TACIT_BOOL : TACIT_DTYPE_NONE;
    case 'c':
        return size == 8 ? TACIT_C64 : size == 16 ? TACIT_C128 : TACIT_DTYPE_NONE;
    default:
        return TACIT_DTYPE_NONE;
    }
}

/* bfloat16 and the 8-bit floats of ml_dtypes; packed types are never dense in NumPy. */
static int extension_dtype(PyObject *object, tacit_dtype *out)
{
    *out = TACIT_DTYPE_NONE;
    if (!py_arrays_ready())
        return -1;
    PyObject *dtype = PyObject_GetAttr(object, py.dtype);
    if (!dtype) {
        PyErr_Clear();
        return 0;
    }
    int found = 0;
    for (int i = 1; i < TACIT_DTYPE_COUNT && found == 0; i++) {
        if (!py.dtypes[i] || tacit_dtype_bits((tacit_dtype)i) < 8 || i == TACIT_STRING)
            continue;
        found = PyObject_RichCompareBool(dtype, py.dtypes[i], Py_EQ);
        if (found == 1)
            *out = (tacit_dtype)i;
    }
    Py_DECREF(dtype);
    return found;
}

void py_array_release(py_array *array)
{
    Py_CLEAR(array->owner);
}

int py_array_lend(PyObject *object, py_array *out)
{
    *out = (py_array){0};
    PyObject *capsule = PyObject_GetAttr(object, py.array_struct);
    if (!capsule) {
        if (!PyErr_ExceptionMatches(PyExc_AttributeError))
            return -1;
        PyErr_Clear();
        return 0;
    }
    const py_array_interface *a =
        PyCapsule_IsValid(capsule, NULL) ? PyCapsule_GetPointer(capsule, NULL) : NULL;
    int usable = a && a->two == 2 && a->nd >= 0 && a->nd <= TACIT_MAX_RANK &&
                 (a->flags & PY_ARRAY_DENSE) == PY_ARRAY_DENSE;
    if (usable) {
        out->dtype = plain_dtype(a->typekind, a->itemsize);
        if (out->dtype == TACIT_DTYPE_NONE && a->typekind != 'O')
            usable = extension_dtype(object, &out->dtype);
    }
    if (usable <= 0 || out->dtype == TACIT_DTYPE_NONE) {
        Py_DECREF(capsule);
        return usable < 0 ? -1 : 0;
    }
    out->owner = capsule; /* holds a reference to the array */
    out->rank = a->nd;
    out->bytes = (size_t)a->itemsize;
    for (int i = 0; i < a->nd; i++) {
        out->dims[i] = a->shape[i];
        out->bytes *= (size_t)a->shape[i];
    }
    out->data = a->data;
    out->writable = (a->flags & PY_ARRAY_WRITEABLE) != 0;
    return 1;
}

PyObject *py_shape(int32_t rank, const int64_t *dims)
{
    PyObject *shape = PyTuple_New(rank);
    for (int32_t i = 0; shape && i < rank; i++) {
        PyObject *dim = PyLong_FromLongLong(dims[i]);
        if (!dim || PyTuple_SetItem(shape, i, dim) < 0)
            Py_CLEAR(shape);
    }
    return shape;
}

PyObject *py_array_new(tacit_dtype dtype, int32_t rank, const int64_t *dims, py_array *out)
{
    if (!py_arrays_ready())
        return NULL;
    PyObject *shape = py_shape(rank, dims);
    PyObject *type = py.dtypes[dtype];
    PyObject *array =
        shape && type ? PyObject_CallFunctionObjArgs(py.empty, shape, type, NULL) : NULL;
    if (shape && !type)
        PyErr_Format(PyExc_TypeError, "NumPy has no element type for %s", tacit_dtype_text(dtype));
    Py_XDECREF(shape);
    if (array && out && py_array_lend(array, out) != 1) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_RuntimeError, "numpy.empty gave an array that is not dense");
        Py_CLEAR(array);
    }
    return array;
}

/* One str per element; text that is not UTF-8 stays bytes. */
static PyObject *copy_strings(const tacit_tensor *t)
{
    const tacit_string *s = t->data;
    Py_ssize_t n = (Py_ssize_t)(t->bytes / sizeof *s);
    PyObject *list = PyList_New(n);
    for (Py_ssize_t i = 0; list && i < n; i++) {
        Py_ssize_t length = (Py_ssize_t)s[i].length;
        PyObject *text = PyUnicode_DecodeUTF8(s[i].data ? s[i].data : "", length, NULL);
        if (!text && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
            PyErr_Clear();
            text = PyBytes_FromStringAndSize(s[i].data, length);
        }
        if (!text || PyList_SetItem(list, i, text) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *unpack(PyObject *raw, const tacit_tensor *t)
{
    PyObject *shape = py_shape(t->rank, t->dims);
    PyObject *result =
        shape ? PyObject_CallFunction(py.unpack, "OsO", raw, tacit_dtype_text(t->dtype), shape)
              : NULL;
    Py_XDECREF(shape);
    return result;
}

PyObject *py_array_copy(const tacit_tensor *t)
{
    if (!py_arrays_ready())
        return NULL;
    if (t->dtype == TACIT_STRING) {
        PyObject *list = copy_strings(t);
        PyObject *result = list ? unpack(list, t) : NULL;
        Py_XDECREF(list);
        return result;
    }
    py_array lent;
    bool packed = tacit_dtype_bits(t->dtype) < 8;
    int64_t length = (int64_t)t->bytes;
    PyObject *array = packed ? py_array_new(TACIT_U8, 1, &length, &lent)
                             : py_array_new(t->dtype, t->rank, t->dims, &lent);
    if (!array)
        return NULL;
    if (lent.bytes)
        memcpy(lent.data, t->data, lent.bytes);
    py_array_release(&lent);
    if (packed) {
        PyObject *result = unpack(array, t);
        Py_DECREF(array);
        return result;
    }
    return array;
}
