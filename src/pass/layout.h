/* SPDX-License-Identifier: Apache-2.0
 * A layout of images for the whole graph: nodes between convolutions follow them into it, so that
 * the way in and out stands only at the edges of such regions. */
#ifndef PASS_LAYOUT_H
#define PASS_LAYOUT_H

#include "pass/edit.h"

typedef struct pass_layout {
    pass_edit e;
    ir_value **forms; /* by id of the values there were: the form in the layout, or NULL */
    uint32_t values, nodes;
    VEC(ir_node *) done; /* nodes that the layout replaces */
} pass_layout;

typedef struct pass_layout_rules {
    /* Is it a convolution for the layout? Fewer than two do not pay for the way in and out. */
    bool (*is_conv)(const pass_layout *l, const ir_node *n);
    /* Settles a node, or leaves it as it is. In the order of the graph. */
    tacit_status (*visit)(pass_layout *l, ir_node *n);
    /* The plain form of the output of a settled node. */
    tacit_status (*leave)(pass_layout *l, ir_node *n, ir_value **plain);
} pass_layout_rules;

tacit_status pass_layout_run(pass_context *c, const pass_layout_rules *rules);

ir_value *pass_layout_form(const pass_layout *l, const ir_value *v); /* NULL: there is none */
/* A node made from `from`. */
tacit_status pass_layout_add(pass_layout *l, ir_node *from, pass_op op, uint32_t n_inputs,
                             ir_value *const *inputs, uint32_t n_attrs, const ir_attr *attrs,
                             ir_value **out);
/* `form` is the output of n in the layout. */
tacit_status pass_layout_settle(pass_layout *l, ir_node *n, ir_value *form);
/* Nobody will read n. */
tacit_status pass_layout_drop(pass_layout *l, ir_node *n);
tacit_status pass_layout_no_memory(const pass_layout *l);

static inline ir_attr pass_layout_int(const char *name, int64_t value)
{
    return (ir_attr){.name = name, .kind = IR_ATTR_INT, .i = value};
}

#endif
