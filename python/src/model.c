/* SPDX-License-Identifier: Apache-2.0
 * Models: loading, looking, compiling. */
#include <string.h>

#include "tacitpy.h"

static PyObject *base_type;

PyObject *py_model_wrap(tacit_model *model, PyObject *keep)
{
    py_model *self = (py_model *)py_instance(py.model_type);
    if (!self) {
        tacit_model_free(model);
        return NULL;
    }
    self->model = model;
    Py_XINCREF(keep);
    self->keep = keep;
    return (PyObject *)self;
}

static void model_dealloc(PyObject *object)
{
    py_model *self = (py_model *)object;
    tacit_model_free(self->model);
    Py_XDECREF(self->keep);
    py_instance_free(object);
}

/* The class can be called from Python, but a model only comes from a file, a builder, a model. */
tacit_model *py_model_of(PyObject *self)
{
    tacit_model *model = ((py_model *)self)->model;
    if (!model)
        py_fail(TACIT_ERR_STATE, "this model was not made by tacit.load or a tacit.Graph");
    return model;
}

PyObject *py_load(PyObject *module, PyObject *args, PyObject *kwargs)
{
    (void)module;
    static char *names[] = {"path", NULL};
    PyObject *path = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&:load", names, PyUnicode_FSConverter, &path))
        return NULL;
    tacit_model *model;
    tacit_error err = {0};
    tacit_status status;
    const char *text = PyBytes_AsString(path);
    Py_BEGIN_ALLOW_THREADS status = tacit_model_load(text, NULL, &model, &err);
    Py_END_ALLOW_THREADS Py_DECREF(path);
    return status == TACIT_OK ? py_model_wrap(model, NULL) : py_raise(status, &err);
}

PyObject *py_load_memory(PyObject *module, PyObject *args, PyObject *kwargs)
{
    (void)module;
    static char *names[] = {"data", "external_data_dir", NULL};
    PyObject *data, *dir = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!|O&:load_memory", names, &PyBytes_Type, &data,
                                     PyUnicode_FSConverter, &dir))
        return NULL;
    tacit_load_options options = {.external_data_dir = dir ? PyBytes_AsString(dir) : NULL};
    tacit_model *model;
    tacit_error err = {0};
    tacit_status status;
    const char *bytes = PyBytes_AsString(data);
    size_t size = (size_t)PyBytes_Size(data);
    Py_BEGIN_ALLOW_THREADS status = tacit_model_load_memory(bytes, size, &options, &model, &err);
    Py_END_ALLOW_THREADS Py_XDECREF(dir);
    return status == TACIT_OK ? py_model_wrap(model, data) : py_raise(status, &err);
}

static PyObject *ports(PyObject *self, bool inputs)
{
    tacit_model *model = py_model_of(self);
    if (!model)
        return NULL;
    uint32_t n = inputs ? tacit_model_input_count(model) : tacit_model_output_count(model);
    PyObject *list = PyList_New(n);
    for (uint32_t i = 0; list && i < n; i++) {
        tacit_port port;
        tacit_status status =
            inputs ? tacit_model_input(model, i, &port) : tacit_model_output(model, i, &port);
        PyObject *item = status == TACIT_OK ? py_port(&port) : py_raise(status, NULL);
        if (!item || PyList_SetItem(list, i, item) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *model_inputs(PyObject *self, PyObject *unused)
{
    (void)unused;
    return ports(self, true);
}

static PyObject *model_outputs(PyObject *self, PyObject *unused)
{
    (void)unused;
    return ports(self, false);
}

/* A file's words are not always UTF-8. */
static PyObject *words(const char *text)
{
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

static PyObject *metadata_of(const tacit_model *model, uint32_t count)
{
    PyObject *dict = PyDict_New();
    for (uint32_t i = 0; dict && i < count; i++) {
        const char *key, *value;
        if (tacit_model_metadata(model, i, &key, &value) != TACIT_OK)
            break;
        PyObject *k = words(key), *v = words(value);
        if (!k || !v || PyDict_SetItem(dict, k, v) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(k);
        Py_XDECREF(v);
    }
    return dict;
}

/* (graph name, graph doc, producer, its version, domain, doc, version, metadata) */
static PyObject *model_about(PyObject *self, PyObject *unused)
{
    (void)unused;
    const tacit_model *model = py_model_of(self);
    if (!model)
        return NULL;
    tacit_about about;
    tacit_model_about(model, &about);
    return Py_BuildValue("(NNNNNNLN)", words(about.graph_name), words(about.graph_doc),
                         words(about.producer), words(about.producer_version), words(about.domain),
                         words(about.doc), (long long)about.version,
                         metadata_of(model, about.metadata_count));
}

static PyObject *model_text(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"with_weights", NULL};
    int with_weights = 0;
    tacit_model *model = py_model_of(self);
    if (!model || !PyArg_ParseTupleAndKeywords(args, kwargs, "|p:text", names, &with_weights))
        return NULL;
    char *text;
    tacit_error err = {0};
    tacit_status status = tacit_model_text(model, with_weights, &text, &err);
    if (status != TACIT_OK)
        return py_raise(status, &err);
    PyObject *result = words(text);
    tacit_text_free(text);
    return result;
}

static PyObject *model_save(PyObject *self, PyObject *args)
{
    PyObject *path;
    tacit_model *model = py_model_of(self);
    if (!model || !PyArg_ParseTuple(args, "O&:save", PyUnicode_FSConverter, &path))
        return NULL;
    tacit_error err = {0};
    tacit_status status;
    const char *text = PyBytes_AsString(path);
    Py_BEGIN_ALLOW_THREADS status = tacit_model_save(model, text, &err);
    Py_END_ALLOW_THREADS Py_DECREF(path);
    if (status != TACIT_OK)
        return py_raise(status, &err);
    Py_RETURN_NONE;
}

/* --- weights ---------------------------------------------------------------------------------- */

static PyObject *model_weight_names(PyObject *self, PyObject *unused)
{
    (void)unused;
    tacit_model *model = py_model_of(self);
    if (!model)
        return NULL;
    uint32_t n = tacit_model_weight_count(model);
    PyObject *list = PyList_New(n);
    for (uint32_t i = 0; list && i < n; i++) {
        tacit_port port;
        tacit_status status = tacit_model_weight(model, i, &port, NULL);
        PyObject *name =
            status == TACIT_OK ? PyUnicode_FromString(port.name) : py_raise(status, NULL);
        if (!name || PyList_SetItem(list, i, name) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *model_weight(PyObject *self, PyObject *args)
{
    const char *name;
    tacit_model *model = py_model_of(self);
    if (!model || !PyArg_ParseTuple(args, "s:weight", &name))
        return NULL;
    tacit_port port;
    const void *data;
    for (uint32_t i = 0; tacit_model_weight(model, i, &port, &data) == TACIT_OK; i++) {
        if (strcmp(port.name, name) != 0)
            continue;
        if (!data && port.bytes)
            return py_fail(TACIT_ERR_STATE, "the contents of weight '%s' were left out", name);
        tacit_tensor t = {
            .dtype = port.dtype, .rank = port.rank, .data = (void *)data, .bytes = port.bytes};
        memcpy(t.dims, port.dims, sizeof t.dims);
        if (t.dtype == TACIT_STRING) { /* a port does not know its bytes */
            t.bytes = sizeof(tacit_string);
            for (int32_t d = 0; d < t.rank; d++)
                t.bytes *= (size_t)t.dims[d];
        }
        return py_array_copy(&t);
    }
    return py_fail(TACIT_ERR_ARGUMENT, "the model has no weight named '%s'", name);
}

/* --- compiling -------------------------------------------------------------------------------- */

/* The enumerators' numbers come from the Python side, which knows their names. */
bool py_options_get(PyObject *tuple, py_options *out)
{
    PyObject *dims, *disabled, *last;
    int executor, validate, plan, in_place, plain_sums, start_early, batch_invariant;
    const char *packed;
    unsigned threads;
    *out = (py_options){0};
    if (!PyArg_ParseTuple(tuple, "OiIiiOppzOpp:compile", &dims, &executor, &threads, &validate,
                          &plan, &disabled, &in_place, &plain_sums, &packed, &last, &start_early,
                          &batch_invariant) ||
        !py_dims_get(dims, &out->dims) || !py_names_get(disabled, &out->passes) ||
        !py_names_get(last, &out->last)) {
        py_options_free(out);
        return false;
    }
    out->compile = (tacit_compile_options){.dims = out->dims.dims,
                                           .n_dims = out->dims.count,
                                           .executor = (tacit_executor)executor,
                                           .threads = threads,
                                           .validate = (tacit_validate)validate,
                                           .plan = (tacit_plan_goal)plan,
                                           .disabled_passes = out->passes.names,
                                           .n_disabled_passes = out->passes.count,
                                           .update_in_place = in_place,
                                           .plain_sums = plain_sums,
                                           .batch_invariant = batch_invariant,
                                           .packed_file = packed,
                                           .last_only = out->last.names,
                                           .n_last_only = out->last.count,
                                           .start_early = start_early};
    return true;
}

void py_options_free(py_options *options)
{
    py_names_free(&options->passes);
    py_names_free(&options->last);
    py_dims_free(&options->dims);
}

static PyObject *model_compile(PyObject *self, PyObject *args)
{
    py_options options;
    tacit_model *model = py_model_of(self);
    if (!model || !py_options_get(args, &options))
        return NULL;
    tacit_program *program;
    tacit_error err = {0};
    tacit_status status;
    Py_BEGIN_ALLOW_THREADS status = tacit_compile(model, &options.compile, &program, &err);
    Py_END_ALLOW_THREADS py_options_free(&options);
    return status == TACIT_OK ? py_program_wrap(program, self) : py_raise(status, &err);
}

#define KEYWORDS(function) (PyCFunction)(void (*)(void))(function), METH_VARARGS | METH_KEYWORDS
static PyMethodDef methods[] = {
    {"_inputs", model_inputs, METH_NOARGS, NULL},
    {"_outputs", model_outputs, METH_NOARGS, NULL},
    {"_about", model_about, METH_NOARGS, NULL},
    {"text", KEYWORDS(model_text), "The graph in text form; large weights elided."},
    {"save", model_save, METH_VARARGS, "Writes the model; the suffix chooses the format."},
    {"_weight_names", model_weight_names, METH_NOARGS, NULL},
    {"weight", model_weight, METH_VARARGS, "weight(name): a copy of that weight."},
    {"_grad", py_model_grad, METH_VARARGS, NULL},
    {"_train_step", py_model_train_step, METH_VARARGS, NULL},
    {"_jvp", py_model_jvp, METH_VARARGS, NULL},
    {"_vmap", py_model_vmap, METH_VARARGS, NULL},
    {"_quantize", py_model_quantize, METH_VARARGS, NULL},
    {"_compile", model_compile, METH_VARARGS, NULL},
    {"_runner", py_model_runner, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

bool py_model_ready(PyObject *module)
{
    static PyType_Slot slots[] = {
        {Py_tp_dealloc, model_dealloc}, {Py_tp_methods, methods}, {0, NULL}};
    static PyType_Spec spec = {"tacit._tacit.Model", sizeof(py_model), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
    base_type = PyType_FromSpec(&spec);
    py.model_type = base_type;
    Py_XINCREF(base_type);
    return base_type && PyModule_AddObject(module, "Model", base_type) == 0;
}
