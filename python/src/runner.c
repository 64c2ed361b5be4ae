/* SPDX-License-Identifier: Apache-2.0
 * Runners: a model called with arrays of any sizes.
 *
 * The C runner finds (or compiles) the program for the sizes at hand; a session of the program runs
 * it, so that calls from several threads run at the same time and write into the results' arrays.
 * With buckets the C runner runs the program itself, as it pads inputs and cuts outputs: one call
 * at a time then. A lock guards the C runner: compiling takes long, and the GIL is released for it.
 */
#include "tacitpy.h"

enum { CAPACITY = 8 };

typedef struct served {
    PyObject *session;
    uint64_t last_used;
} served;

typedef struct spare_call {
    py_call call;
    struct spare_call *next;
} spare_call;

typedef struct py_runner {
    PyObject_HEAD tacit_runner *runner; /* NULL: closed */
    PyObject *model;
    py_ports ports;
    PyThread_type_lock lock;
    unsigned long holder; /* the thread that has the lock; 0: none */
    unsigned long forks;  /* of the process that last used the lock */
    unsigned long born;   /* of the process that made it */
    served *served;
    uint32_t capacity;
    uint64_t calls;
    spare_call *spare;
    uint32_t running;
    bool strict, padding, profiling;
} py_runner;

/* --- the lock --------------------------------------------------------------------------------- */

static bool lock(py_runner *self)
{
    unsigned long me = PyThread_get_thread_ident();
    bool have = PyThread_acquire_lock(self->lock, NOWAIT_LOCK);
    if (!have && self->forks != py.forks) {
        py_fail(TACIT_ERR_STATE, "the process was forked while the runner was compiling");
        return false;
    }
    if (!have && self->holder == me) { /* by a destructor, say */
        py_fail(TACIT_ERR_STATE, "the runner is called from within its own run");
        return false;
    }
    if (!have) {
        Py_BEGIN_ALLOW_THREADS PyThread_acquire_lock(self->lock, WAIT_LOCK);
        Py_END_ALLOW_THREADS
    }
    self->forks = py.forks;
    self->holder = me;
    return true;
}

static void unlock(py_runner *self)
{
    self->holder = 0;
    PyThread_release_lock(self->lock);
}

/* --- sessions --------------------------------------------------------------------------------- */

/* A new reference; NULL: none runs this program yet (no exception). */
static PyObject *find_served(py_runner *self, const tacit_program *program)
{
    for (uint32_t i = 0; i < self->capacity; i++) {
        served *s = &self->served[i];
        if (s->session && py_session_runs(s->session) == program) {
            s->last_used = ++self->calls;
            Py_INCREF(s->session);
            return s->session;
        }
    }
    return NULL;
}

static void serve(py_runner *self, PyObject *session)
{
    served *oldest = &self->served[0];
    for (uint32_t i = 1; i < self->capacity; i++)
        if (self->served[i].last_used < oldest->last_used)
            oldest = &self->served[i];
    PyObject *old = oldest->session;
    Py_INCREF(session);
    *oldest = (served){session, ++self->calls};
    Py_XDECREF(old);
}

static bool set_profile(PyObject *session, bool on)
{
    PyObject *done = PyObject_CallMethod(session, "profile", "i", on);
    Py_XDECREF(done);
    return done != NULL;
}

/* Steals the program. A session of it: the one there is, else a new one. */
static PyObject *session_for(py_runner *self, tacit_program *program)
{
    PyObject *session = find_served(self, program);
    if (session) {
        tacit_program_free(program);
        return session;
    }
    const tacit_program *same = program;
    PyObject *wrapped = py_program_wrap(program, self->model);
    session = wrapped ? py_session_new(wrapped, self->strict) : NULL;
    Py_XDECREF(wrapped);
    if (session && self->profiling && !set_profile(session, true))
        Py_CLEAR(session);
    if (!session)
        return NULL;
    PyObject *other = find_served(self, same); /* of a thread that was faster */
    if (other) {
        Py_DECREF(session);
        return other;
    }
    serve(self, session);
    return session;
}

static PyObject *find_session(py_runner *self, const tacit_tensor *inputs, uint32_t n)
{
    tacit_program *program = NULL;
    tacit_error err = {0};
    tacit_status status;
    if (!lock(self))
        return NULL;
    Py_BEGIN_ALLOW_THREADS status = tacit_runner_program(self->runner, inputs, n, &program, &err);
    Py_END_ALLOW_THREADS unlock(self);
    return status == TACIT_OK ? session_for(self, program) : py_raise(status, &err);
}

/* --- running ---------------------------------------------------------------------------------- */

static spare_call *call_take(py_runner *self)
{
    if (!self->runner)
        return (spare_call *)py_fail(TACIT_ERR_STATE, "the runner is closed");
    spare_call *c = self->spare;
    if (c) {
        self->spare = c->next;
    } else {
        c = PyMem_Calloc(1, sizeof *c);
        if (!c)
            return (spare_call *)PyErr_NoMemory();
        c->call.strict = self->strict;
        if (!py_call_make(&c->call, &self->ports)) {
            PyMem_Free(c);
            return NULL;
        }
    }
    self->running++;
    return c;
}

static void call_give(py_runner *self, spare_call *c)
{
    py_call_end(&c->call, &self->ports);
    c->next = self->spare;
    self->spare = c;
    self->running--;
}

static bool run_padded(py_runner *self, py_call *c, PyObject *out)
{
    if (!py_call_outputs(c, &self->ports, out, NULL) || !lock(self))
        return false;
    tacit_error err = {0};
    tacit_status status;
    Py_BEGIN_ALLOW_THREADS status = tacit_runner_run(self->runner, c->tensors_in, c->given,
                                                     c->tensors_out, self->ports.n_outputs, &err);
    Py_END_ALLOW_THREADS bool ok = status == TACIT_OK;
    /* What the runner lends for outputs lives until its next run. */
    for (uint32_t i = 0; ok && i < self->ports.n_outputs; i++)
        if (!c->results[i])
            ok = (c->results[i] = py_value_copy(&c->tensors_out[i])) != NULL;
    unlock(self);
    if (status != TACIT_OK)
        py_raise(status, &err);
    return ok;
}

static bool run_call(py_runner *self, py_call *c, PyObject *args, PyObject *kwargs, PyObject *out)
{
    if (!py_call_inputs(c, &self->ports, args, kwargs, &out))
        return false;
    if (self->padding)
        return run_padded(self, c, out);
    PyObject *session = find_session(self, c->tensors_in, c->given);
    bool ok = session && py_session_run(session, c, out);
    Py_XDECREF(session);
    return ok;
}

static PyObject *runner_run(PyObject *object, PyObject *args, PyObject *kwargs)
{
    py_runner *self = (py_runner *)object;
    spare_call *c = call_take(self);
    if (!c)
        return NULL;
    Py_INCREF(self);
    PyObject *result = NULL;
    if (run_call(self, &c->call, args, kwargs, NULL))
        result = py_call_results(&c->call, &self->ports);
    call_give(self, c);
    Py_DECREF(self);
    return result;
}

/* (mapping, arrays for the outputs or None): the results as a list. */
static PyObject *runner_results(PyObject *object, PyObject *args)
{
    py_runner *self = (py_runner *)object;
    PyObject *mapping, *out;
    if (!PyArg_ParseTuple(args, "O!O:results", &PyDict_Type, &mapping, &out))
        return NULL;
    spare_call *c = call_take(self);
    if (!c)
        return NULL;
    Py_INCREF(self);
    PyObject *inputs = PyTuple_New(0), *list = NULL;
    if (inputs && run_call(self, &c->call, inputs, mapping, out == Py_None ? NULL : out))
        list = PyList_New(self->ports.n_outputs);
    for (uint32_t i = 0; list && i < self->ports.n_outputs; i++) {
        PyObject *one = py_call_result(&c->call, i);
        if (!one || PyList_SetItem(list, i, one) < 0)
            Py_CLEAR(list);
    }
    Py_XDECREF(inputs);
    call_give(self, c);
    Py_DECREF(self);
    return list;
}

/* --- profile ---------------------------------------------------------------------------------- */

static PyObject *runner_profile(PyObject *object, PyObject *args)
{
    py_runner *self = (py_runner *)object;
    int on = 1;
    if (!PyArg_ParseTuple(args, "|p:profile", &on))
        return NULL;
    self->profiling = on;
    for (uint32_t i = 0; self->served && i < self->capacity; i++)
        if (self->served[i].session && !set_profile(self->served[i].session, on))
            return NULL;
    Py_RETURN_NONE;
}

/* The sessions there are, the one used last first. */
static PyObject *runner_sessions(PyObject *object, void *unused)
{
    (void)unused;
    py_runner *self = (py_runner *)object;
    PyObject *list = PyList_New(0);
    uint64_t before = UINT64_MAX;
    while (list && self->served) {
        const served *newest = NULL;
        for (uint32_t i = 0; i < self->capacity; i++) {
            const served *s = &self->served[i];
            if (s->session && s->last_used < before &&
                (!newest || s->last_used > newest->last_used))
                newest = s;
        }
        if (!newest)
            break;
        before = newest->last_used;
        if (PyList_Append(list, newest->session) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *runner_compiled(PyObject *object, void *unused)
{
    (void)unused;
    py_runner *self = (py_runner *)object;
    if (!self->runner)
        return py_fail(TACIT_ERR_STATE, "the runner is closed");
    return PyLong_FromUnsignedLongLong(tacit_runner_compiled(self->runner));
}

static PyObject *runner_model(PyObject *object, void *unused)
{
    (void)unused;
    PyObject *model = ((py_runner *)object)->model;
    if (!model)
        return py_fail(TACIT_ERR_STATE, "the runner is closed");
    Py_INCREF(model);
    return model;
}

/* --- life ------------------------------------------------------------------------------------- */

static void clear(py_runner *self)
{
    for (uint32_t i = 0; self->served && i < self->capacity; i++)
        Py_CLEAR(self->served[i].session);
    while (self->spare) {
        spare_call *c = self->spare;
        self->spare = c->next;
        py_call_free(&c->call);
        PyMem_Free(c);
    }
    /* Workers do not survive a fork, so waiting for them would never end: it is left then. */
    if (self->born == py.forks)
        tacit_runner_free(self->runner);
    self->runner = NULL;
    py_ports_free(&self->ports);
    Py_CLEAR(self->model);
}

static void runner_dealloc(PyObject *object)
{
    py_runner *self = (py_runner *)object;
    clear(self);
    PyMem_Free(self->served);
    if (self->lock)
        PyThread_free_lock(self->lock);
    py_instance_free(object);
}

static PyObject *runner_close(PyObject *object, PyObject *unused)
{
    (void)unused;
    py_runner *self = (py_runner *)object;
    if (self->running && self->forks == py.forks)
        return py_fail(TACIT_ERR_STATE, "the runner is running in another thread");
    clear(self);
    Py_RETURN_NONE;
}

static bool open_runner(py_runner *self, const py_options *options, const py_dims *buckets)
{
    tacit_bucket *list = PyMem_Calloc(buckets->count + 1u, sizeof *list);
    if (!list)
        return PyErr_NoMemory() != NULL;
    for (uint32_t i = 0; i < buckets->count; i++)
        list[i] = (tacit_bucket){buckets->dims[i].name, buckets->dims[i].value};
    tacit_runner_options o = {.compile = options->compile,
                              .capacity = self->capacity,
                              .buckets = list,
                              .n_buckets = buckets->count};
    tacit_error err = {0};
    tacit_status status = tacit_runner_create(py_model_of(self->model), &o, &self->runner, &err);
    PyMem_Free(list);
    if (status != TACIT_OK)
        py_raise(status, &err);
    return status == TACIT_OK;
}

/* Whether some input's size is still open; without one the program is compiled at once. */
static bool has_symbols(const py_runner *self, const py_options *options)
{
    for (uint32_t i = 0; i < self->ports.n_inputs; i++) {
        const tacit_port *port = &self->ports.inputs[i];
        for (int32_t k = 0; k < port->rank && port->kind == TACIT_KIND_TENSOR; k++)
            if (port->dims[k] < 0 && port->dim_names[k] &&
                !py_dims_has(&options->dims, port->dim_names[k]))
                return true;
    }
    return false;
}

static bool fill(py_runner *self, const py_options *options, const py_dims *buckets)
{
    self->lock = PyThread_allocate_lock();
    self->served = PyMem_Calloc(self->capacity, sizeof *self->served);
    if (!self->lock || !self->served)
        return PyErr_NoMemory() != NULL;
    if (!py_ports_of_model(&self->ports, py_model_of(self->model)) ||
        !open_runner(self, options, buckets))
        return false;
    if (self->padding || has_symbols(self, options))
        return true;
    PyObject *session = find_session(self, NULL, 0);
    Py_XDECREF(session);
    return session != NULL;
}

PyObject *py_model_runner(PyObject *model, PyObject *args)
{
    PyObject *given, *multiples;
    unsigned capacity;
    int strict;
    if (!py_model_of(model) || !py_arrays_ready() ||
        !PyArg_ParseTuple(args, "O!IOp:runner", &PyTuple_Type, &given, &capacity, &multiples,
                          &strict))
        return NULL;
    if (capacity > 4096)
        return py_fail(TACIT_ERR_ARGUMENT, "a runner keeps at most 4096 programs");
    py_options options;
    py_dims buckets = {0};
    py_runner *self = NULL;
    if (!py_options_get(given, &options))
        return NULL;
    if (py_dims_get(multiples, &buckets))
        self = (py_runner *)py_instance(py.runner_type);
    if (self) {
        Py_INCREF(model);
        self->model = model;
        self->capacity = capacity ? capacity : CAPACITY;
        self->strict = strict;
        self->padding = buckets.count > 0;
        self->forks = self->born = py.forks;
        if (!fill(self, &options, &buckets))
            Py_CLEAR(self);
    }
    py_dims_free(&buckets);
    py_options_free(&options);
    return (PyObject *)self;
}

#define KEYWORDS(function) (PyCFunction)(void (*)(void))(function), METH_VARARGS | METH_KEYWORDS
static PyMethodDef methods[] = {
    {"run", KEYWORDS(runner_run),
     "run(*arrays, out=None, **arrays): one array, or a tuple of them in the outputs' order."},
    {"results", runner_results, METH_VARARGS,
     "results(mapping, out): the outputs as a list, in the arrays of `out` where there is one."},
    {"profile", runner_profile, METH_VARARGS, "Switches profiling on (anew) or off."},
    {"close", runner_close, METH_NOARGS, "Gives the memory back; later runs raise."},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef members[] = {
    {"model", runner_model, NULL, "The model this runs.", NULL},
    {"sessions", runner_sessions, NULL, "A session per set of sizes kept, the newest first.", NULL},
    {"compiled", runner_compiled, NULL, "How many programs were compiled so far.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

bool py_runner_ready(PyObject *module)
{
    static PyType_Slot slots[] = {{Py_tp_dealloc, runner_dealloc},
                                  {Py_tp_methods, methods},
                                  {Py_tp_getset, members},
                                  {Py_tp_call, runner_run},
                                  {0, NULL}};
    static PyType_Spec spec = {"tacit._tacit.Runner", sizeof(py_runner), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
    PyObject *type = PyType_FromSpec(&spec);
    py.runner_type = type;
    Py_XINCREF(type);
    return type && PyModule_AddObject(module, "Runner", type) == 0;
}
