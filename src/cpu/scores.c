/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/scores.h"

#include <math.h>

double cpu_logistic(double x)
{
    double v = 1 / (1 + exp(-fabs(x)));
    return x < 0 ? 1 - v : v;
}

/* √2·erf⁻¹(2p − 1), by the approximation that the standard's reference has. */
double cpu_probit(double p)
{
    double w = log(4 * p * (1 - p)), a = 2 / (3.14159265358979 * 0.147) + w / 2;
    double r = sqrt(sqrt(a * a - w / 0.147) - a);
    return 1.41421356237310 * (2 * p - 1 < 0 ? -r : r);
}

static void softmax(bool keeps_zeros, double *v, int64_t n)
{
    double most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, v[i]);
    for (int64_t i = 0; i < n; i++) {
        v[i] = keeps_zeros && fabs(v[i]) <= 1e-7 ? 0 : exp(v[i] - most);
        sum += v[i];
    }
    for (int64_t i = 0; i < n; i++)
        v[i] = sum > 0 ? v[i] / sum : v[i];
}

void cpu_post_transform(cpu_post post, double *v, int64_t n)
{
    switch (post) {
    case CPU_POST_SOFTMAX:
    case CPU_POST_SOFTMAX_ZERO:
        softmax(post == CPU_POST_SOFTMAX_ZERO, v, n);
        break;
    case CPU_POST_LOGISTIC:
    case CPU_POST_PROBIT:
        for (int64_t i = 0; i < n; i++)
            v[i] = post == CPU_POST_LOGISTIC ? cpu_logistic(v[i]) : cpu_probit(v[i]);
        break;
    case CPU_POST_NONE:
        break;
    }
}

/* Two classes and the sum of one of them. As ONNX Runtime has it, against which exported models
 * are checked: a sum for class 0 is that of the second class, and its opposite becomes the first;
 * a sum for class 1 stands as it is. */
static int64_t finish_binary(const cpu_scores *s, double *sum)
{
    double score = sum[s->named];
    bool wins = s->positive ? score > 0.5 : score > 0;
    if (s->named == 0) {
        bool complement = s->positive && s->post != CPU_POST_LOGISTIC;
        sum[0] = complement || s->post == CPU_POST_PROBIT ? 1 - score : -score;
        sum[1] = score;
    }
    /* What is a probability already, or a pair of opposites, is left so. */
    if (s->named == 1 || s->post == CPU_POST_LOGISTIC || s->post == CPU_POST_PROBIT)
        cpu_post_transform(s->post, sum, 2);
    return wins;
}

static int64_t best_reached(const cpu_scores *s, const double *sum, const uint8_t *reached)
{
    int64_t best = -1;
    for (int64_t k = 0; k < s->n; k++)
        if ((reached[k] || s->n_base == s->n) && (best < 0 || sum[k] > sum[best]))
            best = k;
    return best < 0 ? 0 : best;
}

int64_t cpu_scores_finish(const cpu_scores *s, double *sum, const uint8_t *reached)
{
    for (int64_t k = 0; k < s->n; k++)
        sum[k] = sum[k] / s->divisor + (k < s->n_base ? s->base[k] : 0);
    if (s->binary)
        return finish_binary(s, sum);
    int64_t best = 0;
    if (s->classify)
        best = s->n == 1 ? sum[0] > 0 : best_reached(s, sum, reached);
    if (s->n > 1 || !s->alone_plain || s->post == CPU_POST_PROBIT)
        cpu_post_transform(s->post, sum, s->n);
    return best;
}
