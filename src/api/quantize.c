/* SPDX-License-Identifier: Apache-2.0
 * Quantising a model: a copy of its graph whose linear layers have weights in fewer bits. */
#include "pass/quantize.h"
#include "api/internal.h"

static tacit_status make(tacit_model *m, const tacit_quantize_options *o,
                         tacit_quantize_report *report, tacit_error *err)
{
    pass_value_range *ranges = NULL;
    if (o->ranges) {
        ranges = ARENA_ARRAY(&m->memory, o->n_ranges + 1u, pass_value_range);
        if (!ranges)
            return error_memory(err, "a model");
        for (uint32_t i = 0; i < o->n_ranges; i++) {
            if (!o->ranges[i].value || !(o->ranges[i].low <= o->ranges[i].high))
                return error_set(err, TACIT_ERR_ARGUMENT,
                                 "tacit_quantize: range %u has no name or is empty", i);
            ranges[i] = (pass_value_range){o->ranges[i].value, o->ranges[i].low, o->ranges[i].high};
        }
    }
    pass_quantize_options options = {.storage = (pass_storage)o->weights,
                                     .block = o->block ? o->block : 32,
                                     .ranges = ranges,
                                     .n_ranges = o->n_ranges};
    pass_quantize_report done;
    TRY(pass_quantize(m->graph, &options, &done, err));
    if (report)
        *report = (tacit_quantize_report){.layers = done.layers,
                                          .bytes_before = done.bytes_before,
                                          .bytes_after = done.bytes_after,
                                          .weight_error = done.error};
    return TACIT_OK;
}

tacit_status tacit_quantize(const tacit_model *model, const tacit_quantize_options *options,
                            tacit_model **out, tacit_quantize_report *report, tacit_error *err)
{
    static const tacit_quantize_options defaults;
    const tacit_quantize_options *o = options ? options : &defaults;
    if (!model || !out)
        return error_set(err, TACIT_ERR_ARGUMENT, "tacit_quantize: model and out must not be NULL");
    *out = NULL;
    if ((unsigned)o->weights > TACIT_STORE_F16)
        return error_set(err, TACIT_ERR_ARGUMENT, "tacit_quantize: unknown storage %d",
                         (int)o->weights);
    tacit_load_options load = {.allocator = &model->allocator, .log = &model->log};
    tacit_model *m = api_model_new(&load);
    if (!m)
        return error_memory(err, "a model");
    m->base = model;
    api_model_retain(model);
    m->graph = ir_graph_clone(model->graph, &m->memory);
    tacit_status status = m->graph ? make(m, o, report, err) : error_memory(err, "a model");
    if (status != TACIT_OK) {
        api_model_release(m);
        return status;
    }
    *out = m;
    return TACIT_OK;
}
