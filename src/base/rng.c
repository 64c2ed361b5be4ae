/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rng.h"

#include <math.h>

double rng_normal(rng *r)
{
    double u = 1.0 - rng_f64(r); /* never zero */
    double v = rng_f64(r);
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}
