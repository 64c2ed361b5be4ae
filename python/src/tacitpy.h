/* SPDX-License-Identifier: Apache-2.0
 *
 * tacitpy.h: what the files of the extension module share.
 *
 * The module is one per process (no subinterpreters), so its few cached objects are one static
 * struct. Objects keep alive what they stand on: a session its program, a program its model, a
 * model the Python objects whose memory it uses.
 */
#ifndef TACITPY_H
#define TACITPY_H

#include <Python.h>
#include <stdbool.h>

#include "tacit/tacit.h"

typedef struct py_state {
    PyObject *error;      /* tacit.Error */
    PyObject *model_type; /* the classes objects are made of: see configure */
    PyObject *program_type;
    PyObject *session_type;
    PyObject *runner_type;
    PyObject *builder_type;
    PyObject *block_type;   /* memory of an array that came from a pool */
    PyObject *empty;        /* numpy.empty */
    PyObject *asarray;      /* numpy.asarray */
    PyObject *convert;      /* (object, dtype name, input name, strict) -> dense array */
    PyObject *place;        /* object of another library -> array on its memory, or None */
    PyObject *unpack;       /* (uint8 array, dtype name, shape) -> one element per item */
    PyObject *array_struct; /* "__array_struct__" */
    PyObject *dtype;        /* "dtype" */
    PyObject *dtypes[TACIT_DTYPE_COUNT]; /* numpy dtypes; NULL where numpy has none */
    unsigned long forks;                 /* of this process's ancestors since the import */
} py_state;
extern py_state py;

typedef struct py_model {
    PyObject_HEAD tacit_model *model;
    PyObject *keep; /* whose memory the model uses: bytes, arrays, the model it came from */
} py_model;

typedef struct py_program {
    PyObject_HEAD tacit_program *program;
    PyObject *model;
} py_program;

/* The array interface's C struct, protocol version 3 (numpy.org/doc, "The array interface"): it is
 * fixed, needs no NumPy headers and, unlike Py_buffer, is there on every Python from 3.9. */
typedef struct py_array_interface {
    int two; /* always 2 */
    int nd;
    char typekind;
    int itemsize;
    int flags;
    Py_ssize_t *shape;
    Py_ssize_t *strides;
    void *data;
    PyObject *descr;
} py_array_interface;
enum {
    PY_ARRAY_DENSE = 0x1 | 0x100 | 0x200, /* C order, aligned, this machine's byte order */
    PY_ARRAY_WRITEABLE = 0x400
};

/* A dense array lent by a Python object; `owner` keeps it in place. */
typedef struct py_array {
    PyObject *owner;
    tacit_dtype dtype;
    int32_t rank;
    int64_t dims[TACIT_MAX_RANK];
    void *data;
    size_t bytes;
    bool writable;
} py_array;

/* Raises tacit.Error with the status's name and the message; returns NULL. */
PyObject *py_raise(tacit_status status, const tacit_error *err);
PyObject *py_fail(tacit_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Text of a str as a new bytes object (*bytes), NULL with an exception set. */
const char *py_text(PyObject *object, PyObject **bytes);
/* TACIT_DTYPE_NONE with an exception for a name that is none. */
tacit_dtype py_dtype_named(const char *name);

/* Imports tacit._arrays, and so NumPy, when arrays are first needed. False: exception. */
bool py_arrays_ready(void);
/* 1: lent; 0: this object needs converting first (no exception); -1: exception. */
int py_array_lend(PyObject *object, py_array *out);
void py_array_release(py_array *array);
PyObject *py_shape(int32_t rank, const int64_t *dims); /* a tuple */
/* A new, uninitialised numpy array, lent as well. NULL: exception. */
PyObject *py_array_new(tacit_dtype dtype, int32_t rank, const int64_t *dims, py_array *out);
/* A numpy array with a copy of a tensor: strings become str objects, packed types are unpacked. */
PyObject *py_array_copy(const tacit_tensor *tensor);

/* For what py_array_lend does not take: tacit._arrays.convert makes it a dense array, or (storage,
 * shape) for strings and packed types, which NumPy has no dense form for. `keep` is a list that
 * gets what must outlive the run. */
bool py_array_convert(PyObject *object, const tacit_port *port, bool strict, PyObject *keep,
                      py_array *a);
void py_array_tensor(const py_array *a, tacit_tensor *t); /* everything but the name */
/* A value that is not a tensor, for a port of that kind; `t` is zeroed but for its name. */
bool py_value_in(PyObject *object, const tacit_port *port, bool strict, PyObject *keep,
                 tacit_tensor *t);
/* A value of any kind as arrays, lists, dicts and None. */
PyObject *py_value_copy(const tacit_tensor *t);

/* The ports of a program or model, whose strings they use. False: exception. */
typedef struct py_ports {
    tacit_port *inputs, *outputs;
    uint32_t n_inputs, n_outputs;
    PyObject *index; /* {input name: position} */
} py_ports;
bool py_ports_of_program(py_ports *ports, const tacit_program *program);
bool py_ports_of_model(py_ports *ports, const tacit_model *model);
void py_ports_free(py_ports *ports);

/* Makes the arrays of a session's outputs; see pool.c. NULL, false: exception. */
typedef struct py_pool py_pool;
py_pool *py_pool_new(const tacit_port *outputs, uint32_t count);
/* Arrays that are still in use outlive it. */
void py_pool_close(py_pool *pool);
/* Leaves *array NULL where the shape is known only after the run. */
bool py_pool_array(py_pool *pool, uint32_t i, PyObject **array, py_array *lent);

/* The arrays of one call. */
typedef struct py_call {
    py_array *in, *out;
    PyObject **results;
    PyObject **keep; /* lists of what stands behind converted inputs */
    tacit_tensor *tensors_in, *tensors_out;
    uint32_t given; /* inputs so far */
    bool strict;
} py_call;
bool py_call_make(py_call *c, const py_ports *ports);
void py_call_free(py_call *c);
/* Fills tensors_in and, from the keyword argument `out`, *out (borrowed). */
bool py_call_inputs(py_call *c, const py_ports *ports, PyObject *args, PyObject *kwargs,
                    PyObject **out);
/* Fills tensors_out: with the arrays of `out`, then (where there is a pool) with new ones. */
bool py_call_outputs(py_call *c, const py_ports *ports, PyObject *out, py_pool *pool);
PyObject *py_call_result(py_call *c, uint32_t i);             /* one output */
PyObject *py_call_results(py_call *c, const py_ports *ports); /* one array, or a tuple of them */
void py_call_end(py_call *c, const py_ports *ports);          /* releases what it still holds */

/* (name, dtype, (dim, ...) or None, kind): a dim is an int, a symbol's name or None. */
PyObject *py_port(const tacit_port *port);

/* {name: size} as tacit_dims. Release with py_dims_free. */
typedef struct py_dims {
    tacit_dim *dims;
    uint32_t count;
    PyObject *texts;
} py_dims;
bool py_dims_get(PyObject *mapping, py_dims *out);
void py_dims_free(py_dims *dims);
bool py_dims_has(const py_dims *dims, const char *name);
/* A sequence of str as C strings. Release with py_names_free. */
typedef struct py_names {
    const char **names;
    uint32_t count;
    PyObject *texts;
} py_names;
bool py_names_get(PyObject *sequence, py_names *out);
void py_names_free(py_names *names);

/* The options tacit.compile gives as one tuple. Release with py_options_free. */
typedef struct py_options {
    tacit_compile_options compile;
    py_dims dims;
    py_names passes, last;
} py_options;
bool py_options_get(PyObject *tuple, py_options *out);
void py_options_free(py_options *options);

PyObject *py_model_wrap(tacit_model *model, PyObject *keep); /* steals the model, not keep */
/* The C model of a Model; NULL with an exception for one that was never made. */
tacit_model *py_model_of(PyObject *model);
PyObject *py_model_grad(PyObject *self, PyObject *args);
PyObject *py_model_train_step(PyObject *self, PyObject *args);
PyObject *py_model_jvp(PyObject *self, PyObject *args);
PyObject *py_model_vmap(PyObject *self, PyObject *args);
PyObject *py_model_quantize(PyObject *self, PyObject *args);
PyObject *py_model_runner(PyObject *self, PyObject *args);
PyObject *py_program_wrap(tacit_program *program, PyObject *model); /* steals the program */

/* A new instance of one of the classes above; NULL: exception. */
PyObject *py_instance(PyObject *type);
/* Ends an instance: memory and its reference to the class. */
void py_instance_free(PyObject *self);

bool py_model_ready(PyObject *module);
bool py_program_ready(PyObject *module);
bool py_session_ready(PyObject *module);
bool py_runner_ready(PyObject *module);
bool py_pool_ready(void);
bool py_builder_ready(PyObject *module);
bool py_secure_ready(PyObject *module);
bool py_tokenizer_ready(PyObject *module);
PyObject *py_load(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *py_load_memory(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *py_session_new(PyObject *program, bool strict);
/* A run whose inputs are bound already; the results stay in the call. False: exception. */
bool py_session_run(PyObject *session, py_call *c, PyObject *out);
const tacit_program *py_session_runs(PyObject *session); /* NULL: closed */

#endif
