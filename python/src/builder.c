/* SPDX-License-Identifier: Apache-2.0
 * The builder: values are numbers here; tacit.Graph gives them operators. */
#include "tacitpy.h"

typedef struct py_builder {
    PyObject_HEAD tacit_builder *builder;
    PyObject *keep; /* arrays used in place */
} py_builder;

static PyObject *builder_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"name", NULL};
    const char *name = "model";
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|s:Builder", names, &name))
        return NULL;
    py_builder *self = (py_builder *)py_instance((PyObject *)type);
    tacit_error err = {0};
    if (!self)
        return NULL;
    tacit_status status = tacit_builder_create(name, NULL, &self->builder, &err);
    self->keep = PyList_New(0);
    if (status != TACIT_OK || !self->keep) {
        Py_DECREF(self);
        return status != TACIT_OK ? py_raise(status, &err) : NULL;
    }
    return (PyObject *)self;
}

static void builder_dealloc(PyObject *object)
{
    py_builder *self = (py_builder *)object;
    tacit_builder_free(self->builder);
    Py_XDECREF(self->keep);
    py_instance_free(object);
}

/* A handle, or what went wrong: a failed builder reports from then on. */
static PyObject *value(py_builder *self, tacit_value v)
{
    if (v)
        return PyLong_FromUnsignedLong(v);
    tacit_model *model;
    tacit_error err = {0};
    tacit_status status = tacit_builder_finish(self->builder, &model, &err);
    if (status == TACIT_OK) {
        tacit_model_free(model);
        return py_fail(TACIT_ERR_INTERNAL, "the builder gave no value and no reason");
    }
    return py_raise(status, &err);
}

static bool shape_dim(PyObject *item, int64_t *dim, const char **name, PyObject *texts)
{
    if (PyUnicode_Check(item)) {
        PyObject *bytes;
        *name = py_text(item, &bytes);
        *dim = -1;
        bool ok = *name && PyList_Append(texts, bytes) == 0;
        Py_XDECREF(bytes);
        return ok;
    }
    PyObject *number = PyNumber_Index(item);
    *dim = number ? PyLong_AsLongLong(number) : -1;
    Py_XDECREF(number);
    return number && !PyErr_Occurred();
}

static PyObject *builder_input(PyObject *object, PyObject *args)
{
    py_builder *self = (py_builder *)object;
    const char *name, *dtype_name;
    PyObject *shape;
    if (!PyArg_ParseTuple(args, "szO!:input", &name, &dtype_name, &PyTuple_Type, &shape))
        return NULL;
    if (!dtype_name) /* of a body, whose node will tell */
        return value(self,
                     tacit_builder_input(self->builder, name, TACIT_DTYPE_NONE, -1, NULL, NULL));
    tacit_dtype dtype = py_dtype_named(dtype_name);
    Py_ssize_t rank = PyTuple_Size(shape);
    if (dtype == TACIT_DTYPE_NONE)
        return NULL;
    if (rank > TACIT_MAX_RANK)
        return py_fail(TACIT_ERR_LIMIT, "input '%s' has rank %d: the limit is %d", name, (int)rank,
                       TACIT_MAX_RANK);
    int64_t dims[TACIT_MAX_RANK];
    const char *dim_names[TACIT_MAX_RANK] = {NULL};
    PyObject *texts = PyList_New(0);
    bool ok = texts != NULL;
    for (Py_ssize_t i = 0; ok && i < rank; i++)
        ok = shape_dim(PyTuple_GetItem(shape, i), &dims[i], &dim_names[i], texts);
    PyObject *result = NULL;
    if (ok)
        result = value(
            self, tacit_builder_input(self->builder, name, dtype, (int32_t)rank, dims, dim_names));
    Py_XDECREF(texts);
    return result;
}

static PyObject *builder_constant(PyObject *object, PyObject *args)
{
    py_builder *self = (py_builder *)object;
    const char *name;
    PyObject *array;
    int in_place;
    if (!PyArg_ParseTuple(args, "zOp:constant", &name, &array, &in_place))
        return NULL;
    py_array lent;
    int got = py_array_lend(array, &lent);
    if (got < 0)
        return NULL;
    if (got == 0)
        return py_fail(TACIT_ERR_ARGUMENT, "constant '%s' is not a dense array of a known type",
                       name ? name : "");
    PyObject *result = NULL;
    if (!in_place)
        result = value(self, tacit_builder_constant(self->builder, name, lent.dtype, lent.rank,
                                                    lent.dims, lent.data));
    else if (PyList_Append(self->keep, lent.owner) == 0)
        result = value(self, tacit_builder_weight(self->builder, name, lent.dtype, lent.rank,
                                                  lent.dims, lent.data));
    py_array_release(&lent);
    return result;
}

/* --- nodes ------------------------------------------------------------------------------------ */

static bool attr_ints(tacit_builder *b, const char *name, PyObject *value_list)
{
    PyObject *list = PySequence_List(value_list);
    if (!list)
        return false;
    Py_ssize_t n = PyList_Size(list);
    int64_t *values = PyMem_Malloc(((size_t)n + 1) * sizeof *values);
    bool ok = values != NULL;
    if (!ok)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; ok && i < n; i++) {
        PyObject *number = PyNumber_Index(PyList_GetItem(list, i));
        values[i] = number ? PyLong_AsLongLong(number) : 0;
        Py_XDECREF(number);
        ok = !PyErr_Occurred();
    }
    if (ok)
        tacit_builder_attr_ints(b, name, (uint32_t)n, values);
    PyMem_Free(values);
    Py_DECREF(list);
    return ok;
}

enum { MAX_PORTS = 1024 };

static bool handles_get(PyObject *tuple, tacit_value *out)
{
    Py_ssize_t n = PyTuple_Size(tuple);
    for (Py_ssize_t i = 0; i < n; i++) {
        out[i] = (tacit_value)PyLong_AsUnsignedLong(PyTuple_GetItem(tuple, i));
        if (PyErr_Occurred())
            return false;
    }
    return true;
}

static bool is_model(PyObject *item)
{
    return PyObject_IsInstance(item, py.model_type) == 1;
}

/* (Model, handles of outer values). */
static bool attr_graph(py_builder *self, const char *name, PyObject *pair)
{
    PyObject *body = PyTuple_GetItem(pair, 0), *outer = PyTuple_GetItem(pair, 1);
    tacit_value handles[MAX_PORTS];
    tacit_model *model = py_model_of(body);
    if (!model)
        return false;
    if (!PyTuple_Check(outer) || PyTuple_Size(outer) > MAX_PORTS) {
        py_fail(TACIT_ERR_LIMIT, "attribute '%s': at most %d outer values, in a tuple", name,
                MAX_PORTS);
        return false;
    }
    /* The body's weights may lie in arrays. */
    if (!handles_get(outer, handles) || PyList_Append(self->keep, body) < 0)
        return false;
    tacit_builder_attr_graph(self->builder, name, model, (uint32_t)PyTuple_Size(outer), handles);
    return true;
}

static bool set_attr(py_builder *self, PyObject *key, PyObject *item)
{
    tacit_builder *b = self->builder;
    PyObject *key_bytes;
    const char *name = py_text(key, &key_bytes);
    bool ok = name != NULL;
    if (ok && PyUnicode_Check(item)) {
        PyObject *bytes;
        const char *text = py_text(item, &bytes);
        ok = text != NULL;
        if (ok)
            tacit_builder_attr_string(b, name, text);
        Py_XDECREF(bytes);
    } else if (ok && PyFloat_Check(item)) {
        tacit_builder_attr_float(b, name, PyFloat_AsDouble(item));
    } else if (ok && PyTuple_Check(item) && PyTuple_Size(item) == 2 &&
               is_model(PyTuple_GetItem(item, 0))) {
        ok = attr_graph(self, name, item);
    } else if (ok && (PyList_Check(item) || PyTuple_Check(item))) {
        ok = attr_ints(b, name, item);
    } else if (ok) {
        PyObject *number = PyNumber_Index(item);
        int64_t i = number ? PyLong_AsLongLong(number) : 0;
        Py_XDECREF(number);
        ok = !PyErr_Occurred();
        if (ok)
            tacit_builder_attr_int(b, name, i);
    }
    Py_XDECREF(key_bytes);
    return ok;
}

static PyObject *builder_node(PyObject *object, PyObject *args)
{
    py_builder *self = (py_builder *)object;
    const char *op;
    PyObject *inputs, *attrs;
    unsigned n_outputs;
    if (!PyArg_ParseTuple(args, "sO!IO!:node", &op, &PyTuple_Type, &inputs, &n_outputs,
                          &PyDict_Type, &attrs))
        return NULL;
    Py_ssize_t n = PyTuple_Size(inputs);
    if (n > MAX_PORTS || n_outputs == 0 || n_outputs > MAX_PORTS)
        return py_fail(TACIT_ERR_LIMIT, "%s: at most %d inputs and outputs", op, MAX_PORTS);
    tacit_value in[MAX_PORTS], out[MAX_PORTS];
    if (!handles_get(inputs, in))
        return NULL;
    tacit_value first = tacit_builder_node(self->builder, op, (uint32_t)n, in, n_outputs, out);
    if (!first)
        return value(self, 0);
    PyObject *key, *item;
    Py_ssize_t at = 0;
    while (PyDict_Next(attrs, &at, &key, &item))
        if (!set_attr(self, key, item))
            return NULL;
    PyObject *list = PyList_New(n_outputs);
    for (unsigned i = 0; list && i < n_outputs; i++) {
        PyObject *number = PyLong_FromUnsignedLong(out[i]);
        if (!number || PyList_SetItem(list, i, number) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *builder_output(PyObject *object, PyObject *args)
{
    const char *name;
    unsigned v;
    if (!PyArg_ParseTuple(args, "sI:output", &name, &v))
        return NULL;
    tacit_builder_output(((py_builder *)object)->builder, name, v);
    Py_RETURN_NONE;
}

static PyObject *builder_finish(PyObject *object, PyObject *unused)
{
    (void)unused;
    py_builder *self = (py_builder *)object;
    tacit_model *model;
    tacit_error err = {0};
    PyObject *fresh = PyList_New(0);
    if (!fresh)
        return NULL;
    tacit_status status = tacit_builder_finish(self->builder, &model, &err);
    if (status != TACIT_OK) {
        Py_DECREF(fresh);
        return py_raise(status, &err);
    }
    PyObject *result = py_model_wrap(model, self->keep);
    Py_DECREF(self->keep);
    self->keep = fresh;
    return result;
}

static PyMethodDef methods[] = {
    {"input", builder_input, METH_VARARGS, NULL},
    {"constant", builder_constant, METH_VARARGS, NULL},
    {"node", builder_node, METH_VARARGS, NULL},
    {"output", builder_output, METH_VARARGS, NULL},
    {"finish", builder_finish, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

bool py_builder_ready(PyObject *module)
{
    static PyType_Slot slots[] = {{Py_tp_new, builder_new},
                                  {Py_tp_dealloc, builder_dealloc},
                                  {Py_tp_methods, methods},
                                  {0, NULL}};
    static PyType_Spec spec = {"tacit._tacit.Builder", sizeof(py_builder), 0, Py_TPFLAGS_DEFAULT,
                               slots};
    PyObject *type = PyType_FromSpec(&spec);
    py.builder_type = type;
    Py_XINCREF(type);
    return type && PyModule_AddObject(module, "Builder", type) == 0;
}
