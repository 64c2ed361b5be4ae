/* SPDX-License-Identifier: Apache-2.0
 * Models from models: gradients, training steps, tangents, batches, narrower weights. The Python
 * side gives every argument, so there are no defaults here. */
#include "tacitpy.h"

/* What the transforms have in common; keeps the C forms of the Python arguments. */
typedef struct request {
    tacit_model *model;
    py_names names, checkpoints;
    py_dims dims;
} request;

static void request_end(request *r)
{
    py_names_free(&r->names);
    py_names_free(&r->checkpoints);
    py_dims_free(&r->dims);
}

static bool request_begin(request *r, PyObject *self, PyObject *names, PyObject *dims,
                          PyObject *checkpoints)
{
    *r = (request){.model = py_model_of(self)};
    bool ok = r->model && py_names_get(names, &r->names) && py_dims_get(dims, &r->dims) &&
              (!checkpoints || py_names_get(checkpoints, &r->checkpoints));
    if (!ok)
        request_end(r);
    return ok;
}

static PyObject *finish(request *r, PyObject *self, tacit_status status, tacit_model *made,
                        const tacit_error *err)
{
    request_end(r);
    return status == TACIT_OK ? py_model_wrap(made, self) : py_raise(status, err);
}

PyObject *py_model_grad(PyObject *self, PyObject *args)
{
    PyObject *wrt, *dims, *checkpoints;
    unsigned output;
    int with_loss, seed_ones;
    unsigned long long budget;
    request r;
    if (!PyArg_ParseTuple(args, "OOIppOK:grad", &wrt, &dims, &output, &with_loss, &seed_ones,
                          &checkpoints, &budget) ||
        !request_begin(&r, self, wrt, dims, checkpoints))
        return NULL;
    tacit_grad_options o = {
        .dims = r.dims.dims,
        .n_dims = r.dims.count,
        .output = output,
        .with_loss = with_loss,
        .seed_ones = seed_ones,
        .remat = {r.checkpoints.names, r.checkpoints.count, budget},
    };
    tacit_model *made = NULL;
    tacit_error err = {0};
    tacit_status status;
    Py_BEGIN_ALLOW_THREADS status =
        tacit_grad(r.model, r.names.count, r.names.names, &o, &made, &err);
    Py_END_ALLOW_THREADS return finish(&r, self, status, made, &err);
}

PyObject *py_model_train_step(PyObject *self, PyObject *args)
{
    PyObject *params, *dims, *checkpoints;
    int optimizer;
    unsigned long long budget;
    tacit_train_options o = {0};
    request r;
    if (!PyArg_ParseTuple(args, "OOIidddddddOK:train_step", &params, &dims, &o.output, &optimizer,
                          &o.momentum, &o.beta1, &o.beta2, &o.epsilon, &o.weight_decay,
                          &o.clip_norm, &o.loss_scale, &checkpoints, &budget) ||
        !request_begin(&r, self, params, dims, checkpoints))
        return NULL;
    o.dims = r.dims.dims;
    o.n_dims = r.dims.count;
    o.optimizer = (tacit_optimizer)optimizer;
    o.remat = (tacit_remat){r.checkpoints.names, r.checkpoints.count, budget};
    tacit_model *made = NULL;
    tacit_error err = {0};
    tacit_status status;
    Py_BEGIN_ALLOW_THREADS status =
        tacit_train_step(r.model, r.names.count, r.names.names, &o, &made, &err);
    Py_END_ALLOW_THREADS return finish(&r, self, status, made, &err);
}

PyObject *py_model_jvp(PyObject *self, PyObject *args)
{
    PyObject *wrt, *dims;
    request r;
    if (!PyArg_ParseTuple(args, "OO:jvp", &wrt, &dims) || !request_begin(&r, self, wrt, dims, NULL))
        return NULL;
    tacit_model *made = NULL;
    tacit_error err = {0};
    tacit_status status;
    Py_BEGIN_ALLOW_THREADS status =
        tacit_jvp(r.model, r.names.count, r.names.names, r.dims.dims, r.dims.count, &made, &err);
    Py_END_ALLOW_THREADS return finish(&r, self, status, made, &err);
}

PyObject *py_model_vmap(PyObject *self, PyObject *args)
{
    PyObject *inputs, *dims;
    long long size;
    request r;
    if (!PyArg_ParseTuple(args, "OLO:vmap", &inputs, &size, &dims) ||
        !request_begin(&r, self, inputs, dims, NULL))
        return NULL;
    tacit_model *made = NULL;
    tacit_error err = {0};
    tacit_status status;
    Py_BEGIN_ALLOW_THREADS status = tacit_vmap(r.model, r.names.count, r.names.names, size,
                                               r.dims.dims, r.dims.count, &made, &err);
    Py_END_ALLOW_THREADS return finish(&r, self, status, made, &err);
}

/* --- quantising ------------------------------------------------------------------------------- */

static bool range_get(PyObject *name, PyObject *pair, PyObject *texts, tacit_range *out)
{
    PyObject *bytes;
    out->value = py_text(name, &bytes);
    bool ok = out->value && PyList_Append(texts, bytes) == 0;
    Py_XDECREF(bytes);
    return ok && PyArg_ParseTuple(pair, "dd", &out->low, &out->high);
}

/* (model, layers, bytes before, bytes after, error of the weights). */
static PyObject *quantize(PyObject *self, const tacit_model *model, tacit_quantize_options *o)
{
    tacit_model *made;
    tacit_quantize_report report;
    tacit_error err = {0};
    tacit_status status;
    Py_BEGIN_ALLOW_THREADS status = tacit_quantize(model, o, &made, &report, &err);
    Py_END_ALLOW_THREADS if (status != TACIT_OK) return py_raise(status, &err);
    PyObject *wrapped = py_model_wrap(made, self);
    return wrapped ? Py_BuildValue("(NIKKd)", wrapped, report.layers,
                                   (unsigned long long)report.bytes_before,
                                   (unsigned long long)report.bytes_after, report.weight_error)
                   : NULL;
}

PyObject *py_model_quantize(PyObject *self, PyObject *args)
{
    int storage;
    long long block;
    PyObject *mapping; /* {name: (low, high)} or None */
    tacit_model *model = py_model_of(self);
    if (!model || !PyArg_ParseTuple(args, "iLO:quantize", &storage, &block, &mapping))
        return NULL;
    if (mapping != Py_None && !PyDict_Check(mapping)) {
        PyErr_SetString(PyExc_TypeError, "ranges must be a dict of (low, high)");
        return NULL;
    }
    tacit_quantize_options o = {.weights = (tacit_storage)storage, .block = block};
    Py_ssize_t n = mapping == Py_None ? 0 : PyDict_Size(mapping), at = 0;
    tacit_range *ranges = PyMem_Calloc((size_t)n + 1, sizeof *ranges);
    PyObject *texts = PyList_New(0), *name, *pair, *result = NULL;
    bool ok = ranges && texts;
    if (!ranges)
        PyErr_NoMemory();
    while (ok && o.n_ranges < n && PyDict_Next(mapping, &at, &name, &pair))
        ok = range_get(name, pair, texts, &ranges[o.n_ranges++]);
    o.ranges = mapping == Py_None ? NULL : ranges;
    if (ok)
        result = quantize(self, model, &o);
    Py_XDECREF(texts);
    PyMem_Free(ranges);
    return result;
}
