/* SPDX-License-Identifier: Apache-2.0
 * Sessions: arrays in, arrays out.
 *
 * A C session serves one thread at a time; a Python session keeps a list of them and gives every
 * call one that is free, so any number of threads may call it. The list is guarded by the GIL,
 * which is released only around tacit_run. */
#include <stdio.h>
#include <string.h>

#include "tacitpy.h"

typedef struct lane {
    tacit_session *session;
    struct lane *next; /* in the list of all lanes */
    bool busy;
    bool profiled;
    unsigned long forks; /* of the process that made it */
    py_array *in, *out;  /* arrays of the call under way */
    PyObject **results;
    PyObject **keep; /* lists of what stands behind converted inputs */
    tacit_tensor *tensors_in, *tensors_out;
    uint32_t given; /* inputs so far */
} lane;

typedef struct py_session {
    PyObject_HEAD PyObject *program; /* NULL: closed */
    tacit_port *inputs, *outputs;
    uint32_t n_inputs, n_outputs;
    PyObject *index;       /* {input name: position} */
    PyObject **empty_args; /* numpy.empty's arguments, by output; NULL: known after the run */
    lane *lanes;
    bool strict, profiling;
} py_session;

/* --- lanes ------------------------------------------------------------------------------------ */

static void lane_free(lane *l)
{
    /* Workers do not survive a fork, so waiting for them would never end: such a lane is left. */
    if (l->forks == py.forks)
        tacit_session_free(l->session);
    PyMem_Free(l->in);
    PyMem_Free(l->out);
    PyMem_Free(l->results);
    PyMem_Free(l->keep);
    PyMem_Free(l->tensors_in);
    PyMem_Free(l->tensors_out);
    PyMem_Free(l);
}

static lane *lane_new(py_session *self)
{
    lane *l = PyMem_Calloc(1, sizeof *l);
    if (!l)
        return (lane *)PyErr_NoMemory();
    size_t n = self->n_inputs + 1u, m = self->n_outputs + 1u;
    l->forks = py.forks;
    l->in = PyMem_Calloc(n, sizeof *l->in);
    l->out = PyMem_Calloc(m, sizeof *l->out);
    l->results = PyMem_Calloc(m, sizeof(PyObject *));
    l->keep = PyMem_Calloc(n, sizeof(PyObject *));
    l->tensors_in = PyMem_Calloc(n, sizeof *l->tensors_in);
    l->tensors_out = PyMem_Calloc(m, sizeof *l->tensors_out);
    tacit_error err = {0};
    tacit_status status = TACIT_ERR_MEMORY;
    if (l->in && l->out && l->results && l->keep && l->tensors_in && l->tensors_out)
        status = tacit_session_create(((py_program *)self->program)->program, &l->session, &err);
    if (status != TACIT_OK) {
        lane_free(l);
        return (lane *)py_raise(status, &err);
    }
    l->next = self->lanes;
    self->lanes = l;
    return l;
}

static lane *lane_take(py_session *self)
{
    if (!self->program)
        return (lane *)py_fail(TACIT_ERR_STATE, "the session is closed");
    lane *l = self->lanes;
    while (l && (l->busy || l->forks != py.forks))
        l = l->next;
    if (!l && !(l = lane_new(self)))
        return NULL;
    if (l->profiled != self->profiling) {
        tacit_session_profile(l->session, self->profiling);
        l->profiled = self->profiling;
    }
    l->busy = true;
    l->given = 0;
    return l;
}

/* What the call under way still holds. */
static void lane_give(py_session *self, lane *l)
{
    for (uint32_t i = 0; i < self->n_inputs; i++) {
        py_array_release(&l->in[i]);
        Py_CLEAR(l->keep[i]);
    }
    for (uint32_t i = 0; i < self->n_outputs; i++) {
        py_array_release(&l->out[i]);
        Py_CLEAR(l->results[i]);
    }
    l->busy = false;
}

/* --- inputs ----------------------------------------------------------------------------------- */

static bool bind_input(py_session *self, lane *l, uint32_t i, PyObject *object)
{
    const tacit_port *port = &self->inputs[i];
    py_array *a = &l->in[i];
    if (a->owner || l->keep[i]) {
        py_fail(TACIT_ERR_ARGUMENT, "input '%s' is given twice", port->name);
        return false;
    }
    tacit_tensor *t = &l->tensors_in[l->given++];
    *t = (tacit_tensor){.name = port->name};
    int got = port->kind == TACIT_KIND_TENSOR ? py_array_lend(object, a) : 0;
    if (got == 0 && !(l->keep[i] = PyList_New(0)))
        return false;
    if (port->kind != TACIT_KIND_TENSOR)
        return py_value_in(object, port, self->strict, l->keep[i], t);
    if (got < 0 || (got == 0 && !py_array_convert(object, port, self->strict, l->keep[i], a)))
        return false;
    py_array_tensor(a, t);
    return true;
}

static bool no_input(const py_session *self, PyObject *key)
{
    PyObject *bytes;
    const char *name = py_text(key, &bytes);
    char list[512] = "none";
    size_t used = 0;
    for (uint32_t i = 0; i < self->n_inputs && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s'%s'", i ? ", " : "",
                                 self->inputs[i].name);
    if (name)
        py_fail(TACIT_ERR_ARGUMENT, "there is no input named '%s'; the model has %s", name, list);
    Py_XDECREF(bytes);
    return false;
}

static bool bind_named(py_session *self, lane *l, PyObject *mapping, PyObject **out)
{
    PyObject *key, *item;
    Py_ssize_t at = 0;
    while (PyDict_Next(mapping, &at, &key, &item)) {
        PyObject *position = PyDict_GetItemWithError(self->index, key);
        if (!position && PyErr_Occurred())
            return false;
        if (!position && out && PyUnicode_Check(key) &&
            PyUnicode_CompareWithASCIIString(key, "out") == 0) {
            *out = item;
            continue;
        }
        if (!position)
            return no_input(self, key);
        /* Converting may run any Python code, and the mapping may be the caller's. */
        Py_INCREF(item);
        bool ok = bind_input(self, l, (uint32_t)PyLong_AsUnsignedLong(position), item);
        Py_DECREF(item);
        if (!ok)
            return false;
    }
    return true;
}

static bool bind_inputs(py_session *self, lane *l, PyObject *args, PyObject *kwargs, PyObject **out)
{
    Py_ssize_t n = PyTuple_Size(args);
    PyObject *first = n == 1 ? PyTuple_GetItem(args, 0) : NULL;
    if (first && PyDict_Check(first)) {
        if (!bind_named(self, l, first, NULL))
            return false;
    } else {
        if (n > self->n_inputs) {
            py_fail(TACIT_ERR_ARGUMENT, "%d inputs are given, but the model has %u", (int)n,
                    self->n_inputs);
            return false;
        }
        for (Py_ssize_t i = 0; i < n; i++)
            if (!bind_input(self, l, (uint32_t)i, PyTuple_GetItem(args, i)))
                return false;
    }
    return !kwargs || bind_named(self, l, kwargs, out);
}

/* --- outputs ---------------------------------------------------------------------------------- */

static bool bind_given_output(py_session *self, lane *l, uint32_t i, PyObject *array)
{
    const char *name = self->outputs[i].name;
    int got = py_array_lend(array, &l->out[i]);
    if (got == 0)
        py_fail(TACIT_ERR_ARGUMENT, "the array for output '%s' is not dense (C order, aligned)",
                name);
    else if (got == 1 && !l->out[i].writable)
        py_fail(TACIT_ERR_ARGUMENT, "the array for output '%s' is read-only", name);
    if (got != 1 || !l->out[i].writable)
        return false;
    Py_INCREF(array);
    l->results[i] = array;
    return true;
}

static bool bind_outputs(py_session *self, lane *l, PyObject *out)
{
    bool many = out && (PyTuple_Check(out) || PyList_Check(out));
    if (out &&
        (many ? PySequence_Size(out) != (Py_ssize_t)self->n_outputs : self->n_outputs != 1)) {
        py_fail(TACIT_ERR_ARGUMENT, "out must be %u arrays, in the outputs' order",
                self->n_outputs);
        return false;
    }
    for (uint32_t i = 0; i < self->n_outputs; i++) {
        tacit_tensor *t = &l->tensors_out[i];
        *t = (tacit_tensor){0};
        if (out) {
            PyObject *array = many ? PySequence_GetItem(out, i) : out;
            bool ok = array && bind_given_output(self, l, i, array);
            if (many)
                Py_XDECREF(array);
            if (!ok)
                return false;
        } else if (self->empty_args[i]) {
            l->results[i] = PyObject_Call(py.empty, self->empty_args[i], NULL);
            if (!l->results[i] || py_array_lend(l->results[i], &l->out[i]) != 1)
                return false;
        } else {
            continue;
        }
        py_array_tensor(&l->out[i], t);
    }
    return true;
}

/* One array, or a tuple of them. */
static PyObject *take_results(py_session *self, lane *l)
{
    for (uint32_t i = 0; i < self->n_outputs; i++)
        if (!l->results[i] && !(l->results[i] = py_value_copy(&l->tensors_out[i])))
            return NULL;
    if (self->n_outputs == 1) {
        PyObject *only = l->results[0];
        l->results[0] = NULL;
        return only;
    }
    PyObject *all = PyTuple_New(self->n_outputs);
    for (uint32_t i = 0; all && i < self->n_outputs; i++) {
        if (PyTuple_SetItem(all, i, l->results[i]) < 0)
            Py_CLEAR(all);
        l->results[i] = NULL;
    }
    return all;
}

/* --- running ---------------------------------------------------------------------------------- */

/* A watched run: the first exception in the callback is kept and raised after the run. */
typedef struct watching {
    PyObject *callback, *type, *value, *traceback;
} watching;

static void watch(void *context, const char *node, const char *op, const char *value,
                  const tacit_tensor *tensor)
{
    watching *w = context;
    PyGILState_STATE gil = PyGILState_Ensure();
    if (!w->type) {
        PyObject *array = py_array_copy(tensor);
        PyObject *result = array ? PyObject_CallFunction(w->callback, "sssO", node ? node : "",
                                                         op ? op : "", value ? value : "", array)
                                 : NULL;
        if (!result)
            PyErr_Fetch(&w->type, &w->value, &w->traceback);
        Py_XDECREF(result);
        Py_XDECREF(array);
    }
    PyGILState_Release(gil);
}

static PyObject *run(py_session *self, PyObject *args, PyObject *kwargs, watching *w)
{
    lane *l = lane_take(self);
    if (!l)
        return NULL;
    /* Arrays are converted by Python code, which may drop the last reference to this session. */
    Py_INCREF(self);
    PyObject *out = NULL, *result = NULL;
    if (bind_inputs(self, l, args, kwargs, &out) && bind_outputs(self, l, out)) {
        tacit_error err;
        tacit_status status;
        err.message[0] = 0;
        if (w)
            tacit_session_watch(l->session, watch, w);
        Py_BEGIN_ALLOW_THREADS status =
            tacit_run(l->session, l->tensors_in, l->given, l->tensors_out, self->n_outputs, &err);
        Py_END_ALLOW_THREADS if (w) tacit_session_watch(l->session, NULL, NULL);
        if (w && w->type)
            PyErr_Restore(w->type, w->value, w->traceback);
        else if (status != TACIT_OK)
            py_raise(status, &err);
        else
            result = take_results(self, l);
    }
    lane_give(self, l);
    Py_DECREF(self);
    return result;
}

static PyObject *session_run(PyObject *self, PyObject *args, PyObject *kwargs)
{
    return run((py_session *)self, args, kwargs, NULL);
}

static PyObject *session_watch(PyObject *self, PyObject *args, PyObject *kwargs)
{
    Py_ssize_t n = PyTuple_Size(args);
    watching w = {.callback = n > 0 ? PyTuple_GetItem(args, 0) : NULL};
    if (!w.callback || !PyCallable_Check(w.callback)) {
        PyErr_SetString(PyExc_TypeError, "watch needs a callable first");
        return NULL;
    }
    PyObject *rest = PyTuple_GetSlice(args, 1, n);
    PyObject *result = rest ? run((py_session *)self, rest, kwargs, &w) : NULL;
    Py_XDECREF(rest);
    return result;
}

/* --- profile ---------------------------------------------------------------------------------- */

static PyObject *session_profile(PyObject *object, PyObject *args)
{
    py_session *self = (py_session *)object;
    int on = 1;
    if (!PyArg_ParseTuple(args, "|p:profile", &on))
        return NULL;
    self->profiling = on;
    Py_RETURN_NONE;
}

static PyObject *profile_row(const py_session *self, const lane *first, uint32_t i)
{
    tacit_profile_row sum = {0};
    for (const lane *l = first; l; l = l->next) {
        tacit_profile_row row;
        if (l->busy || l->forks != py.forks ||
            tacit_session_profile_row(l->session, i, &row) != TACIT_OK)
            continue;
        row.calls += sum.calls;
        row.nanoseconds += sum.nanoseconds;
        sum = row;
    }
    (void)self;
    return Py_BuildValue("{szszszsKsKsKsd}", "node", sum.node, "op", sum.op, "kernel", sum.kernel,
                         "calls", sum.calls, "nanoseconds", sum.nanoseconds, "bytes", sum.bytes,
                         "flops", sum.flops);
}

static PyObject *session_profile_rows(PyObject *object, PyObject *unused)
{
    (void)unused;
    py_session *self = (py_session *)object;
    uint32_t n = 0;
    for (const lane *l = self->lanes; l; l = l->next)
        if (!l->busy && l->forks == py.forks && tacit_session_profile_count(l->session) > n)
            n = tacit_session_profile_count(l->session);
    PyObject *list = PyList_New(n);
    for (uint32_t i = 0; list && i < n; i++) {
        PyObject *row = profile_row(self, self->lanes, i);
        if (!row || PyList_SetItem(list, i, row) < 0)
            Py_CLEAR(list);
    }
    return list;
}

/* --- life ------------------------------------------------------------------------------------- */

static void free_lanes(py_session *self)
{
    while (self->lanes) {
        lane *l = self->lanes;
        self->lanes = l->next;
        lane_free(l);
    }
}

static void session_dealloc(PyObject *object)
{
    py_session *self = (py_session *)object;
    free_lanes(self);
    for (uint32_t i = 0; self->empty_args && i < self->n_outputs; i++)
        Py_XDECREF(self->empty_args[i]);
    PyMem_Free(self->empty_args);
    PyMem_Free(self->inputs);
    PyMem_Free(self->outputs);
    Py_XDECREF(self->index);
    Py_XDECREF(self->program);
    py_instance_free(object);
}

static PyObject *session_close(PyObject *object, PyObject *unused)
{
    (void)unused;
    py_session *self = (py_session *)object;
    for (const lane *l = self->lanes; l; l = l->next)
        if (l->busy && l->forks == py.forks)
            return py_fail(TACIT_ERR_STATE, "the session is running in another thread");
    free_lanes(self);
    Py_CLEAR(self->program);
    Py_RETURN_NONE;
}

static bool fill_port(py_session *self, uint32_t i, const tacit_port *port)
{
    int64_t known = port->rank;
    for (int32_t k = 0; k < port->rank && known >= 0; k++)
        known = port->dims[k] < 0 ? -1 : known;
    if (known < 0 || port->kind != TACIT_KIND_TENSOR || port->dtype == TACIT_STRING ||
        tacit_dtype_bits(port->dtype) < 8 || !py.dtypes[port->dtype])
        return true;
    PyObject *shape = PyTuple_New(port->rank);
    for (int32_t k = 0; shape && k < port->rank; k++) {
        PyObject *dim = PyLong_FromLongLong(port->dims[k]);
        if (!dim || PyTuple_SetItem(shape, k, dim) < 0)
            Py_CLEAR(shape);
    }
    self->empty_args[i] = shape ? Py_BuildValue("(NO)", shape, py.dtypes[port->dtype]) : NULL;
    return self->empty_args[i] != NULL;
}

static bool session_fill(py_session *self, const tacit_program *program)
{
    self->n_inputs = tacit_program_input_count(program);
    self->n_outputs = tacit_program_output_count(program);
    self->inputs = PyMem_Calloc(self->n_inputs + 1u, sizeof *self->inputs);
    self->outputs = PyMem_Calloc(self->n_outputs + 1u, sizeof *self->outputs);
    self->empty_args = PyMem_Calloc(self->n_outputs + 1u, sizeof *self->empty_args);
    self->index = PyDict_New();
    if (!self->inputs || !self->outputs || !self->empty_args || !self->index)
        return PyErr_NoMemory() != NULL;
    for (uint32_t i = 0; i < self->n_inputs; i++) {
        tacit_status status = tacit_program_input(program, i, &self->inputs[i]);
        if (status != TACIT_OK)
            return py_raise(status, NULL) != NULL;
        PyObject *position = PyLong_FromUnsignedLong(i);
        int put = position ? PyDict_SetItemString(self->index, self->inputs[i].name, position) : -1;
        Py_XDECREF(position);
        if (put < 0)
            return false;
    }
    for (uint32_t i = 0; i < self->n_outputs; i++) {
        tacit_status status = tacit_program_output(program, i, &self->outputs[i]);
        if (status != TACIT_OK)
            return py_raise(status, NULL) != NULL;
        if (!fill_port(self, i, &self->outputs[i]))
            return false;
    }
    return true;
}

PyObject *py_session_new(PyObject *program, bool strict)
{
    py_session *self = py_arrays_ready() ? (py_session *)py_instance(py.session_type) : NULL;
    if (!self)
        return NULL;
    Py_INCREF(program);
    self->program = program;
    self->strict = strict;
    /* The first lane is made at once, so that errors show where the session is opened. */
    if (!session_fill(self, ((py_program *)program)->program) || !lane_new(self))
        Py_CLEAR(self);
    return (PyObject *)self;
}

static PyObject *session_program(PyObject *object, void *unused)
{
    (void)unused;
    PyObject *program = ((py_session *)object)->program;
    if (!program)
        return py_fail(TACIT_ERR_STATE, "the session is closed");
    Py_INCREF(program);
    return program;
}

#define KEYWORDS(function) (PyCFunction)(void (*)(void))(function), METH_VARARGS | METH_KEYWORDS
static PyMethodDef methods[] = {
    {"run", KEYWORDS(session_run),
     "run(*arrays, out=None, **arrays): one array, or a tuple of them in the outputs' order."},
    {"watch", KEYWORDS(session_watch),
     "watch(callback, *arrays, **arrays): a run that calls callback(node, op, value, array)."},
    {"profile", session_profile, METH_VARARGS, "Switches profiling on (anew) or off."},
    {"profile_rows", session_profile_rows, METH_NOARGS, "One dict per kernel call of the program."},
    {"close", session_close, METH_NOARGS, "Gives the memory back; later runs raise."},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef members[] = {
    {"program", session_program, NULL, "The program this runs.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

bool py_session_ready(PyObject *module)
{
    static PyType_Slot slots[] = {{Py_tp_dealloc, session_dealloc},
                                  {Py_tp_methods, methods},
                                  {Py_tp_getset, members},
                                  {Py_tp_call, session_run},
                                  {0, NULL}};
    static PyType_Spec spec = {"tacit._tacit.Session", sizeof(py_session), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
    PyObject *type = PyType_FromSpec(&spec);
    py.session_type = type;
    Py_XINCREF(type);
    return type && PyModule_AddObject(module, "Session", type) == 0;
}
