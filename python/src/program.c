/* SPDX-License-Identifier: Apache-2.0
 * Programs: what compiling made, to look at and to open sessions on. */
#include <string.h>

#include "tacitpy.h"

PyObject *py_program_wrap(tacit_program *program, PyObject *model)
{
    py_program *self = (py_program *)py_instance(py.program_type);
    if (!self) {
        tacit_program_free(program);
        return NULL;
    }
    self->program = program;
    Py_INCREF(model);
    self->model = model;
    return (PyObject *)self;
}

static void program_dealloc(PyObject *object)
{
    py_program *self = (py_program *)object;
    tacit_program_free(self->program);
    Py_XDECREF(self->model);
    py_instance_free(object);
}

static tacit_program *of(PyObject *self)
{
    tacit_program *program = ((py_program *)self)->program;
    if (!program)
        py_fail(TACIT_ERR_STATE, "this program was not made by tacit.compile");
    return program;
}

static PyObject *ports(PyObject *self, bool inputs)
{
    tacit_program *program = of(self);
    if (!program)
        return NULL;
    uint32_t n = inputs ? tacit_program_input_count(program) : tacit_program_output_count(program);
    PyObject *list = PyList_New(n);
    for (uint32_t i = 0; list && i < n; i++) {
        tacit_port port;
        tacit_status status = inputs ? tacit_program_input(program, i, &port)
                                     : tacit_program_output(program, i, &port);
        PyObject *item = status == TACIT_OK ? py_port(&port) : py_raise(status, NULL);
        if (!item || PyList_SetItem(list, i, item) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *program_inputs(PyObject *self, PyObject *unused)
{
    (void)unused;
    return ports(self, true);
}

static PyObject *program_outputs(PyObject *self, PyObject *unused)
{
    (void)unused;
    return ports(self, false);
}

static PyObject *program_memory(PyObject *self, PyObject *unused)
{
    (void)unused;
    tacit_program *program = of(self);
    if (!program)
        return NULL;
    tacit_memory_report r;
    tacit_program_memory(program, &r);
    return Py_BuildValue("{sKsKsKsKsKsKsIsIsO}", "weight_bytes", r.weight_bytes, "packed_bytes",
                         r.packed_bytes, "arena_bytes", r.arena_bytes, "scratch_bytes",
                         r.scratch_bytes, "lower_bound_bytes", r.lower_bound_bytes,
                         "argument_bytes", r.argument_bytes, "thunks", r.thunks, "nodes", r.nodes,
                         "has_dynamic_tail", r.has_dynamic_tail ? Py_True : Py_False);
}

static PyObject *program_view(PyObject *self, PyObject *args)
{
    int kind, format;
    const char *node;
    tacit_program *program = of(self);
    if (!program || !PyArg_ParseTuple(args, "iiz:view", &kind, &format, &node))
        return NULL;
    char *text;
    tacit_error err = {0};
    tacit_status status =
        tacit_program_view(program, (tacit_view_kind)kind, (tacit_format)format, node, &text, &err);
    if (status != TACIT_OK)
        return py_raise(status, &err);
    PyObject *result = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
    tacit_text_free(text);
    return result;
}

static PyObject *program_session(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"strict", NULL};
    int strict = 0;
    if (!of(self) || !PyArg_ParseTupleAndKeywords(args, kwargs, "|p:session", names, &strict))
        return NULL;
    return py_session_new(self, strict);
}

static PyObject *program_model(PyObject *self, void *unused)
{
    (void)unused;
    if (!of(self))
        return NULL;
    PyObject *model = ((py_program *)self)->model;
    Py_INCREF(model);
    return model;
}

static PyMethodDef methods[] = {
    {"_inputs", program_inputs, METH_NOARGS, NULL},
    {"_outputs", program_outputs, METH_NOARGS, NULL},
    {"memory", program_memory, METH_NOARGS, "Every byte a session will need, before one exists."},
    {"_view", program_view, METH_VARARGS, NULL},
    {"session", (PyCFunction)(void (*)(void))program_session, METH_VARARGS | METH_KEYWORDS,
     "A session: callable, for any number of threads."},
    {NULL, NULL, 0, NULL},
};
static PyGetSetDef members[] = {
    {"model", program_model, NULL, "The model this was compiled from.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

bool py_program_ready(PyObject *module)
{
    static PyType_Slot slots[] = {{Py_tp_dealloc, program_dealloc},
                                  {Py_tp_methods, methods},
                                  {Py_tp_getset, members},
                                  {0, NULL}};
    static PyType_Spec spec = {"tacit._tacit.Program", sizeof(py_program), 0,
                               Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
    PyObject *type = PyType_FromSpec(&spec);
    py.program_type = type;
    Py_XINCREF(type);
    return type && PyModule_AddObject(module, "Program", type) == 0;
}
