/* SPDX-License-Identifier: Apache-2.0
 * Models: loading, looking, transforms, compiling. */
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
static tacit_model *of(PyObject *self)
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
    tacit_model *model = of(self);
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

static PyObject *model_text(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"with_weights", NULL};
    int with_weights = 0;
    tacit_model *model = of(self);
    if (!model || !PyArg_ParseTupleAndKeywords(args, kwargs, "|p:text", names, &with_weights))
        return NULL;
    char *text;
    tacit_error err = {0};
    tacit_status status = tacit_model_text(model, with_weights, &text, &err);
    if (status != TACIT_OK)
        return py_raise(status, &err);
    PyObject *result = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
    tacit_text_free(text);
    return result;
}

static PyObject *model_save(PyObject *self, PyObject *args)
{
    PyObject *path;
    tacit_model *model = of(self);
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

/* --- transforms ------------------------------------------------------------------------------- */

static PyObject *model_grad(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"wrt", "dims", "output", "with_loss", "seed_ones", NULL};
    PyObject *wrt, *mapping = NULL;
    unsigned output = 0;
    int with_loss = 0, seed_ones = 1;
    tacit_model *model = of(self);
    if (!model || !PyArg_ParseTupleAndKeywords(args, kwargs, "O|OIpp:grad", names, &wrt, &mapping,
                                               &output, &with_loss, &seed_ones))
        return NULL;
    py_names list;
    py_dims dims = {0};
    if (!py_names_get(wrt, &list))
        return NULL;
    PyObject *result = NULL;
    if (py_dims_get(mapping, &dims)) {
        tacit_grad_options o = {.dims = dims.dims,
                                .n_dims = dims.count,
                                .output = output,
                                .with_loss = with_loss,
                                .seed_ones = seed_ones};
        tacit_model *made;
        tacit_error err = {0};
        tacit_status status;
        Py_BEGIN_ALLOW_THREADS status = tacit_grad(model, list.count, list.names, &o, &made, &err);
        Py_END_ALLOW_THREADS result =
            status == TACIT_OK ? py_model_wrap(made, self) : py_raise(status, &err);
    }
    py_dims_free(&dims);
    py_names_free(&list);
    return result;
}

static PyObject *model_jvp(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"wrt", "dims", NULL};
    PyObject *wrt, *mapping = NULL;
    tacit_model *model = of(self);
    if (!model || !PyArg_ParseTupleAndKeywords(args, kwargs, "O|O:jvp", names, &wrt, &mapping))
        return NULL;
    py_names list;
    py_dims dims = {0};
    if (!py_names_get(wrt, &list))
        return NULL;
    PyObject *result = NULL;
    if (py_dims_get(mapping, &dims)) {
        tacit_model *made;
        tacit_error err = {0};
        tacit_status status =
            tacit_jvp(model, list.count, list.names, dims.dims, dims.count, &made, &err);
        result = status == TACIT_OK ? py_model_wrap(made, self) : py_raise(status, &err);
    }
    py_dims_free(&dims);
    py_names_free(&list);
    return result;
}

static PyObject *model_vmap(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"inputs", "size", "dims", NULL};
    PyObject *inputs, *mapping = NULL;
    long long size;
    tacit_model *model = of(self);
    if (!model ||
        !PyArg_ParseTupleAndKeywords(args, kwargs, "OL|O:vmap", names, &inputs, &size, &mapping))
        return NULL;
    py_names list;
    py_dims dims = {0};
    if (!py_names_get(inputs, &list))
        return NULL;
    PyObject *result = NULL;
    if (py_dims_get(mapping, &dims)) {
        tacit_model *made;
        tacit_error err = {0};
        tacit_status status =
            tacit_vmap(model, list.count, list.names, size, dims.dims, dims.count, &made, &err);
        result = status == TACIT_OK ? py_model_wrap(made, self) : py_raise(status, &err);
    }
    py_dims_free(&dims);
    py_names_free(&list);
    return result;
}

/* --- compiling -------------------------------------------------------------------------------- */

static PyObject *compile(PyObject *self, tacit_model *model, const tacit_compile_options *options)
{
    tacit_program *program;
    tacit_error err = {0};
    tacit_status status;
    Py_BEGIN_ALLOW_THREADS status = tacit_compile(model, options, &program, &err);
    Py_END_ALLOW_THREADS if (status != TACIT_OK) return py_raise(status, &err);
    py_program *made = (py_program *)py_instance(py.program_type);
    if (!made) {
        tacit_program_free(program);
        return NULL;
    }
    made->program = program;
    Py_INCREF(self);
    made->model = self;
    return (PyObject *)made;
}

/* The enumerators' numbers come from the Python side, which knows their names. */
static PyObject *model_compile(PyObject *self, PyObject *args)
{
    PyObject *mapping, *disabled;
    int executor, validate, plan;
    unsigned threads;
    tacit_model *model = of(self);
    if (!model || !PyArg_ParseTuple(args, "OiIiiO:compile", &mapping, &executor, &threads,
                                    &validate, &plan, &disabled))
        return NULL;
    py_dims dims;
    py_names passes;
    if (!py_dims_get(mapping, &dims))
        return NULL;
    PyObject *result = NULL;
    if (py_names_get(disabled, &passes)) {
        tacit_compile_options options = {.dims = dims.dims,
                                         .n_dims = dims.count,
                                         .executor = (tacit_executor)executor,
                                         .threads = threads,
                                         .validate = (tacit_validate)validate,
                                         .plan = (tacit_plan_goal)plan,
                                         .disabled_passes = passes.names,
                                         .n_disabled_passes = passes.count};
        result = compile(self, model, &options);
        py_names_free(&passes);
    }
    py_dims_free(&dims);
    return result;
}

#define KEYWORDS(function) (PyCFunction)(void (*)(void))(function), METH_VARARGS | METH_KEYWORDS
static PyMethodDef methods[] = {
    {"_inputs", model_inputs, METH_NOARGS, NULL},
    {"_outputs", model_outputs, METH_NOARGS, NULL},
    {"text", KEYWORDS(model_text), "The graph in text form; large weights elided."},
    {"save", model_save, METH_VARARGS, "Writes the model; the suffix chooses the format."},
    {"_grad", KEYWORDS(model_grad), NULL},
    {"_jvp", KEYWORDS(model_jvp), NULL},
    {"_vmap", KEYWORDS(model_vmap), NULL},
    {"_compile", model_compile, METH_VARARGS, NULL},
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
