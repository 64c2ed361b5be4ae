/* SPDX-License-Identifier: Apache-2.0
 *
 * The upgrade table. Rules turn attributes into constant inputs, spell out defaults that changed,
 * and express withdrawn behaviour with newer ops. Where a rule needs a rank or dtype that is not
 * known while loading, it builds the few nodes that compute it: inference folds them away.
 */
#include "load/upgrade.h"

#include <stdlib.h>
#include <string.h>

#include "load/contrib.h"
#include "load/rewrite.h"
#include "op/specimen.h"

/* The ints attribute `name` becomes constant input `i`. */
static tacit_status ints_to_input(rewrite *u, const char *name, uint32_t i)
{
    uint32_t count;
    const int64_t *values = ir_attr_ints(u->node, name, &count);
    if (!values)
        return TACIT_OK;
    if (rewrite_input(u, i))
        return error_set(u->err, TACIT_ERR_GRAPH, "'%s' is given twice", name);
    ir_value *v = rewrite_ints(u, name, count, values);
    if (!v)
        return rewrite_no_memory(u);
    ir_attr_remove(u->node, name);
    return rewrite_set_input(u, i, v);
}

static tacit_status float_to_input(rewrite *u, const char *name, uint32_t i)
{
    const ir_attr *a = ir_attr_find(u->node, name);
    if (!a || a->kind != IR_ATTR_FLOAT || !rewrite_input(u, 0))
        return TACIT_OK;
    ir_value *v = rewrite_scalar(u, name, a->f, rewrite_input(u, 0));
    if (!v)
        return rewrite_no_memory(u);
    ir_attr_remove(u->node, name);
    return rewrite_set_input(u, i, v);
}

/* The batched form of opset 8 has no newer equal: it keeps a row of its own. */
static tacit_status scan(rewrite *u)
{
    uint32_t n;
    const int64_t *directions = ir_attr_ints(u->node, "directions", &n);
    if (directions && !ir_attr_set_ints(u->g, u->node, "scan_input_directions", n, directions))
        return rewrite_no_memory(u);
    ir_attr_remove(u->node, "directions");
    u->node->domain = "tacit";
    return rewrite_type(u, "BatchedScan");
}

/* --- rules ------------------------------------------------------------------------------------ */

static tacit_status axes_input(rewrite *u)
{
    return ints_to_input(u, "axes", 1);
}

static tacit_status split(rewrite *u)
{
    TRY(ints_to_input(u, "split", 1));
    if (!rewrite_input(u, 1) && !ir_attr_find(u->node, "num_outputs"))
        REWRITE_SET(ir_attr_set_int(u->g, u->node, "num_outputs", u->node->n_outputs));
    return TACIT_OK;
}

static tacit_status slice(rewrite *u)
{
    TRY(ints_to_input(u, "starts", 1));
    TRY(ints_to_input(u, "ends", 2));
    return ints_to_input(u, "axes", 3);
}

static tacit_status pad(rewrite *u)
{
    TRY(ints_to_input(u, "pads", 1));
    TRY(ints_to_input(u, "paddings", 1));
    if (ir_attr_float(u->node, "value", 0.0) == 0.0) {
        ir_attr_remove(u->node, "value");
        return TACIT_OK;
    }
    return float_to_input(u, "value", 2);
}

static tacit_status clip(rewrite *u)
{
    TRY(float_to_input(u, "min", 1));
    return float_to_input(u, "max", 2);
}

/* All forms before 12 are the identity when a model is run rather than trained. */
static tacit_status dropout(rewrite *u)
{
    ir_attr_remove(u->node, "ratio");
    ir_attr_remove(u->node, "is_test");
    if (u->version >= 10 || u->node->n_outputs < 2 || !u->node->outputs[1] || !rewrite_input(u, 0))
        return TACIT_OK;
    ir_value *mask = rewrite_detach_output(u, 1);
    if (!mask)
        return rewrite_no_memory(u);
    return rewrite_attach_output(u, "CastLike", 2,
                                 (ir_value *[]){u->node->outputs[1], rewrite_input(u, 0)}, mask);
}

static tacit_status top_k(rewrite *u)
{
    const ir_attr *a = ir_attr_find(u->node, "k");
    if (!a || a->kind != IR_ATTR_INT)
        return error_set(u->err, TACIT_ERR_GRAPH, "the attribute 'k' is missing");
    ir_value *k = rewrite_ints(u, "k", 1, &a->i);
    if (!k)
        return rewrite_no_memory(u);
    ir_attr_remove(u->node, "k");
    return rewrite_set_input(u, 1, k);
}

/* Old resizing maps output i to input i/scale and rounds toward the start (the end, shrinking). */
static tacit_status resize_mode(rewrite *u, const ir_tensor *scales)
{
    bool shrinks = false, grows = false;
    for (int64_t i = 0, n = scales && scales->dtype == TACIT_F32 ? ir_tensor_count(scales) : 0;
         i < n; i++) {
        double s = ir_load_f64(TACIT_F32, scales->data, i);
        shrinks |= s < 1.0;
        grows |= s > 1.0;
    }
    REWRITE_SET(ir_attr_set_string(u->g, u->node, "coordinate_transformation_mode", "asymmetric"));
    REWRITE_SET(
        ir_attr_set_string(u->g, u->node, "nearest_mode", shrinks && !grows ? "ceil" : "floor"));
    if (strcmp(ir_attr_string(u->node, "mode", "nearest"), "bilinear") == 0)
        REWRITE_SET(ir_attr_set_string(u->g, u->node, "mode", "linear"));
    return TACIT_OK;
}

static tacit_status upsample(rewrite *u)
{
    uint32_t count = 0;
    const double *scales = ir_attr_floats(u->node, "scales", &count);
    double two_d[4] = {1.0, 1.0, ir_attr_float(u->node, "height_scale", 0.0),
                       ir_attr_float(u->node, "width_scale", 0.0)};
    if (!scales && two_d[2] > 0.0 && two_d[3] > 0.0) {
        scales = two_d;
        count = 4;
    }
    ir_value *v = rewrite_input(u, 1);
    if (scales) {
        int64_t n = count;
        ir_shape shape = ir_shape_of(1, &n);
        ir_tensor *t = ir_tensor_new(u->g->memory, TACIT_F32, &shape);
        for (uint32_t i = 0; t && i < count; i++)
            ((float *)t->data)[i] = (float)scales[i];
        v = t ? ir_constant_new(u->g, u->node->name, t) : NULL;
        if (!v)
            return rewrite_no_memory(u);
        ir_attr_remove(u->node, "scales");
        ir_attr_remove(u->node, "height_scale");
        ir_attr_remove(u->node, "width_scale");
    }
    if (!v)
        return error_set(u->err, TACIT_ERR_GRAPH, "the scales are missing");
    TRY(rewrite_set_input(u, 1, NULL));
    TRY(rewrite_set_input(u, 2, v));
    TRY(resize_mode(u, ir_value_known(v)));
    return rewrite_type(u, "Resize");
}

static tacit_status resize(rewrite *u)
{
    if (u->version < 11) {
        ir_value *scales = rewrite_input(u, 1);
        TRY(rewrite_set_input(u, 2, scales));
        TRY(rewrite_set_input(u, 1, NULL));
        return resize_mode(u, ir_value_known(scales));
    }
    /* Version 11 wrote an absent roi or scales as an empty tensor. */
    for (uint32_t i = 1; i < u->node->n_explicit && i < 4; i++) {
        const ir_tensor *t = ir_value_known(rewrite_input(u, i));
        if (t && ir_tensor_count(t) == 0)
            u->node->inputs[i] = NULL;
    }
    return TACIT_OK;
}

/* Before 13 the input was seen as a matrix, split at `axis`. */
static tacit_status softmax(rewrite *u)
{
    int64_t axis = ir_attr_int(u->node, "axis", 1);
    ir_value *x = rewrite_input(u, 0);
    REWRITE_SET(ir_attr_set_int(u->g, u->node, "axis", -1));
    if (!x || u->node->n_outputs < 1 || !u->node->outputs[0] || axis == -1)
        return TACIT_OK;
    int32_t rank = x->type.shape.rank;
    if (x->type.dtype != TACIT_DTYPE_NONE && rank > 0 &&
        (axis < 0 ? axis + rank : axis) == rank - 1)
        return TACIT_OK;
    ir_value *shape = rewrite_add(u, "Shape", 1, &x);
    ir_value *matrix = shape ? rewrite_add(u, "Flatten", 1, &x) : NULL;
    if (!matrix || !ir_attr_set_int(u->g, matrix->producer, "axis", axis))
        return rewrite_no_memory(u);
    TRY(rewrite_set_input(u, 0, matrix));
    ir_value *old = rewrite_detach_output(u, 0);
    if (!old)
        return rewrite_no_memory(u);
    return rewrite_attach_output(u, "Reshape", 2, (ir_value *[]){u->node->outputs[0], shape}, old);
}

static tacit_status batch_norm(rewrite *u)
{
    if (ir_attr_int(u->node, "spatial", 1) == 0)
        return error_set(u->err, TACIT_ERR_UNSUPPORTED, "spatial=0 is not supported");
    for (uint32_t i = 1; i < u->node->n_outputs; i++)
        if (u->node->outputs[i])
            return error_set(u->err, TACIT_ERR_UNSUPPORTED,
                             "training outputs of opset %lld are not supported",
                             (long long)u->version);
    if (u->node->n_outputs > 1)
        u->node->n_outputs = 1;
    ir_attr_remove(u->node, "spatial");
    ir_attr_remove(u->node, "is_test");
    return TACIT_OK;
}

static tacit_status cast(rewrite *u)
{
    static const struct {
        const char *name;
        int code;
    } names[] = {{"FLOAT", 1},   {"UINT8", 2},   {"INT8", 3},   {"UINT16", 4}, {"INT16", 5},
                 {"INT32", 6},   {"INT64", 7},   {"STRING", 8}, {"BOOL", 9},   {"FLOAT16", 10},
                 {"DOUBLE", 11}, {"UINT32", 12}, {"UINT64", 13}};
    const char *to = ir_attr_string(u->node, "to", NULL);
    if (!to)
        return TACIT_OK;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i].name, to) == 0) {
            REWRITE_SET(ir_attr_set_int(u->g, u->node, "to", names[i].code));
            return TACIT_OK;
        }
    return error_set(u->err, TACIT_ERR_TYPE, "cannot cast to '%s'", to);
}

/* The second operand's first axis stands at `axis` of the first: ones are appended to its shape. */
static tacit_status align_second(rewrite *u, int64_t axis)
{
    ir_value *a = rewrite_input(u, 0), *b = rewrite_input(u, 1);
    if (!a || !b)
        return TACIT_OK;
    ir_value *shape_a = rewrite_add(u, "Shape", 1, &a), *shape_b = rewrite_add(u, "Shape", 1, &b);
    ir_value *rank_a = shape_a ? rewrite_add(u, "Shape", 1, &shape_a) : NULL;
    ir_value *rank_b = shape_b ? rewrite_add(u, "Shape", 1, &shape_b) : NULL;
    ir_value *offset = rewrite_ints(u, "axis", 1, &axis);
    if (!rank_a || !rank_b || !offset)
        return rewrite_no_memory(u);
    if (axis < 0) /* counted from the end: the rank of the first cancels out */
        rank_a = rewrite_ints(u, "end", 1, (int64_t[]){0});
    ir_value *left = rank_a ? rewrite_add(u, "Sub", 2, (ir_value *[]){rank_a, offset}) : NULL;
    ir_value *trailing = left ? rewrite_add(u, "Sub", 2, (ir_value *[]){left, rank_b}) : NULL;
    ir_value *ones = trailing ? rewrite_add(u, "ConstantOfShape", 1, &trailing) : NULL;
    ir_tensor *one = ir_tensor_new(u->g->memory, TACIT_I64, &(ir_shape){1, {1}});
    if (!ones || !one)
        return rewrite_no_memory(u);
    *(int64_t *)one->data = 1;
    REWRITE_SET(ir_attr_set(u->g, ones->producer,
                            &(ir_attr){.name = "value", .kind = IR_ATTR_TENSOR, .tensor = one}));
    ir_value *shape = rewrite_add(u, "Concat", 2, (ir_value *[]){shape_b, ones});
    if (!shape || !ir_attr_set_int(u->g, shape->producer, "axis", 0))
        return rewrite_no_memory(u);
    ir_value *aligned = rewrite_add(u, "Reshape", 2, (ir_value *[]){b, shape});
    return aligned ? rewrite_set_input(u, 1, aligned) : rewrite_no_memory(u);
}

static tacit_status old_broadcast(rewrite *u)
{
    const ir_attr *axis = ir_attr_find(u->node, "axis");
    bool aligned = ir_attr_int(u->node, "broadcast", 0) != 0 && axis && axis->kind == IR_ATTR_INT;
    int64_t at = aligned ? axis->i : 0;
    ir_attr_remove(u->node, "broadcast");
    ir_attr_remove(u->node, "axis");
    return aligned ? align_second(u, at) : TACIT_OK;
}

static tacit_status gemm(rewrite *u)
{
    ir_attr_remove(u->node, "broadcast");
    return TACIT_OK;
}

/* One slope per channel. */
static tacit_status prelu(rewrite *u)
{
    return align_second(u, 1);
}

static tacit_status reshape(rewrite *u)
{
    return ints_to_input(u, "shape", 1);
}

static tacit_status concat(rewrite *u)
{
    if (!ir_attr_find(u->node, "axis"))
        REWRITE_SET(ir_attr_set_int(u->g, u->node, "axis", 1));
    return TACIT_OK;
}

static tacit_status scatter(rewrite *u)
{
    return rewrite_type(u, "ScatterElements");
}

static tacit_status lp_pool(rewrite *u)
{
    const ir_attr *p = ir_attr_find(u->node, "p");
    if (p && p->kind == IR_ATTR_FLOAT)
        REWRITE_SET(
            ir_attr_set_int(u->g, u->node, "p", p->f >= 1.0 && p->f < 1e6 ? (int64_t)p->f : 0));
    return TACIT_OK;
}

static tacit_status dft(rewrite *u)
{
    int64_t axis = ir_attr_int(u->node, "axis", 1);
    const char *stem = arena_printf(u->g->memory, "%s_axis", u->node->name);
    ir_value *v = stem ? ir_constant_i64(u->g, stem, 0, 1, &axis) : NULL;
    if (!v)
        return rewrite_no_memory(u);
    ir_attr_remove(u->node, "axis");
    return rewrite_set_input(u, 2, v);
}

static tacit_status grid_sample(rewrite *u)
{
    const char *mode = ir_attr_string(u->node, "mode", "bilinear");
    if (strcmp(mode, "bilinear") == 0)
        REWRITE_SET(ir_attr_set_string(u->g, u->node, "mode", "linear"));
    else if (strcmp(mode, "bicubic") == 0)
        REWRITE_SET(ir_attr_set_string(u->g, u->node, "mode", "cubic"));
    return TACIT_OK;
}

static tacit_status roi_align(rewrite *u)
{
    REWRITE_SET(
        ir_attr_set_string(u->g, u->node, "coordinate_transformation_mode", "output_half_pixel"));
    return TACIT_OK;
}

/* Scale and bias were per group: repeat each for the channels of its group. */
static tacit_status group_norm(rewrite *u)
{
    int64_t groups = ir_attr_int(u->node, "num_groups", 0);
    if (groups <= 0 || !rewrite_input(u, 0) || !rewrite_input(u, 1) || !rewrite_input(u, 2))
        return error_set(u->err, TACIT_ERR_GRAPH, "num_groups, scale or bias is missing");
    ir_value *x = rewrite_input(u, 0), *count = rewrite_ints(u, "groups", 1, &groups);
    ir_value *channels = rewrite_add(u, "Shape", 1, &x);
    ir_value *last = rewrite_ints(u, "last", 1, (int64_t[]){1}),
             *all = rewrite_ints(u, "all", 1, (int64_t[]){-1});
    if (!channels || !count || !last || !all ||
        !ir_attr_set_int(u->g, channels->producer, "start", 1) ||
        !ir_attr_set_int(u->g, channels->producer, "end", 2))
        return rewrite_no_memory(u);
    ir_value *each = rewrite_add(u, "Div", 2, (ir_value *[]){channels, count});
    ir_value *shape = each ? rewrite_add(u, "Concat", 2, (ir_value *[]){count, each}) : NULL;
    if (!shape || !ir_attr_set_int(u->g, shape->producer, "axis", 0))
        return rewrite_no_memory(u);
    for (uint32_t i = 1; i <= 2; i++) {
        ir_value *column =
            rewrite_add(u, "Unsqueeze", 2, (ir_value *[]){rewrite_input(u, i), last});
        ir_value *wide = column ? rewrite_add(u, "Expand", 2, (ir_value *[]){column, shape}) : NULL;
        ir_value *flat = wide ? rewrite_add(u, "Reshape", 2, (ir_value *[]){wide, all}) : NULL;
        if (!flat)
            return rewrite_no_memory(u);
        TRY(rewrite_set_input(u, i, flat));
    }
    return TACIT_OK;
}

static tacit_status mean_variance(rewrite *u)
{
    bool across = ir_attr_int(u->node, "across_channels", 0) != 0;
    ir_attr_remove(u->node, "across_channels");
    ir_attr_remove(u->node, "normalize_variance");
    if (across)
        REWRITE_SET(ir_attr_set_ints(u->g, u->node, "axes", 4, (int64_t[]){0, 1, 2, 3}));
    return TACIT_OK;
}

static tacit_status refuse(rewrite *u)
{
    return error_set(u->err, TACIT_ERR_UNSUPPORTED, "the form of opset %lld is not supported",
                     (long long)u->version);
}

/* --- the table -------------------------------------------------------------------------------- */

typedef struct upgrade_row {
    const char *type;
    int64_t before; /* applies to files below this opset */
    tacit_status (*rule)(rewrite *u);
} upgrade_row;

static const upgrade_row rows[] = {
    /* axes became an input */
    {"Squeeze", 13, axes_input},
    {"Unsqueeze", 13, axes_input},
    {"ReduceSum", 13, axes_input},
    {"ReduceL1", 18, axes_input},
    {"ReduceL2", 18, axes_input},
    {"ReduceLogSum", 18, axes_input},
    {"ReduceLogSumExp", 18, axes_input},
    {"ReduceMax", 18, axes_input},
    {"ReduceMean", 18, axes_input},
    {"ReduceMin", 18, axes_input},
    {"ReduceProd", 18, axes_input},
    {"ReduceSumSquare", 18, axes_input},
    /* other attributes that became inputs */
    {"Clip", 11, clip},
    {"DFT", 20, dft},
    {"Pad", 11, pad},
    {"Reshape", 5, reshape},
    {"Slice", 10, slice},
    {"Split", 18, split},
    {"TopK", 10, top_k},
    /* broadcasting by attribute */
    {"Add", 7, old_broadcast},
    {"Sub", 7, old_broadcast},
    {"Mul", 7, old_broadcast},
    {"Div", 7, old_broadcast},
    {"Pow", 7, old_broadcast},
    {"And", 7, old_broadcast},
    {"Or", 7, old_broadcast},
    {"Xor", 7, old_broadcast},
    {"Equal", 7, old_broadcast},
    {"Greater", 7, old_broadcast},
    {"Less", 7, old_broadcast},
    {"Gemm", 7, gemm},
    {"PRelu", 7, prelu},
    /* changed meaning, names or defaults */
    {"BatchNormalization", 14, batch_norm},
    {"Cast", 6, cast},
    {"Concat", 4, concat},
    {"Dropout", 12, dropout},
    {"GlobalLpPool", 2, lp_pool},
    {"GridSample", 20, grid_sample},
    {"GroupNormalization", 21, group_norm},
    {"Hardmax", 13, softmax},
    {"LogSoftmax", 13, softmax},
    {"LpPool", 2, lp_pool},
    {"MeanVarianceNormalization", 9, mean_variance},
    {"Resize", 13, resize},
    {"RoiAlign", 16, roi_align},
    {"Scan", 9, scan},
    {"Scatter", INT64_MAX, scatter},
    {"Softmax", 13, softmax},
    {"Tile", 6, refuse},
    {"Upsample", 10, upsample},
};

tacit_status load_upgrade(ir_graph *g, ir_node *node, int64_t version, tacit_error *err)
{
    if (*node->domain)
        return load_contrib(g, node, err);
    ir_attr_remove(node, "consumed_inputs"); /* a memory hint of the first opset */
    rewrite u = {g, node, version, err};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strcmp(rows[i].type, node->type) != 0)
            continue;
        if (version >= rows[i].before)
            return TACIT_OK;
        ir_node_note(g, node, "load", "%s of opset %lld brought to its newest form", rows[i].type,
                     (long long)version);
        return rows[i].rule(&u);
    }
    return TACIT_OK;
}

void load_opsets(const op_def *row, int64_t *first, int64_t *newest_form)
{
    *first = *newest_form = op_first_opset(row);
    for (size_t i = 0; !row->domain && i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].type, row->name) == 0) {
            *newest_form = rows[i].before;
            *first = rows[i].rule == refuse ? rows[i].before : *first;
        }
}
