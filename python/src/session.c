/* SPDX-License-Identifier: Apache-2.0
 * Sessions: arrays in, arrays out.
 *
 * A C session serves one thread at a time; a Python session keeps a list of them and gives every
 * call one that is free, so any number of threads may call it. The list is guarded by the GIL,
 * which is released only around tacit_run. */
#include "tacitpy.h"

typedef struct lane {
    tacit_session *session;
    struct lane *next; /* in the list of all lanes */
    bool busy;
    bool profiled;
    unsigned long forks; /* of the process that made it */
    py_call call;        /* under way */
} lane;

typedef struct py_session {
    PyObject_HEAD PyObject *program; /* NULL: closed */
    py_ports ports;
    py_pool *pool; /* of the outputs' arrays */
    lane *lanes;
    bool strict, profiling;
} py_session;

/* --- lanes ------------------------------------------------------------------------------------ */

static void lane_free(lane *l)
{
    /* Workers do not survive a fork, so waiting for them would never end: such a lane is left. */
    if (l->forks == py.forks)
        tacit_session_free(l->session);
    py_call_free(&l->call);
    PyMem_Free(l);
}

static lane *lane_new(py_session *self)
{
    lane *l = PyMem_Calloc(1, sizeof *l);
    if (!l)
        return (lane *)PyErr_NoMemory();
    l->forks = py.forks;
    l->call.strict = self->strict;
    tacit_error err = {0};
    tacit_status status = TACIT_OK;
    bool made = py_call_make(&l->call, &self->ports);
    if (made)
        status = tacit_session_create(((py_program *)self->program)->program, &l->session, &err);
    if (status != TACIT_OK)
        py_raise(status, &err);
    if (!l->session) {
        lane_free(l);
        return NULL;
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
    return l;
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

/* False: exception. Converting arrays may have dropped the last reference of others to the session,
 * so callers hold one. */
static bool run_lane(py_session *self, lane *l, py_call *c, PyObject *out, watching *w)
{
    if (!py_call_outputs(c, &self->ports, out, self->pool))
        return false;
    tacit_error err;
    tacit_status status;
    err.message[0] = 0;
    if (w)
        tacit_session_watch(l->session, watch, w);
    Py_BEGIN_ALLOW_THREADS status =
        tacit_run(l->session, c->tensors_in, c->given, c->tensors_out, self->ports.n_outputs, &err);
    Py_END_ALLOW_THREADS if (w) tacit_session_watch(l->session, NULL, NULL);
    if (w && w->type)
        PyErr_Restore(w->type, w->value, w->traceback);
    else if (status != TACIT_OK)
        py_raise(status, &err);
    return !PyErr_Occurred();
}

static PyObject *run(py_session *self, PyObject *args, PyObject *kwargs, watching *w)
{
    lane *l = lane_take(self);
    if (!l)
        return NULL;
    Py_INCREF(self);
    PyObject *out = NULL, *result = NULL;
    if (py_call_inputs(&l->call, &self->ports, args, kwargs, &out) &&
        run_lane(self, l, &l->call, out, w))
        result = py_call_results(&l->call, &self->ports);
    py_call_end(&l->call, &self->ports);
    l->busy = false;
    Py_DECREF(self);
    return result;
}

bool py_session_run(PyObject *session, py_call *c, PyObject *out)
{
    py_session *self = (py_session *)session;
    lane *l = lane_take(self);
    if (!l)
        return false;
    Py_INCREF(self);
    bool ok = run_lane(self, l, c, out, NULL);
    /* What the session lends for outputs lives until its next run. */
    for (uint32_t i = 0; ok && i < self->ports.n_outputs; i++)
        if (!c->results[i])
            ok = (c->results[i] = py_value_copy(&c->tensors_out[i])) != NULL;
    l->busy = false;
    Py_DECREF(self);
    return ok;
}

const tacit_program *py_session_runs(PyObject *session)
{
    PyObject *program = ((py_session *)session)->program;
    return program ? ((py_program *)program)->program : NULL;
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
    py_ports_free(&self->ports);
    py_pool_close(self->pool);
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
    py_pool_close(self->pool);
    self->pool = NULL;
    Py_CLEAR(self->program);
    Py_RETURN_NONE;
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
    if (!py_ports_of_program(&self->ports, ((py_program *)program)->program) ||
        !(self->pool = py_pool_new(self->ports.outputs, self->ports.n_outputs)) || !lane_new(self))
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
