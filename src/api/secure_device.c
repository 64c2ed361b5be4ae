/* SPDX-License-Identifier: Apache-2.0
 * Private inference: where it is computed, and a party's run there. */
#include "api/secure_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"

tacit_status api_choose_device(const char *wanted, uint64_t budget, cuda_device *device, char *why,
                               size_t size, tacit_error *err)
{
    *device = (cuda_device){0};
    if (!wanted || !*wanted)
        wanted = getenv("TACIT_DEVICE");
    if (!wanted || !*wanted)
        wanted = "cpu";
    snprintf(why, size, "cpu");
    unsigned long n = 0;
    bool automatic = strcmp(wanted, "auto") == 0;
    if (strcmp(wanted, "cpu") == 0)
        return TACIT_OK;
    if (strncmp(wanted, "cuda:", 5) == 0) {
        char *end = NULL;
        n = strtoul(wanted + 5, &end, 10);
        if (!wanted[5] || *end || n > 1023)
            return error_set(err, TACIT_ERR_ARGUMENT, "'%s' names no device", wanted);
    } else if (strcmp(wanted, "cuda") != 0 && !automatic)
        return error_set(err, TACIT_ERR_ARGUMENT, "a device is auto, cpu, cuda or cuda:N, not '%s'",
                         wanted);
    char missing[96];
    if (!cuda_present(missing, sizeof missing)) {
        if (!automatic)
            snprintf(why, size, "cpu (no GPU: %s)", missing);
        return TACIT_OK;
    }
    tacit_error trouble;
    tacit_status status = cuda_open((unsigned)n, budget, device, automatic ? &trouble : err);
    if (status != TACIT_OK && automatic)
        return TACIT_OK;
    snprintf(why, size, "%s", device->name);
    return status;
}

static tacit_status open_all(const device_job *j, cuda_device *devices, tacit_error *err)
{
    devices[0] = *j->device;
    for (unsigned i = 1; i < j->count; i++)
        TRY(cuda_open(j->device->ordinal, j->device->memory, &devices[i], err));
    return TACIT_OK;
}

/* Keys of all inferences: the first is open already. */
static tacit_status load_all(const device_job *j, sec_device *d, key_reader *more, sec_link *links,
                             tacit_error *err)
{
    for (unsigned i = 0; i < j->count; i++) {
        links[i] = *j->link;
        if (i) {
            TRY(key_reader_open(&more[i], j->key_path, j->key_secret, err));
            TRY(key_take_run(&more[i], j->run + i, err));
            links[i].key_context = &more[i];
        }
        TRY(sec_device_load(d, i, &links[i], err));
    }
    return TACIT_OK;
}

tacit_status api_device_run(const device_job *j, uint64_t *prepared, uint64_t *done,
                            tacit_error *err)
{
    cuda_device *devices = calloc(j->count, sizeof *devices);
    key_reader *more = calloc(j->count, sizeof *more);
    sec_link *links = calloc(j->count, sizeof *links);
    sec_device *d = NULL;
    tacit_status status =
        devices && more && links ? TACIT_OK : error_memory(err, "a party on a device");
    if (status == TACIT_OK)
        status = open_all(j, devices, err);
    if (status == TACIT_OK)
        status = sec_device_create(j->program, j->party, devices, j->count, j->weights,
                                   &(sec_device_options){.host_bytes = j->host_bytes}, &d, err);
    if (status == TACIT_OK)
        status = load_all(j, d, more, links, err);
    *prepared = clock_ns();
    if (status == TACIT_OK)
        status = sec_device_run(d, j->run, j->link, j->inputs, j->outputs, err);
    *done = clock_ns();
    sec_device_free(d);
    for (unsigned i = 1; i < j->count && devices && more; i++) {
        key_reader_close(&more[i]);
        if (devices[i].ops)
            cuda_close(&devices[i]);
    }
    free(devices);
    free(more);
    free(links);
    return status;
}
