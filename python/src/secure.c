/* SPDX-License-Identifier: Apache-2.0
 * Private inference: compiled descriptions, dealing, the two parties, the cleartext twin. */
#include <string.h>

#include "tacit/secure.h"
#include "tacitpy.h"

enum { MAX_PORTS = 64 };

typedef struct py_secure {
    PyObject_HEAD tacit_secure *secure;
    PyObject *model; /* NULL when it came from a public description */
} py_secure;

static PyObject *secure_type;

static PyObject *wrap(tacit_secure *secure, PyObject *model)
{
    py_secure *self = (py_secure *)py_instance(secure_type);
    if (!self) {
        tacit_secure_free(secure);
        return NULL;
    }
    self->secure = secure;
    Py_XINCREF(model);
    self->model = model;
    return (PyObject *)self;
}

static void secure_dealloc(PyObject *object)
{
    py_secure *self = (py_secure *)object;
    tacit_secure_free(self->secure);
    Py_XDECREF(self->model);
    py_instance_free(object);
}

static tacit_secure *of(PyObject *self)
{
    tacit_secure *secure = ((py_secure *)self)->secure;
    if (!secure)
        py_fail(TACIT_ERR_STATE, "this was not made by tacit.secure.compile or load");
    return secure;
}

static PyObject *secure_compile(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *object, *mapping;
    int weights, dither, compare, frac;
    double bound;
    if (!PyArg_ParseTuple(args, "OiiiidO:secure_compile", &object, &weights, &dither, &compare,
                          &frac, &bound, &mapping))
        return NULL;
    int is_model = PyObject_IsInstance(object, py.model_type);
    if (is_model <= 0 || !((py_model *)object)->model)
        return is_model < 0 ? NULL : py_fail(TACIT_ERR_ARGUMENT, "a tacit.Model is needed");
    py_dims dims;
    if (!py_dims_get(mapping, &dims))
        return NULL;
    tacit_secure_options o = {.weights = (tacit_secure_weights)weights,
                              .dither = dither,
                              .compare = (tacit_secure_compare)compare,
                              .frac = frac,
                              .bound = bound,
                              .dims = dims.dims,
                              .n_dims = dims.count};
    tacit_secure *secure;
    tacit_error err = {0};
    tacit_status status;
    Py_BEGIN_ALLOW_THREADS status =
        tacit_secure_compile(((py_model *)object)->model, &o, &secure, &err);
    Py_END_ALLOW_THREADS py_dims_free(&dims);
    return status == TACIT_OK ? wrap(secure, object) : py_raise(status, &err);
}

static PyObject *secure_load(PyObject *module, PyObject *args)
{
    (void)module;
    const char *path;
    if (!PyArg_ParseTuple(args, "s:secure_load", &path))
        return NULL;
    tacit_secure *secure;
    tacit_error err = {0};
    tacit_status status = tacit_secure_load(path, &secure, &err);
    return status == TACIT_OK ? wrap(secure, NULL) : py_raise(status, &err);
}

static PyObject *secure_certificates(PyObject *module, PyObject *args)
{
    (void)module;
    const char *folder;
    int days;
    if (!PyArg_ParseTuple(args, "si:certificates", &folder, &days))
        return NULL;
    tacit_error err = {0};
    tacit_status status = tacit_secure_certificates(folder, days, &err);
    if (status != TACIT_OK)
        return py_raise(status, &err);
    Py_RETURN_NONE;
}

static PyObject *secure_strip(PyObject *self, PyObject *args)
{
    const char *path;
    if (!of(self) || !PyArg_ParseTuple(args, "s:strip", &path))
        return NULL;
    tacit_error err = {0};
    tacit_status status = tacit_secure_strip(of(self), path, &err);
    if (status != TACIT_OK)
        return py_raise(status, &err);
    Py_RETURN_NONE;
}

static PyObject *secure_plan(PyObject *self, PyObject *args)
{
    int json;
    if (!of(self) || !PyArg_ParseTuple(args, "p:plan", &json))
        return NULL;
    char *text;
    tacit_error err = {0};
    tacit_status status = tacit_secure_plan(of(self), json, &text, &err);
    if (status != TACIT_OK)
        return py_raise(status, &err);
    PyObject *result = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
    tacit_text_free(text);
    return result;
}

static PyObject *secure_deal(PyObject *self, PyObject *args)
{
    tacit_secure_deal_options o = {0};
    unsigned runs;
    unsigned long long seed;
    if (!of(self) ||
        !PyArg_ParseTuple(args, "ssIK:deal", &o.server_key, &o.client_key, &runs, &seed))
        return NULL;
    o.runs = runs;
    o.insecure_seed = seed;
    tacit_secure *secure = of(self);
    tacit_error err = {0};
    tacit_status status;
    Py_BEGIN_ALLOW_THREADS status = tacit_secure_deal(secure, &o, &err);
    Py_END_ALLOW_THREADS if (status != TACIT_OK) return py_raise(status, &err);
    Py_RETURN_NONE;
}

/* --- arrays ----------------------------------------------------------------------------------- */

typedef struct exchange {
    py_array in[MAX_PORTS], out[MAX_PORTS];
    tacit_tensor tensors_in[MAX_PORTS], tensors_out[MAX_PORTS];
    uint32_t n_in, n_out;
    PyObject *results;
} exchange;

static void as_tensor(const py_array *a, tacit_tensor *t)
{
    *t = (tacit_tensor){.dtype = a->dtype, .rank = a->rank, .data = a->data, .bytes = a->bytes};
    memcpy(t->dims, a->dims, (size_t)a->rank * sizeof *t->dims);
}

static bool take_inputs(PyObject *arrays, exchange *e)
{
    Py_ssize_t n = PyTuple_Size(arrays);
    if (n < 0 || n > MAX_PORTS) {
        py_fail(TACIT_ERR_LIMIT, "at most %d inputs", MAX_PORTS);
        return false;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        int got = py_array_lend(PyTuple_GetItem(arrays, i), &e->in[i]);
        if (got == 0)
            py_fail(TACIT_ERR_ARGUMENT, "input %d is not a dense array", (int)i);
        if (got != 1)
            return false;
        as_tensor(&e->in[i], &e->tensors_in[i]);
        e->n_in++;
    }
    return true;
}

static bool make_outputs(const tacit_secure *secure, exchange *e)
{
    uint32_t n = tacit_secure_output_count(secure);
    if (n > MAX_PORTS) {
        py_fail(TACIT_ERR_LIMIT, "at most %d outputs", MAX_PORTS);
        return false;
    }
    e->results = PyTuple_New(n);
    for (uint32_t i = 0; e->results && i < n; i++) {
        tacit_port port;
        tacit_status status = tacit_secure_output(secure, i, &port);
        if (status != TACIT_OK)
            return py_raise(status, NULL) != NULL;
        PyObject *array = py_array_new(port.dtype, port.rank, port.dims, &e->out[i]);
        if (!array || PyTuple_SetItem(e->results, i, array) < 0)
            return false;
        as_tensor(&e->out[i], &e->tensors_out[i]);
        e->n_out++;
    }
    return e->results != NULL;
}

static void release(exchange *e)
{
    for (uint32_t i = 0; i < MAX_PORTS; i++) {
        py_array_release(&e->in[i]);
        py_array_release(&e->out[i]);
    }
    Py_CLEAR(e->results);
}

static PyObject *secure_simulate(PyObject *self, PyObject *args)
{
    PyObject *arrays;
    unsigned long long seed;
    unsigned run;
    tacit_secure *secure = of(self);
    if (!secure || !PyArg_ParseTuple(args, "O!KI:simulate", &PyTuple_Type, &arrays, &seed, &run))
        return NULL;
    exchange e = {0};
    PyObject *result = NULL;
    if (take_inputs(arrays, &e) && make_outputs(secure, &e)) {
        tacit_error err = {0};
        tacit_status status;
        Py_BEGIN_ALLOW_THREADS status = tacit_secure_simulate(
            secure, e.tensors_in, e.n_in, e.tensors_out, e.n_out, seed, run, &err);
        Py_END_ALLOW_THREADS if (status == TACIT_OK)
        {
            result = e.results;
            Py_INCREF(result);
        }
        else
        {
            py_raise(status, &err);
        }
    }
    release(&e);
    return result;
}

static bool take_peer(PyObject *args, tacit_secure_peer *peer, PyObject **arrays)
{
    return PyArg_ParseTuple(args, "sssiiO!", &peer->key, &peer->address, &peer->certificates,
                            &peer->timeout_ms, &peer->accept_predictable, &PyTuple_Type, arrays);
}

static PyObject *report_dict(const tacit_secure_report *r)
{
    return Py_BuildValue("{sIsIsKsKsK}", "run", r->run, "rounds", r->rounds, "sent", r->sent,
                         "received", r->received, "online_ns", r->online_ns);
}

static PyObject *secure_serve(PyObject *self, PyObject *args)
{
    tacit_secure_peer peer = {0};
    PyObject *none;
    tacit_secure *secure = of(self);
    if (!secure || !take_peer(args, &peer, &none))
        return NULL;
    tacit_secure_report report = {0};
    tacit_error err = {0};
    tacit_status status;
    Py_BEGIN_ALLOW_THREADS status = tacit_secure_serve(secure, &peer, &report, &err);
    Py_END_ALLOW_THREADS return status == TACIT_OK ? report_dict(&report) : py_raise(status, &err);
}

static PyObject *secure_query(PyObject *self, PyObject *args)
{
    tacit_secure_peer peer = {0};
    PyObject *arrays;
    tacit_secure *secure = of(self);
    if (!secure || !take_peer(args, &peer, &arrays))
        return NULL;
    exchange e = {0};
    PyObject *result = NULL;
    if (take_inputs(arrays, &e) && make_outputs(secure, &e)) {
        tacit_secure_report report = {0};
        tacit_error err = {0};
        tacit_status status;
        Py_BEGIN_ALLOW_THREADS status = tacit_secure_query(secure, &peer, e.tensors_in, e.n_in,
                                                           e.tensors_out, e.n_out, &report, &err);
        Py_END_ALLOW_THREADS if (status == TACIT_OK) result =
            Py_BuildValue("(ON)", e.results, report_dict(&report));
        else py_raise(status, &err);
    }
    release(&e);
    return result;
}

static PyMethodDef methods[] = {
    {"_strip", secure_strip, METH_VARARGS, NULL},
    {"_plan", secure_plan, METH_VARARGS, NULL},
    {"_deal", secure_deal, METH_VARARGS, NULL},
    {"_simulate", secure_simulate, METH_VARARGS, NULL},
    {"_serve", secure_serve, METH_VARARGS, NULL},
    {"_query", secure_query, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyMethodDef functions[] = {
    {"secure_compile", secure_compile, METH_VARARGS, NULL},
    {"secure_load", secure_load, METH_VARARGS, NULL},
    {"secure_certificates", secure_certificates, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

bool py_secure_ready(PyObject *module)
{
    static PyType_Slot slots[] = {
        {Py_tp_dealloc, secure_dealloc}, {Py_tp_methods, methods}, {0, NULL}};
    static PyType_Spec spec = {"tacit._tacit.Secure", sizeof(py_secure), 0, Py_TPFLAGS_DEFAULT,
                               slots};
    secure_type = PyType_FromSpec(&spec);
    Py_XINCREF(secure_type);
    return secure_type && PyModule_AddObject(module, "Secure", secure_type) == 0 &&
           PyModule_AddFunctions(module, functions) == 0;
}
