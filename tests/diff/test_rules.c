/* SPDX-License-Identifier: Apache-2.0
 * Every vjp rule in the op table against central differences in double, its jvp against the vjp,
 * and its batching against a loop. A row with a vjp and no case here fails. */
#include <math.h>

#include "diff/harness.h"

typedef struct rule_case {
    const char *op;
    const char *body; /* inputs %a, %b, … are f64; the node's output is %y */
    double low, high; /* range of the inputs */
} rule_case;

#define UNARY(OP, LOW, HIGH)                                                                       \
    {                                                                                              \
        OP, "in %a : f64[2,3]\n%y = " OP "(%a) @n\nout %y", LOW, HIGH                              \
    }
#define BINARY(OP, LOW, HIGH)                                                                      \
    {OP, "in %a : f64[2,1,3]\nin %b : f64[4,1]\n%y = " OP "(%a, %b) @n\nout %y", LOW, HIGH},       \
    {                                                                                              \
        OP, "in %a : f64[3]\nin %b : f64[2,3]\n%y = " OP "(%a, %b) @n\nout %y", LOW, HIGH          \
    }
#define REDUCE(OP, LOW, HIGH)                                                                      \
    {OP,                                                                                           \
     "in %a : f64[2,3,4]\nconst %x : i64[2] = [0, 2]\n%y = " OP "(%a, %x) keepdims=0 @n\nout %y",  \
     LOW, HIGH},                                                                                   \
    {                                                                                              \
        OP, "in %a : f64[2,3]\n%y = " OP "(%a) @n\nout %y", LOW, HIGH                              \
    }

static const rule_case cases[] = {
    UNARY("Neg", -2, 2),
    UNARY("Abs", 0.1, 2),
    UNARY("Abs", -2, -0.1),
    UNARY("Exp", -2, 2),
    UNARY("Log", 0.5, 3),
    UNARY("Sqrt", 0.5, 3),
    UNARY("Reciprocal", 0.5, 3),
    UNARY("Sin", -3, 3),
    UNARY("Cos", -3, 3),
    UNARY("Tan", -1, 1),
    UNARY("Asin", -0.9, 0.9),
    UNARY("Acos", -0.9, 0.9),
    UNARY("Atan", -3, 3),
    UNARY("Sinh", -2, 2),
    UNARY("Cosh", -2, 2),
    UNARY("Tanh", -2, 2),
    UNARY("Asinh", -2, 2),
    UNARY("Acosh", 1.5, 3),
    UNARY("Atanh", -0.9, 0.9),
    UNARY("Erf", -2, 2),
    UNARY("Sigmoid", -3, 3),
    UNARY("Softplus", -3, 3),
    UNARY("Softsign", -3, 3),
    UNARY("Relu", 0.1, 2),
    UNARY("Relu", -2, -0.1),
    UNARY("LeakyRelu", -2, -0.1),
    UNARY("ThresholdedRelu", 1.1, 3),
    UNARY("Elu", -2, -0.1),
    UNARY("Celu", -2, -0.1),
    UNARY("Selu", -2, -0.1),
    UNARY("Selu", 0.1, 2),
    UNARY("HardSigmoid", -2, 2),
    UNARY("HardSwish", -2.9, 2.9),
    UNARY("HardSwish", 3.1, 5),
    UNARY("Swish", -3, 3),
    UNARY("Mish", -3, 3),
    UNARY("Gelu", -3, 3),
    {"Gelu", "in %a : f64[2,3]\n%y = Gelu(%a) approximate=\"tanh\" @n\nout %y", -3, 3},
    UNARY("Shrink", 0.6, 2),
    UNARY("Identity", -1, 1),
    {"Checkpoint", "in %a : f64[2,3]\n%y = tacit.Checkpoint(%a) @n\nout %y", -1, 1},
    {"Later", "in %a : f64[2,3]\nin %b : f64[2]\n%y = tacit.Later(%a, %b) @n\nout %y", -1, 1},
    UNARY("Ceil", 0.1, 0.9),
    UNARY("Floor", 0.1, 0.9),
    UNARY("Sign", 0.1, 0.9),
    BINARY("Add", -2, 2),
    BINARY("Sub", -2, 2),
    BINARY("Mul", -2, 2),
    BINARY("Div", 0.5, 2),
    BINARY("Pow", 0.5, 2),
    BINARY("Max", -2, 2),
    BINARY("Min", -2, 2),
    BINARY("Sum", -2, 2),
    BINARY("Mean", -2, 2),
    {"Mod", "in %a : f64[2,3]\nin %b : f64[3]\n%y = Mod(%a, %b) fmod=1 @n\nout %y", 1.2, 1.9},
    {"PRelu", "in %a : f64[2,3]\nin %b : f64[3]\n%y = PRelu(%a, %b) @n\nout %y", -2, -0.1},
    {"Clip",
     "in %a : f64[2,3]\nconst %l : f64[] = [-0.5]\nconst %h : f64[] = [0.5]\n%y = Clip(%a, %l, %h) "
     "@n\nout %y",
     -0.4, 0.4},
    {"Where",
     "in %a : f64[2,3]\nin %b : f64[3]\nconst %c : bool[2,1] = [true, false]\n%y = Where(%c, %a, "
     "%b)"
     " @n\nout %y",
     -2, 2},
    {"Cast", "in %a : f64[2]\n%y = Cast(%a) to=11 @n\nout %y", -2, 2},
    REDUCE("ReduceSum", -2, 2),
    REDUCE("ReduceMean", -2, 2),
    REDUCE("ReduceProd", -2, 2),
    REDUCE("ReduceMax", -2, 2),
    REDUCE("ReduceMin", -2, 2),
    REDUCE("ReduceL1", 0.2, 2),
    REDUCE("ReduceL2", 0.2, 2),
    REDUCE("ReduceSumSquare", -2, 2),
    REDUCE("ReduceLogSum", 0.5, 2),
    REDUCE("ReduceLogSumExp", -2, 2),
    UNARY("Softmax", -2, 2),
    {"Softmax", "in %a : f64[2,3,4]\n%y = Softmax(%a) axis=1 @n\nout %y", -2, 2},
    UNARY("LogSoftmax", -2, 2),
    {"MatMul", "in %a : f64[2,3]\nin %b : f64[3,4]\n%y = MatMul(%a, %b) @n\nout %y", -1, 1},
    {"MatMul", "in %a : f64[2,1,3,2]\nin %b : f64[4,2,5]\n%y = MatMul(%a, %b) @n\nout %y", -1, 1},
    {"MatMul", "in %a : f64[3]\nin %b : f64[2,3,4]\n%y = MatMul(%a, %b) @n\nout %y", -1, 1},
    {"MatMul", "in %a : f64[2,4,3]\nin %b : f64[3]\n%y = MatMul(%a, %b) @n\nout %y", -1, 1},
    {"MatMul", "in %a : f64[3]\nin %b : f64[3]\n%y = MatMul(%a, %b) @n\nout %y", -1, 1},
    {"Gemm",
     "in %a : f64[3,2]\nin %b : f64[4,3]\nin %c : f64[4]\n%y = Gemm(%a, %b, %c) transA=1 transB=1 "
     "alpha=0.5 beta=2.0 @n\nout %y",
     -1, 1},
    {"Gemm", "in %a : f64[2,3]\nin %b : f64[3,4]\n%y = Gemm(%a, %b) @n\nout %y", -1, 1},
    {"Reshape", "in %a : f64[2,3]\nconst %s : i64[2] = [3, 2]\n%y = Reshape(%a, %s) @n\nout %y", -1,
     1},
    {"Flatten", "in %a : f64[2,3,2]\n%y = Flatten(%a) axis=2 @n\nout %y", -1, 1},
    {"Squeeze", "in %a : f64[2,1]\n%y = Squeeze(%a) @n\nout %y", -1, 1},
    {"Unsqueeze", "in %a : f64[2]\nconst %s : i64[1] = [1]\n%y = Unsqueeze(%a, %s) @n\nout %y", -1,
     1},
    {"Transpose", "in %a : f64[2,3,4]\n%y = Transpose(%a) perm=[2, 0, 1] @n\nout %y", -1, 1},
    {"Transpose", "in %a : f64[2,3]\n%y = Transpose(%a) @n\nout %y", -1, 1},
    {"Expand", "in %a : f64[3,1]\nconst %s : i64[3] = [2, 1, 4]\n%y = Expand(%a, %s) @n\nout %y",
     -1, 1},
    {"Concat", "in %a : f64[2,3]\nin %b : f64[2,1]\n%y = Concat(%a, %b) axis=-1 @n\nout %y", -1, 1},
    {"Split",
     "in %a : f64[5,2]\nconst %s : i64[2] = [2, 3]\n%y, %z = Split(%a, %s) axis=0 @n\nout %z", -1,
     1},
    {"Slice",
     "in %a : f64[5,4]\nconst %s : i64[2] = [1, -1]\nconst %e : i64[2] = [5, -4]\nconst %x : "
     "i64[2] "
     "= [0, 1]\nconst %t : i64[2] = [2, -2]\n%y = Slice(%a, %s, %e, %x, %t) @n\nout %y",
     -1, 1},
    {"Slice",
     "in %a : f64[5]\nconst %s : i64[1] = [1]\nconst %e : i64[1] = [4]\n%y = Slice(%a, %s, %e) @n\n"
     "out %y",
     -1, 1},
    {"Pad", "in %a : f64[2,3]\nconst %s : i64[4] = [1, 0, 2, 1]\n%y = Pad(%a, %s) @n\nout %y", -1,
     1},
    {"Tile", "in %a : f64[2,3]\nconst %s : i64[2] = [2, 3]\n%y = Tile(%a, %s) @n\nout %y", -1, 1},
    {"Trilu", "in %a : f64[3,3]\n%y = Trilu(%a) upper=0 @n\nout %y", -1, 1},
    {"Gather",
     "in %a : f64[4,3]\nconst %i : i64[2,2] = [0, 3, 3, -2]\n%y = Gather(%a, %i) @n\nout %y", -1,
     1},
    {"Gather",
     "in %a : f64[2,4,3]\nconst %i : i64[3] = [1, 1, 0]\n%y = Gather(%a, %i) axis=1 @n\nout %y", -1,
     1},
    {"GatherElements",
     "in %a : f64[2,3]\nconst %i : i64[2,2] = [0, 2, 1, 1]\n%y = GatherElements(%a, %i) axis=1 @n\n"
     "out %y",
     -1, 1},
    {"GatherND", "in %a : f64[3,2]\nconst %i : i64[2,1] = [2, 2]\n%y = GatherND(%a, %i) @n\nout %y",
     -1, 1},
    {"ScatterElements",
     "in %a : f64[2,3]\nin %b : f64[2,2]\nconst %i : i64[2,2] = [0, 2, 1, 0]\n%y = "
     "ScatterElements(%a, %i, %b) axis=1 @n\nout %y",
     -1, 1},
    {"ScatterND",
     "in %a : f64[4,2]\nin %b : f64[2,2]\nconst %i : i64[2,1] = [3, 0]\n%y = ScatterND(%a, %i, %b) "
     "reduction=\"add\" @n\nout %y",
     -1, 1},
    {"CumSum",
     "in %a : f64[2,4]\nconst %x : i64[] = [1]\n%y = CumSum(%a, %x) exclusive=1 @n\nout %y", -1, 1},
    {"TopK", "in %a : f64[2,5]\nconst %k : i64[1] = [2]\n%y, %i = TopK(%a, %k) @n\nout %y", -1, 1},
    {"Conv",
     "in %a : f64[2,4,5,4]\nin %b : f64[6,2,3,2]\nin %c : f64[6]\n%y = Conv(%a, %b, %c) group=2 "
     "pads=[1, 0, 1, 1] @n\nout %y",
     -1, 1},
    {"Conv",
     "in %a : f64[1,2,6,5]\nin %b : f64[3,2,2,2]\n%y = Conv(%a, %b) strides=[2, 2] dilations=[1, "
     "2] "
     "@n\nout %y",
     -1, 1},
    {"Conv", "in %a : f64[2,3,7]\nin %b : f64[2,3,3]\n%y = Conv(%a, %b) strides=[3] @n\nout %y", -1,
     1},
    {"ConvTranspose",
     "in %a : f64[2,4,3,2]\nin %b : f64[4,3,2,3]\nin %c : f64[6]\n%y = ConvTranspose(%a, %b, %c) "
     "group=2 strides=[2, 1] pads=[0, 1, 1, 1] output_padding=[1, 0] @n\nout %y",
     -1, 1},
    {"MaxPoolGrad",
     "in %a : f64[1,2,4,3]\nin %b : f64[1,2,3,2]\n%y = tacit.MaxPoolGrad(%a, %b) "
     "kernel_shape=[2, 2] @n\nout %y",
     -1, 1},
    {"AveragePoolGrad",
     "in %a : f64[1,2,4,3]\nin %b : f64[1,2,3,2]\n%y = tacit.AveragePoolGrad(%a, %b) "
     "kernel_shape=[2, 2] @n\nout %y",
     -1, 1},
    {"Solve", "in %a : f64[2,2]\nin %b : f64[2]\n%y = tacit.Solve(%a, %b) @n\nout %y", 0.5, 2},
    {"Solve", "in %a : f64[2,3,3]\nin %b : f64[2,3,2]\n%y = tacit.Solve(%a, %b) @n\nout %y", -3, 3},
    {"Einsum",
     "in %a : f64[2,3]\nin %b : f64[3,4]\n%y = Einsum(%a, %b) equation=\"ij,jk->ki\" @n\nout %y",
     -1, 1},
    {"Einsum", "in %a : f64[2,3,4]\n%y = Einsum(%a) equation=\"ijk->j\" @n\nout %y", -1, 1},
    {"Einsum",
     "in %a : f64[2,2,3]\nin %b : f64[2,3,2]\nin %c : f64[2]\n%y = Einsum(%a, %b, %c) "
     "equation=\"...ij, ...jk, k -> ...i\" @n\nout %y",
     -1, 1},
    {"Einsum", "in %a : f64[2,3]\nin %b : f64[3]\n%y = Einsum(%a, %b) equation=\"ba,a\" @n\nout %y",
     -1, 1},
    {"GroupedMatMul",
     "in %a : f64[4,2]\nin %b : f64[3,2,3]\nconst %i : i64[4] = [2, 0, 2, 1]\n%y = "
     "tacit.GroupedMatMul(%a, %b, %i) @n\nout %y",
     -1, 1},
    {"DepthToSpace", "in %a : f64[1,8,2,3]\n%y = DepthToSpace(%a) blocksize=2 @n\nout %y", -1, 1},
    {"DepthToSpace",
     "in %a : f64[1,8,2,1]\n%y = DepthToSpace(%a) blocksize=2 mode=\"CRD\" @n\nout %y", -1, 1},
    {"SpaceToDepth", "in %a : f64[1,2,4,6]\n%y = SpaceToDepth(%a) blocksize=2 @n\nout %y", -1, 1},
    {"ScatterAdd",
     "in %a : f64[2,3]\nconst %i : i64[3] = [1, 0, 1]\n%y = tacit.ScatterAdd(%a, %i) axis=1 dim=3 "
     "@n\nout %y",
     -1, 1},
    {"RotaryEmbedding",
     "in %a : f64[1,2,2,4]\nconst %c : f64[1,2,2] = [0.6, 0.8, 1.0, 0.0]\nconst %s : f64[1,2,2] = "
     "[0.8, 0.6, 0.0, 1.0]\n%y = RotaryEmbedding(%a, %c, %s) @n\nout %y",
     -1, 1},
    {"Fft", "in %a : f64[2,6]\n%y = tacit.Fft(%a) norm=\"none\" @n\nout %y", -1, 1},
    {"Fft", "in %a : f64[1,8]\n%y = tacit.Fft(%a) inverse=1 @n\nout %y", -1, 1},
    {"Fft", "in %a : f64[1,10]\n%y = tacit.Fft(%a) norm=\"ortho\" @n\nout %y", -1, 1},
    {"Complex",
     "in %a : f64[2]\nin %b : f64[2]\n%z = tacit.Complex(%a, %b) @z\n%w = Mul(%z, %z) @w\n%e = "
     "Exp(%w) @e\n%q = Div(%e, %z) @q\n%y = tacit.Real(%q) @y\nout %y",
     0.3, 1},
    {"Real",
     "in %a : f64[2,1]\nin %b : f64[2]\n%z = tacit.Complex(%a, %b) @z\n%w = Sqrt(%z) @w\n%y = "
     "tacit.Real(%w) @y\nout %y",
     0.3, 1},
    {"Imag",
     "in %a : f64[2]\nin %b : f64[2]\n%z = tacit.Complex(%a, %b) @z\n%w = Log(%z) @w\n%f = "
     "tacit.Fft(%w) @f\n%y = tacit.Imag(%f) @y\nout %y",
     0.3, 1},
    {"NormSq",
     "in %a : f64[2]\nin %b : f64[2]\n%z = tacit.Complex(%a, %b) @z\n%w = Exp(%z) @w\n%y = "
     "tacit.NormSq(%w) @y\nout %y",
     -1, 1},
    {"Conj",
     "in %a : f64[2]\nin %b : f64[2]\n%z = tacit.Complex(%a, %b) @z\n%c = tacit.Conj(%z) @c\n%w = "
     "Mul(%c, %z) @w\n%e = Sub(%w, %c) @e\n%y = tacit.Imag(%e) @y\nout %y",
     -1, 1},
    {"NormSqGrad",
     "in %a : f64[2]\nin %b : f64[2]\n%z = tacit.Complex(%a, %b) @z\n%g = tacit.NormSqGrad(%z, %a) "
     "@g\n%y = tacit.NormSq(%g) @y\nout %y",
     -1, 1},
    {"CumProd", "in %a : f64[2,3]\nconst %x : i64[] = [1]\n%y = CumProd(%a, %x) @n\nout %y", -2, 2},
    {"CumProd",
     "in %a : f64[3,2]\nconst %x : i64[] = [0]\n%y = CumProd(%a, %x) exclusive=1 reverse=1 @n\n"
     "out %y",
     -2, 2},
    {"LpNormalization", "in %a : f64[2,3]\n%y = LpNormalization(%a) @n\nout %y", 0.3, 2},
    {"LpNormalization", "in %a : f64[2,3]\n%y = LpNormalization(%a) axis=0 p=1 @n\nout %y", -2,
     -0.3},
    {"GlobalMaxPool", "in %a : f64[2,2,3,2]\n%y = GlobalMaxPool(%a) @n\nout %y", -2, 2},
    {"CastLike", "in %a : f64[2]\nconst %l : f64[] = [0.0]\n%y = CastLike(%a, %l) @n\nout %y", -2,
     2},
    {"LogMel", "in %a : f64[2,8]\nin %b : f64[2,3]\n%y = tacit.LogMel(%a, %b) @n\nout %y", 0.2, 1},
    /* Rows that are decomposed first. */
    {"LayerNormalization",
     "in %a : f64[2,3,4]\nin %b : f64[4]\nin %c : f64[4]\n%y = LayerNormalization(%a, %b, %c) "
     "stash_type=11 @n\n"
     "out %y",
     -1, 1},
    {"RMSNormalization",
     "in %a : f64[2,4]\nin %b : f64[4]\n%y = RMSNormalization(%a, %b) stash_type=11 @n\nout %y", -1,
     1},
    {"InstanceNormalization",
     "in %a : f64[2,2,3]\nin %b : f64[2]\nin %c : f64[2]\n%y = InstanceNormalization(%a, %b, %c) "
     "@n\nout %y",
     -1, 1},
    {"GroupNormalization",
     "in %a : f64[1,4,3]\nin %b : f64[4]\nin %c : f64[4]\n%y = GroupNormalization(%a, %b, %c) "
     "num_groups=2 stash_type=11 @n\nout %y",
     -1, 1},
    {"MeanVarianceNormalization",
     "in %a : f64[2,2,2,2]\n%y = MeanVarianceNormalization(%a) @n\nout %y", -1, 1},
    {"Attention",
     "in %a : f64[1,2,3,2]\nin %b : f64[1,1,4,2]\nin %c : f64[1,1,4,3]\n%y = Attention(%a, %b, %c) "
     "is_causal=1 @n\nout %y",
     -1, 1},
    {"Attention",
     "in %a : f64[1,2,3,2]\nin %b : f64[1,2,3,2]\nin %c : f64[1,2,3,2]\n%y = tacit.Attention(%a, "
     "%b, %c) scale=0.7 causal=1 @n\nout %y",
     -1, 1},
    {"LoraMatMul",
     "in %a : f64[2,3]\nin %b : f64[3,4]\nin %c : f64[3,1]\nin %d : f64[1,4]\n%y = "
     "tacit.LoraMatMul(%a, %b, %c, %d) scale=0.5 @n\nout %y",
     -1, 1},
    {"SelectiveScan",
     "in %a : f64[2,3,2]\nin %b : f64[2,3,2]\nin %c : f64[2,2]\nin %d : f64[2,3,2]\nin %e : "
     "f64[2,3,2]\nin %f : f64[2,2,2]\n%y, %s = tacit.SelectiveScan(%a, %b, %c, %d, %e, %f) @n\nout "
     "%y",
     -1, 1},
    {"GatedDeltaNet",
     "in %a : f64[1,3,2,2]\nin %b : f64[1,3,2,2]\nin %c : f64[1,3,2,2]\nin %d : f64[1,3,2]\nin %e "
     ": "
     "f64[1,3,2]\n%y, %s = tacit.GatedDeltaNet(%a, %b, %c, %d, %e) @n\nout %y",
     -1, 1},
    {"Resize",
     "in %a : f64[1,2,3,2]\nconst %s : f32[4] = [1.0, 1.0, 2.0, 1.5]\n%y = Resize(%a, _, %s) "
     "mode=\"linear\" @n\nout %y",
     -1, 1},
    {"Resize",
     "in %a : f64[1,1,2,4]\nconst %s : i64[2] = [4, 3]\n%y = Resize(%a, _, _, %s) axes=[2, 3] "
     "mode=\"nearest\" @n\nout %y",
     -1, 1},
    {"Resize",
     "in %a : f64[1,1,5]\nconst %s : i64[3] = [1, 1, 3]\n%y = Resize(%a, _, _, %s) mode=\"cubic\" "
     "antialias=1 @n\nout %y",
     -1, 1},
    {"MaxPool",
     "in %a : f64[2,1,4,6]\n%y = MaxPool(%a) kernel_shape=[2, 3] strides=[2, 3] @n\nout %y", -2, 2},
    {"NegativeLogLikelihoodLoss",
     "in %a : f64[3,4]\nin %b : f64[4]\nconst %t : i64[3] = [1, 3, 0]\n%y = "
     "NegativeLogLikelihoodLoss(%a, %t, %b) ignore_index=3 @n\nout %y",
     0.5, 2},
    {"NegativeLogLikelihoodLoss",
     "in %a : f64[2,3,2]\nconst %t : i64[2,2] = [1, 2, 0, 1]\n%y = "
     "NegativeLogLikelihoodLoss(%a, %t) reduction=\"none\" @n\nout %y",
     -2, 2},
    {"SoftmaxCrossEntropyLoss",
     "in %a : f64[3,4]\nconst %t : i64[3] = [1, 3, 0]\n%y = SoftmaxCrossEntropyLoss(%a, %t) @n\n"
     "out %y",
     -2, 2},
    {"SoftmaxCrossEntropyLoss",
     "in %a : f64[2,3,2]\nin %b : f64[3]\nconst %t : i64[2,2] = [1, 2, -1, 1]\n%y = "
     "SoftmaxCrossEntropyLoss(%a, %t, %b) ignore_index=-1 reduction=\"mean\" @n\nout %y",
     0.5, 2},
    {"SoftmaxCrossEntropyLoss",
     "in %a : f64[2,3]\nin %b : f64[3]\nconst %t : i64[2] = [2, 1]\n%y, %z = "
     "SoftmaxCrossEntropyLoss(%a, %t, %b) reduction=\"sum\" @n\n%w = Add(%y, %z) @m\nout %w",
     0.5, 2},
    {"MaxPool",
     "in %a : f64[1,2,5,4]\n%y = MaxPool(%a) kernel_shape=[3, 2] strides=[2, 1] pads=[1, 0, 0, 1] "
     "@n\nout %y",
     -1, 1},
    {"AveragePool",
     "in %a : f64[1,2,5,4]\n%y = AveragePool(%a) kernel_shape=[2, 2] strides=[1, 2] pads=[1, 1, 0, "
     "0] @n\nout %y",
     -1, 1},
    {"AveragePool",
     "in %a : f64[2,1,4,4]\n%y = AveragePool(%a) kernel_shape=[2, 2] strides=[2, 2] "
     "count_include_pad=1 pads=[1, 1, 1, 1] @n\nout %y",
     -1, 1},
    {"GlobalAveragePool", "in %a : f64[2,3,2,2]\n%y = GlobalAveragePool(%a) @n\nout %y", -1, 1},
    {"BatchNormalization",
     "in %a : f64[2,3,2]\nin %b : f64[3]\nin %c : f64[3]\nin %d : f64[3]\nin %e : f64[3]\n%y = "
     "BatchNormalization(%a, %b, %c, %d, %e) @n\nout %y",
     0.5, 2},
    {"LayerNormalization",
     "in %a : f64[2,5]\nin %b : f64[5]\nin %c : f64[5]\n"
     "%y = LayerNormalization(%a, %b, %c) stash_type=11 @n\nout %y",
     -1, 1},
    {"RMSNormalization",
     "in %a : f64[2,5]\nin %b : f64[5]\n%y = RMSNormalization(%a, %b) stash_type=11 @n\nout %y", -1,
     1},
};

/* Rows whose derivative is a convention, not a limit: checked in test_conventions.c. */
static const char *const by_convention[] = {"Round", "FakeQuantize", "Dropout", "Function"};

static void check_gradient(const rule_case *k, arena *a, ir_graph *g, const ir_tensor **in, rng *r)
{
    tacit_error err = {0};
    const char *names[8];
    uint32_t n = g->inputs.count;
    for (uint32_t i = 0; i < n; i++)
        names[i] = g->inputs.data[i]->name;
    ir_graph *d = ir_graph_clone(g, a);
    if (diff_grad(d, n, names, &(diff_grad_options){.with_loss = true}, &err) != TACIT_OK)
        fail_msg("%s: %s", k->op, err.message);
    ir_tensor *seed = harness_random(a, &g->outputs.data[0]->type, r, -1, 1);
    const ir_tensor *all[9];
    memcpy(all, in, n * sizeof *all);
    all[n] = seed;
    ir_tensor *out = harness_run(a, d, all);
    const double h = 1e-6;
    for (uint32_t i = 0; i < n; i++) {
        double *x = in[i]->data;
        for (int64_t e = 0; e < ir_tensor_count(in[i]); e++) {
            double keep = x[e];
            x[e] = keep + h;
            double up = harness_dot(harness_run(a, g, in), seed);
            x[e] = keep - h;
            double down = harness_dot(harness_run(a, g, in), seed);
            x[e] = keep;
            double want = (up - down) / (2 * h), got = ((double *)out[1 + i].data)[e];
            if (fabs(want - got) > 1e-6 * (1 + fabs(want)))
                fail_msg("%s: d%s[%d] is %.9g, differences say %.9g in\n%s", k->op, names[i],
                         (int)e, got, want, k->body);
        }
    }
}

/* ⟨seed, J·t⟩ = ⟨Jᵀ·seed, t⟩ */
static void check_tangent(const rule_case *k, arena *a, ir_graph *g, const ir_tensor **in, rng *r)
{
    tacit_error err = {0};
    const char *names[8];
    uint32_t n = g->inputs.count;
    for (uint32_t i = 0; i < n; i++)
        names[i] = g->inputs.data[i]->name;
    ir_graph *fwd = ir_graph_clone(g, a), *rev = ir_graph_clone(g, a);
    if (diff_jvp(fwd, n, names, &err) != TACIT_OK)
        fail_msg("%s: %s", k->op, err.message);
    assert_int_equal(diff_grad(rev, n, names, &(diff_grad_options){0}, &err), TACIT_OK);
    const ir_tensor *all[16];
    memcpy(all, in, n * sizeof *all);
    for (uint32_t i = 0; i < n; i++)
        all[n + i] = harness_random(a, &g->inputs.data[i]->type, r, -1, 1);
    ir_tensor *tangents = harness_run(a, fwd, all);
    ir_tensor *seed = harness_random(a, &g->outputs.data[0]->type, r, -1, 1);
    double forward = harness_dot(&tangents[1], seed), backward = 0;
    const ir_tensor *with_seed[9];
    memcpy(with_seed, in, n * sizeof *all);
    with_seed[n] = seed;
    ir_tensor *grads = harness_run(a, rev, with_seed);
    for (uint32_t i = 0; i < n; i++)
        backward += harness_dot(&grads[i], all[n + i]);
    if (fabs(forward - backward) > 1e-9 * (1 + fabs(backward)))
        fail_msg("%s: jvp says %.12g, vjp %.12g in\n%s", k->op, forward, backward, k->body);
}

/* vmap over all inputs, and over the first alone, against a loop. */
static void check_batch(const rule_case *k, arena *a, ir_graph *g, rng *r, uint32_t batched)
{
    enum { B = 3 };
    tacit_error err = {0};
    const char *names[8];
    uint32_t n = g->inputs.count;
    for (uint32_t i = 0; i < n; i++)
        names[i] = g->inputs.data[i]->name;
    ir_graph *v = ir_graph_clone(g, a);
    if (diff_vmap(v, batched, names, B, &err) != TACIT_OK)
        fail_msg("%s: %s", k->op, err.message);
    const ir_tensor *all[8];
    for (uint32_t i = 0; i < n; i++)
        all[i] = harness_random(a, &v->inputs.data[i]->type, r, k->low, k->high);
    ir_tensor *out = harness_run(a, v, all);
    for (int64_t b = 0; b < B; b++) {
        const ir_tensor *one[8];
        for (uint32_t i = 0; i < n; i++) {
            const ir_type *type = &g->inputs.data[i]->type;
            size_t bytes = ir_dtype_bytes(type->dtype, ir_shape_size(&type->shape));
            ir_tensor *t = arena_copy(a, all[i], sizeof *t);
            *t = ir_tensor_view(type->dtype, &type->shape,
                                (char *)all[i]->data + (i < batched ? (size_t)b * bytes : 0));
            one[i] = t;
        }
        ir_tensor *want = harness_run(a, g, one);
        if (memcmp((char *)out[0].data + (size_t)b * want[0].bytes, want[0].data, want[0].bytes))
            fail_msg("%s: entry %d of the batch differs in\n%s", k->op, (int)b, k->body);
        assert_int_equal(out[0].shape.rank, want[0].shape.rank + 1);
    }
}

static void rules_agree_with_differences(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        arena a;
        arena_init(&a, NULL);
        rng r = rng_seed(100 + i);
        ir_graph *g = harness_graph(&a, cases[i].body);
        const ir_tensor *in[8];
        for (uint32_t k = 0; k < g->inputs.count; k++)
            in[k] = harness_random(&a, &g->inputs.data[k]->type, &r, cases[i].low, cases[i].high);
        check_gradient(&cases[i], &a, g, in, &r);
        check_tangent(&cases[i], &a, g, in, &r);
        check_batch(&cases[i], &a, g, &r, g->inputs.count);
        check_batch(&cases[i], &a, g, &r, 1);
        arena_free(&a);
    }
}

static bool is_listed(const char *op)
{
    for (size_t i = 0; i < sizeof by_convention / sizeof *by_convention; i++)
        if (strcmp(by_convention[i], op) == 0)
            return true;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (strcmp(cases[i].op, op) == 0)
            return true;
    return false;
}

static void every_rule_has_a_case(void **state)
{
    (void)state;
    const op_def *row;
    for (uint32_t i = 0; (row = op_at(i)) != NULL; i++)
        if ((row->vjp || row->jvp) && !is_listed(row->name))
            fail_msg("%s has a derivative rule but no case in this test", row->name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_agree_with_differences),
        cmocka_unit_test(every_rule_has_a_case),
    };
    return cmocka_run_group_tests_name("derivative rules", tests, NULL, NULL);
}
