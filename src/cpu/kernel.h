/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernel contract. A kernel runs tiles [begin, end) of its work, given plain-data arguments
 * whose pointers are already resolved. It allocates nothing, locks nothing, keeps no state and
 * reads nothing outside its arguments; tiles may run in any order and at the same time, so no two
 * tiles write the same byte. Per-tile scratch up to CPU_STACK_SCRATCH bytes may live on the stack.
 */
#ifndef CPU_KERNEL_H
#define CPU_KERNEL_H

#include <stdint.h>

typedef void (*cpu_kernel)(const void *args, uint32_t begin, uint32_t end);

enum { CPU_STACK_SCRATCH = 416 * 1024 };

/* Where a kernel reports what it could not do (an index out of range…). One per session; the
 * executor looks after each thunk. The first report of a run is kept. */
typedef struct cpu_fault {
    int32_t code; /* 0: none; else a cpu_fault_code */
    int32_t
        axis; /* of CPU_FAULT_INDEX: which axis, which entry of the indices, how many there are */
    int64_t entry, limit;
    int64_t detail;
} cpu_fault;

typedef enum cpu_fault_code {
    CPU_FAULT_NONE,
    CPU_FAULT_INDEX,  /* detail: the index */
    CPU_FAULT_DIVIDE, /* integer division by zero */
    CPU_FAULT_VALUE,  /* detail: op-specific */
    CPU_FAULT_PLACE,  /* detail: an index that is not in 0…limit - 1 */
    CPU_FAULT_REGION, /* detail: which region of an image */
    CPU_FAULT_EVAL,   /* an evaluator failed; the session holds its message */
} cpu_fault_code;

/* True for the one report of a run that counts. */
static inline int cpu_report(cpu_fault *fault, cpu_fault_code code, int64_t detail)
{
    int32_t none = CPU_FAULT_NONE;
    if (!__atomic_compare_exchange_n(&fault->code, &none, (int32_t)code, 0, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED))
        return 0;
    fault->detail = detail;
    return 1;
}

/* indices[entry] is `index`, which is outside [-limit, limit) of `axis`. */
static inline void cpu_report_index(cpu_fault *fault, int64_t index, int64_t entry, int64_t limit,
                                    int32_t axis)
{
    if (cpu_report(fault, CPU_FAULT_INDEX, index)) {
        fault->entry = entry;
        fault->limit = limit;
        fault->axis = axis;
    }
}

#endif
