/* SPDX-License-Identifier: Apache-2.0
 * The arrays of one call: matched to the ports, lent to the core, released. */
#include <stdio.h>

#include "tacitpy.h"

/* --- ports ------------------------------------------------------------------------------------ */

static bool fill_index(py_ports *ports)
{
    for (uint32_t i = 0; i < ports->n_inputs; i++) {
        PyObject *position = PyLong_FromUnsignedLong(i);
        int put =
            position ? PyDict_SetItemString(ports->index, ports->inputs[i].name, position) : -1;
        Py_XDECREF(position);
        if (put < 0)
            return false;
    }
    return true;
}

static bool make_ports(py_ports *ports, uint32_t n_inputs, uint32_t n_outputs)
{
    ports->n_inputs = n_inputs;
    ports->n_outputs = n_outputs;
    ports->inputs = PyMem_Calloc(n_inputs + 1u, sizeof *ports->inputs);
    ports->outputs = PyMem_Calloc(n_outputs + 1u, sizeof *ports->outputs);
    ports->index = PyDict_New();
    if (!ports->inputs || !ports->outputs)
        PyErr_NoMemory();
    return ports->inputs && ports->outputs && ports->index;
}

bool py_ports_of_program(py_ports *ports, const tacit_program *program)
{
    tacit_status status = TACIT_OK;
    if (!make_ports(ports, tacit_program_input_count(program), tacit_program_output_count(program)))
        return false;
    for (uint32_t i = 0; i < ports->n_inputs && status == TACIT_OK; i++)
        status = tacit_program_input(program, i, &ports->inputs[i]);
    for (uint32_t i = 0; i < ports->n_outputs && status == TACIT_OK; i++)
        status = tacit_program_output(program, i, &ports->outputs[i]);
    return status == TACIT_OK ? fill_index(ports) : py_raise(status, NULL) != NULL;
}

bool py_ports_of_model(py_ports *ports, const tacit_model *model)
{
    tacit_status status = TACIT_OK;
    if (!make_ports(ports, tacit_model_input_count(model), tacit_model_output_count(model)))
        return false;
    for (uint32_t i = 0; i < ports->n_inputs && status == TACIT_OK; i++)
        status = tacit_model_input(model, i, &ports->inputs[i]);
    for (uint32_t i = 0; i < ports->n_outputs && status == TACIT_OK; i++)
        status = tacit_model_output(model, i, &ports->outputs[i]);
    return status == TACIT_OK ? fill_index(ports) : py_raise(status, NULL) != NULL;
}

void py_ports_free(py_ports *ports)
{
    PyMem_Free(ports->inputs);
    PyMem_Free(ports->outputs);
    Py_CLEAR(ports->index);
    *ports = (py_ports){0};
}

/* --- life ------------------------------------------------------------------------------------- */

bool py_call_make(py_call *c, const py_ports *ports)
{
    size_t n = ports->n_inputs + 1u, m = ports->n_outputs + 1u;
    c->in = PyMem_Calloc(n, sizeof *c->in);
    c->out = PyMem_Calloc(m, sizeof *c->out);
    c->results = PyMem_Calloc(m, sizeof(PyObject *));
    c->keep = PyMem_Calloc(n, sizeof(PyObject *));
    c->tensors_in = PyMem_Calloc(n, sizeof *c->tensors_in);
    c->tensors_out = PyMem_Calloc(m, sizeof *c->tensors_out);
    if (c->in && c->out && c->results && c->keep && c->tensors_in && c->tensors_out)
        return true;
    py_call_free(c);
    PyErr_NoMemory();
    return false;
}

void py_call_free(py_call *c)
{
    PyMem_Free(c->in);
    PyMem_Free(c->out);
    PyMem_Free(c->results);
    PyMem_Free(c->keep);
    PyMem_Free(c->tensors_in);
    PyMem_Free(c->tensors_out);
    *c = (py_call){0};
}

void py_call_end(py_call *c, const py_ports *ports)
{
    for (uint32_t i = 0; i < ports->n_inputs; i++) {
        py_array_release(&c->in[i]);
        Py_CLEAR(c->keep[i]);
    }
    for (uint32_t i = 0; i < ports->n_outputs; i++) {
        py_array_release(&c->out[i]);
        Py_CLEAR(c->results[i]);
    }
    c->given = 0;
}

/* --- inputs ----------------------------------------------------------------------------------- */

static bool bind_input(py_call *c, const py_ports *ports, uint32_t i, PyObject *object)
{
    const tacit_port *port = &ports->inputs[i];
    py_array *a = &c->in[i];
    if (a->owner || c->keep[i]) {
        py_fail(TACIT_ERR_ARGUMENT, "input '%s' is given twice", port->name);
        return false;
    }
    tacit_tensor *t = &c->tensors_in[c->given++];
    *t = (tacit_tensor){.name = port->name};
    int got = port->kind == TACIT_KIND_TENSOR ? py_array_lend(object, a) : 0;
    if (got == 0 && !(c->keep[i] = PyList_New(0)))
        return false;
    if (port->kind != TACIT_KIND_TENSOR)
        return py_value_in(object, port, c->strict, c->keep[i], t);
    if (got < 0 || (got == 0 && !py_array_convert(object, port, c->strict, c->keep[i], a)))
        return false;
    py_array_tensor(a, t);
    return true;
}

static bool no_input(const py_ports *ports, PyObject *key)
{
    PyObject *bytes;
    const char *name = py_text(key, &bytes);
    char list[512] = "none";
    size_t used = 0;
    for (uint32_t i = 0; i < ports->n_inputs && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s'%s'", i ? ", " : "",
                                 ports->inputs[i].name);
    if (name)
        py_fail(TACIT_ERR_ARGUMENT, "there is no input named '%s'; the model has %s", name, list);
    Py_XDECREF(bytes);
    return false;
}

static bool bind_named(py_call *c, const py_ports *ports, PyObject *mapping, PyObject **out)
{
    PyObject *key, *item;
    Py_ssize_t at = 0;
    while (PyDict_Next(mapping, &at, &key, &item)) {
        PyObject *position = PyDict_GetItemWithError(ports->index, key);
        if (!position && PyErr_Occurred())
            return false;
        if (!position && out && PyUnicode_Check(key) &&
            PyUnicode_CompareWithASCIIString(key, "out") == 0) {
            *out = item;
            continue;
        }
        if (!position)
            return no_input(ports, key);
        /* Converting may run any Python code, and the mapping may be the caller's. */
        Py_INCREF(item);
        bool ok = bind_input(c, ports, (uint32_t)PyLong_AsUnsignedLong(position), item);
        Py_DECREF(item);
        if (!ok)
            return false;
    }
    return true;
}

bool py_call_inputs(py_call *c, const py_ports *ports, PyObject *args, PyObject *kwargs,
                    PyObject **out)
{
    Py_ssize_t n = PyTuple_Size(args);
    PyObject *first = n == 1 ? PyTuple_GetItem(args, 0) : NULL;
    c->given = 0;
    if (first && PyDict_Check(first)) {
        if (!bind_named(c, ports, first, NULL))
            return false;
    } else {
        if (n > ports->n_inputs) {
            py_fail(TACIT_ERR_ARGUMENT, "%d inputs are given, but the model has %u", (int)n,
                    ports->n_inputs);
            return false;
        }
        for (Py_ssize_t i = 0; i < n; i++)
            if (!bind_input(c, ports, (uint32_t)i, PyTuple_GetItem(args, i)))
                return false;
    }
    return !kwargs || bind_named(c, ports, kwargs, out);
}

/* --- outputs ---------------------------------------------------------------------------------- */

static bool bind_given_output(py_call *c, const py_ports *ports, uint32_t i, PyObject *array)
{
    const char *name = ports->outputs[i].name;
    int got = py_array_lend(array, &c->out[i]);
    if (got == 0) { /* a tensor of another library, maybe: the array keeps it */
        PyObject *view = PyObject_CallFunctionObjArgs(py.place, array, NULL);
        got = !view ? -1 : view == Py_None ? 0 : py_array_lend(view, &c->out[i]);
        Py_XDECREF(view);
    }
    if (got == 0)
        py_fail(TACIT_ERR_ARGUMENT, "the array for output '%s' is not dense (C order, aligned)",
                name);
    else if (got == 1 && !c->out[i].writable)
        py_fail(TACIT_ERR_ARGUMENT, "the array for output '%s' is read-only", name);
    if (got != 1 || !c->out[i].writable)
        return false;
    Py_INCREF(array);
    c->results[i] = array;
    return true;
}

bool py_call_outputs(py_call *c, const py_ports *ports, PyObject *out, py_pool *pool)
{
    bool many = out && (PyTuple_Check(out) || PyList_Check(out));
    if (out &&
        (many ? PySequence_Size(out) != (Py_ssize_t)ports->n_outputs : ports->n_outputs != 1)) {
        py_fail(TACIT_ERR_ARGUMENT, "out must be %u arrays, in the outputs' order",
                ports->n_outputs);
        return false;
    }
    for (uint32_t i = 0; i < ports->n_outputs; i++) {
        tacit_tensor *t = &c->tensors_out[i];
        *t = (tacit_tensor){0};
        if (out) {
            PyObject *array = many ? PySequence_GetItem(out, i) : out;
            bool ok = array && (array == Py_None || bind_given_output(c, ports, i, array));
            if (many)
                Py_XDECREF(array);
            if (!ok)
                return false;
        }
        if (!c->results[i] && pool && !py_pool_array(pool, i, &c->results[i], &c->out[i]))
            return false;
        if (c->results[i])
            py_array_tensor(&c->out[i], t);
    }
    return true;
}

PyObject *py_call_result(py_call *c, uint32_t i)
{
    PyObject *result = c->results[i];
    c->results[i] = NULL;
    return result ? result : py_value_copy(&c->tensors_out[i]);
}

PyObject *py_call_results(py_call *c, const py_ports *ports)
{
    if (ports->n_outputs == 1)
        return py_call_result(c, 0);
    PyObject *all = PyTuple_New(ports->n_outputs);
    for (uint32_t i = 0; all && i < ports->n_outputs; i++) {
        PyObject *one = py_call_result(c, i);
        if (!one || PyTuple_SetItem(all, i, one) < 0)
            Py_CLEAR(all);
    }
    return all;
}
