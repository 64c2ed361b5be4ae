/* SPDX-License-Identifier: Apache-2.0
 * The ONNX conformance data, where it is at hand. */
#ifndef TESTS_SUPPORT_SUITE_H
#define TESTS_SUPPORT_SUITE_H

#include <stddef.h>

/* The folder that holds node/, simple/ and so on: $TACIT_ONNX_TESTS, then ../shared, then the onnx
 * package of .venv. NULL (and a loud line) when there is none. */
const char *suite_folder(void);
/* Calls `visit` with the path of every *.onnx file below `folder`; returns how many. */
size_t suite_each_model(const char *folder, void (*visit)(void *context, const char *path),
                        void *context);

/* A Python that can import onnx, onnxruntime and numpy: $TACIT_PYTHON, then .venv, then python3.
 * NULL (and a loud line) when there is none. */
const char *suite_python(void);

#endif
